import { hash } from 'node:crypto';
import { LuaApi } from 'wasmoon-lua5.1';

/** Reply of a command or a script. A status such as OK is an object, as in Lua. */
export type Reply = string | number | null | readonly Reply[] | { readonly ok: string };
/** Runs a command for a script. */
export type Call = (argv: readonly string[]) => Reply;
type Value = Reply | boolean | undefined | { readonly [name: string]: Value };

/** The functions of Lua's C interface, as the WebAssembly module exports them. A state and a script are numbers. */
interface Exports {
  readonly HEAPU8: Uint8Array;
  addFunction(run: (state: number) => number, signature: 'ii'): number;
  _malloc(bytes: number): number;
  _free(at: number): void;
  _luaL_newstate(): number;
  _luaL_openlibs(state: number): void;
  _luaL_loadbuffer(state: number, at: number, bytes: number, name: number): number;
  _luaL_ref(state: number, table: number): number;
  _lua_pcall(state: number, args: number, results: number, handler: number): number;
  _lua_error(state: number): number;
  _lua_gettop(state: number): number;
  _lua_settop(state: number, top: number): void;
  _lua_type(state: number, at: number): number;
  _lua_toboolean(state: number, at: number): number;
  _lua_tonumber(state: number, at: number): number;
  _lua_tolstring(state: number, at: number, length: number): number;
  _lua_pushboolean(state: number, value: number): void;
  _lua_pushnumber(state: number, value: number): void;
  _lua_pushlstring(state: number, at: number, bytes: number): void;
  _lua_pushcclosure(state: number, run: number, values: number): void;
  _lua_createtable(state: number, list: number, fields: number): void;
  _lua_rawgeti(state: number, table: number, at: number): void;
  _lua_rawseti(state: number, table: number, at: number): void;
  _lua_rawget(state: number, table: number): void;
  _lua_rawset(state: number, table: number): void;
}

const REGISTRY = -10_000;
const GLOBALS = -10_002;
const [BOOLEAN, NUMBER, STRING, TABLE] = [1, 3, 4, 5];
const SCRATCH_BYTES = 65_536;

/** Lua 5.1 with the functions that Redis gives to scripts. It runs one script after the other, each compiled once. */
export class Lua {
  readonly #c: Exports;
  readonly #state: number;
  readonly #length: number;
  readonly #scratch: number;
  readonly #scripts = new Map<string, number>();
  #memory = Buffer.alloc(0);
  #call: Call = () => null;

  static async create(): Promise<Lua> {
    return new Lua((await LuaApi.initialize()).module as unknown as Exports);
  }

  private constructor(c: Exports) {
    this.#c = c;
    this.#state = c._luaL_newstate();
    this.#length = c._malloc(4);
    this.#scratch = c._malloc(SCRATCH_BYTES);
    c._luaL_openlibs(this.#state);
    const call = (...argv: Value[]) => this.#call(argv.map(String));
    this.#library('redis', {
      call,
      pcall: call,
      sha1hex: (text) => hash('sha1', String(text)),
      acl_check_cmd: () => true,
    });
    this.#library('cjson', {
      // As cjson writes it.
      encode: (value) => JSON.stringify(value).replaceAll('/', '\\/'),
      decode: (text) => JSON.parse(String(text)),
    });
  }

  /** Runs a script as EVAL does. Throws its error. */
  run(script: string, keys: readonly string[], args: readonly string[], call: Call): Reply {
    const { _lua_rawgeti, _lua_pcall, _lua_settop } = this.#c;
    const state = this.#state;
    this.#call = call;
    this.#global('KEYS', keys);
    this.#global('ARGV', args);
    _lua_rawgeti(state, REGISTRY, this.#compiled(script));
    const failed = _lua_pcall(state, 0, 1, 0) !== 0;
    try {
      const reply = this.#read(-1);
      if (failed) throw new Error(typeof reply === 'string' ? reply : JSON.stringify(reply));
      return replyOf(reply);
    } finally {
      _lua_settop(state, 0);
    }
  }

  #compiled(script: string): number {
    const present = this.#scripts.get(script);
    if (present !== undefined) return present;
    const text = `${script.replace(/^#!/, '--')}\0`; // Redis strips the line, Lua counts it.
    const bytes = Buffer.byteLength(text);
    const at = this.#c._malloc(bytes);
    this.#heap().write(text, at);
    if (this.#c._luaL_loadbuffer(this.#state, at, bytes - 1, at + bytes - 1) !== 0)
      throw new Error(`${this.#read(-1)}`);
    this.#c._free(at);
    const compiled = this.#c._luaL_ref(this.#state, REGISTRY);
    this.#scripts.set(script, compiled);
    return compiled;
  }

  #library(name: string, functions: Readonly<Record<string, (...args: Value[]) => Value>>): void {
    this.#push(name);
    this.#c._lua_createtable(this.#state, 0, 4);
    for (const [each, run] of Object.entries(functions)) {
      this.#push(each);
      const pointer = this.#c.addFunction((state) => this.#serve(state, run), 'ii');
      this.#c._lua_pushcclosure(this.#state, pointer, 0);
      this.#c._lua_rawset(this.#state, -3);
    }
    this.#c._lua_rawset(this.#state, GLOBALS);
  }

  #serve(state: number, run: (...args: Value[]) => Value): number {
    let isError = false;
    try {
      const args = Array.from({ length: this.#c._lua_gettop(state) }, (_, i) => this.#read(i + 1));
      this.#push(run(...args));
    } catch (error) {
      isError = true;
      this.#push({ err: (error as Error).message });
    }
    return isError ? this.#c._lua_error(state) : 1;
  }

  #global(name: string, values: readonly string[]): void {
    this.#push(name);
    this.#push(values);
    this.#c._lua_rawset(this.#state, GLOBALS);
  }

  #heap(): Buffer {
    const { buffer } = this.#c.HEAPU8; // another one after it grew
    if (this.#memory.buffer !== buffer) this.#memory = Buffer.from(buffer as ArrayBuffer);
    return this.#memory;
  }

  /** Reads a value from the stack. A list ends before its first nil, as in a reply. */
  #read(at: number): Value {
    const [c, state] = [this.#c, this.#state];
    const type = c._lua_type(state, at);
    if (type === STRING) {
      const from = c._lua_tolstring(state, at, this.#length);
      const memory = this.#heap();
      return memory.toString('utf8', from, from + memory.readUInt32LE(this.#length));
    }
    if (type === NUMBER) return c._lua_tonumber(state, at);
    if (type === BOOLEAN) return c._lua_toboolean(state, at) === 1;
    if (type !== TABLE) return undefined;
    const table = at < 0 ? c._lua_gettop(state) + 1 + at : at;
    const list: Value[] = [];
    for (;;) {
      c._lua_rawgeti(state, table, list.length + 1);
      const item = this.#read(-1);
      c._lua_settop(state, -2);
      if (item === undefined) break;
      list.push(item);
    }
    if (list.length > 0) return list as Reply[];
    this.#push('err');
    c._lua_rawget(state, table);
    const err = this.#read(-1);
    c._lua_settop(state, -2);
    return err === undefined ? [] : { err };
  }

  #push(value: Value): void {
    const [c, state] = [this.#c, this.#state];
    if (typeof value === 'string') this.#pushText(value);
    else if (typeof value === 'number') c._lua_pushnumber(state, value);
    else if (typeof value !== 'object' || value === null) c._lua_pushboolean(state, value === true ? 1 : 0);
    else if (Array.isArray(value)) {
      c._lua_createtable(state, value.length, 0);
      for (const [i, item] of value.entries()) {
        this.#push(item);
        c._lua_rawseti(state, -2, i + 1);
      }
    } else {
      c._lua_createtable(state, 0, 4);
      for (const [name, item] of Object.entries(value)) {
        this.#pushText(name);
        this.#push(item);
        c._lua_rawset(state, -3);
      }
    }
  }

  #pushText(text: string): void {
    const isLong = 3 * text.length > SCRATCH_BYTES;
    const at = isLong ? this.#c._malloc(3 * text.length) : this.#scratch;
    this.#c._lua_pushlstring(this.#state, at, this.#heap().write(text, at));
    if (isLong) this.#c._free(at);
  }
}

/** What a client gets for a value that a script returns. */
function replyOf(value: Value): Reply {
  if (typeof value === 'number') return Math.trunc(value);
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(replyOf);
  return value === true ? 1 : null;
}
