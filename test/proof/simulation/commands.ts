import { Lua, type Reply } from './lua.ts';

/** One entry of a stream; its id is `<number>-0`. */
export interface StreamEntry {
  readonly number: number;
  /** Names and values. */
  readonly fields: readonly string[];
}

class Hash extends Map<string, string> {}
class SortedSet extends Map<string, number> {}
class Stream {
  entries: readonly StreamEntry[] = [];
  last = 0;
}

/** A command with its arguments. */
type Argv = readonly string[];

/** The one Lua of this process. */
const lua = await Lua.create();
const OK = { ok: 'OK' };

/**
 * The data of one Redis server, and the commands that the scripts of the protocol use, with the arguments that they give
 * them. MAXLEN trims at once, also with `~`.
 */
export class Commands {
  /** Id of the server, until it restarts or becomes the primary. */
  server = '';
  readonly #nowMs: () => number;
  readonly #data = new Map<string, string | Hash | SortedSet | Stream>();
  /** When keys expire, Unix milliseconds. */
  readonly #ends = new Map<string, number>();
  #effects: Argv[] = [];

  /** @param nowMs the clock of Redis, Unix milliseconds */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Takes over all data of another server. */
  copy(other: Commands): void {
    this.server = other.server;
    for (const [key, end] of other.#ends) this.#ends.set(key, end);
    for (const [key, value] of other.#data) {
      if (typeof value === 'string') this.#data.set(key, value);
      else if (value instanceof Hash) this.#data.set(key, new Hash(value));
      else if (value instanceof SortedSet) this.#data.set(key, new SortedSet(value));
      else this.#data.set(key, Object.assign(new Stream(), value));
    }
  }

  /** Runs a script. Throws its error. */
  eval(script: string, keys: readonly string[], args: Argv): Reply {
    return lua.run(script, keys, args, this.#execute);
  }

  /** Runs a command. */
  command(name: string, ...args: Argv): Reply {
    return this.#execute([name, ...args]);
  }

  /** Commands that changed something since the last time, as a primary sends them to its replicas. */
  takeEffects(): readonly Argv[] {
    const effects = this.#effects;
    if (effects.length > 0) this.#effects = [];
    return effects;
  }

  keys(prefix: string): string[] {
    return [...this.#data.keys()].filter((key) => key.startsWith(prefix) && this.#get(key) !== undefined);
  }

  hash(key: string): ReadonlyMap<string, string> | undefined {
    return this.#get(key) as Hash | undefined;
  }

  sortedSet(key: string): ReadonlyMap<string, number> {
    return this.#zset(key);
  }

  stream(key: string): readonly StreamEntry[] {
    return (this.#get(key) as Stream | undefined)?.entries ?? [];
  }

  #get(key: string) {
    const end = this.#ends.get(key);
    if (end !== undefined && end <= this.#nowMs()) this.#delete(key);
    return this.#data.get(key);
  }

  #delete(key: string): boolean {
    this.#ends.delete(key);
    return this.#data.delete(key);
  }

  #zset(key: string): SortedSet {
    return (this.#get(key) as SortedSet | undefined) ?? new SortedSet();
  }

  /** Some members of a sorted set in their order. */
  #ranked(key: string, isMeant: (score: number) => boolean): [member: string, score: number][] {
    const found: [string, number][] = [];
    for (const each of this.#zset(key)) if (isMeant(each[1])) found.push(each);
    return found.sort(([nameA, a], [nameB, b]) => a - b || (nameA < nameB ? -1 : 1));
  }

  /** Notes that a command made so many changes, and returns their number. */
  #changed(argv: Argv, count: number): number {
    if (count > 0) this.#effects.push(argv);
    return count;
  }

  /** Removes fields or members, and the key with the last of them. */
  #remove(argv: Argv, from: Hash | SortedSet | undefined, names: readonly string[]): number {
    let count = 0;
    for (const name of names) if (from?.delete(name)) count++;
    if (from?.size === 0) this.#delete(argv[1] ?? '');
    return this.#changed(argv, count);
  }

  readonly #execute = (argv: Argv): Reply => {
    const [name, key = '', ...args] = argv;
    const [first = '', second = ''] = args;
    switch (name) {
      case 'TIME':
        return [`${Math.floor(this.#nowMs() / 1000)}`, `${Math.floor((this.#nowMs() % 1000) * 1000)}`];
      case 'INFO':
        return `# Replication\r\nmaster_replid:${this.server}\r\n`;
      case 'PUBLISH':
        this.#effects.push(argv);
        return 0;
      case 'GET':
        return (this.#get(key) as string | undefined) ?? null;
      case 'SET':
        if (second === 'NX' && this.#get(key) !== undefined) return null;
        this.#delete(key);
        this.#data.set(key, first);
        this.#effects.push(argv);
        return OK;
      case 'EXISTS':
        return this.#get(key) === undefined ? 0 : 1;
      case 'DEL':
        return this.#changed(
          argv,
          argv.slice(1).filter((each) => this.#get(each) !== undefined && this.#delete(each)).length,
        );
      case 'EXPIRE':
        return this.#expire(key, 1000 * Number(first), second);
      case 'PEXPIRE':
        return this.#expire(key, Number(first), second);
      case 'PEXPIREAT':
        this.#ends.set(key, Number(first));
        return 1;
      case 'HGET':
        return this.hash(key)?.get(first) ?? null;
      case 'HMGET': {
        const hash = this.hash(key);
        return args.map((field) => hash?.get(field) ?? null);
      }
      case 'HGETALL':
        return [...(this.hash(key) ?? [])].flat();
      case 'HEXISTS':
        return this.hash(key)?.has(first) ? 1 : 0;
      case 'HLEN':
        return this.hash(key)?.size ?? 0;
      case 'HSET': {
        const hash = (this.#get(key) as Hash | undefined) ?? new Hash();
        const before = hash.size;
        for (let i = 0; i < args.length; i += 2) hash.set(args[i] ?? '', args[i + 1] ?? '');
        this.#data.set(key, hash);
        this.#effects.push(argv);
        return hash.size - before;
      }
      case 'HINCRBY': {
        const sum = Number(this.hash(key)?.get(first) ?? 0) + Number(second);
        this.command('HSET', key, first, String(sum));
        return sum;
      }
      case 'HDEL':
        return this.#remove(argv, this.#get(key) as Hash | undefined, args);
      case 'ZADD':
        return this.#zadd(argv, key, args);
      case 'ZREM':
        return this.#remove(argv, this.#zset(key), args);
      case 'ZREMRANGEBYSCORE': {
        const gone = this.#ranked(key, between(first, second)).map(([member]) => member);
        return this.#remove(argv, this.#zset(key), gone);
      }
      case 'ZCARD':
        return this.#zset(key).size;
      case 'ZSCORE': {
        const score = this.#zset(key).get(first);
        return score === undefined ? null : textOf(score);
      }
      case 'ZCOUNT':
        return this.#ranked(key, between(first, second)).length;
      case 'ZRANGE': {
        const to = Number(second);
        const all = this.#ranked(key, () => true).map(([member]) => member);
        return all.slice(Number(first), to < 0 ? all.length + 1 + to : to + 1);
      }
      case 'ZRANGEBYSCORE': {
        const [from = 0, count = -1] = valuesAfter(args, 'LIMIT').map(Number);
        const found = this.#ranked(key, between(first, second)).slice(
          from,
          count < 0 ? undefined : from + count,
        );
        return found.flatMap(([member, score]) =>
          args.includes('WITHSCORES', 2) ? [member, textOf(score)] : [member],
        );
      }
      case 'XADD':
        return this.#xadd(argv, key, args);
      case 'XTRIM': {
        const stream = this.#get(key) as Stream | undefined;
        const gone = stream ? Math.max(0, stream.entries.length - Number(second)) : 0;
        if (stream && gone > 0) stream.entries = stream.entries.slice(gone);
        return this.#changed(argv, gone);
      }
      case 'XRANGE': {
        const [from, to] = [numberOf(first, 0), numberOf(second, Number.POSITIVE_INFINITY)];
        const [count] = valuesAfter(args, 'COUNT').map(Number);
        return this.stream(key)
          .filter(({ number }) => number >= from && number <= to)
          .slice(0, count)
          .map(({ number, fields }) => [`${number}-0`, fields]);
      }
      default:
        throw new Error(`ERR the simulated Redis has no command ${name}`);
    }
  };

  #expire(key: string, ms: number, condition: string): number {
    if (this.#get(key) === undefined) return 0;
    const [present, end] = [this.#ends.get(key), this.#nowMs() + ms];
    if (condition === 'NX' && present !== undefined) return 0;
    if (condition === 'GT' && end <= (present ?? Number.POSITIVE_INFINITY)) return 0;
    this.#ends.set(key, end);
    this.#effects.push(['PEXPIREAT', key, String(end)]);
    return 1;
  }

  #zadd(argv: Argv, key: string, args: readonly string[]): number {
    const set = this.#zset(key);
    const isOption = args[0] === 'XX';
    let [added, changed] = [0, 0];
    for (let i = isOption ? 1 : 0; i < args.length; i += 2) {
      const [score, member = ''] = [numberOf(args[i] ?? '', 0), args[i + 1]];
      const present = set.get(member);
      if (present === score || (isOption && present === undefined)) continue;
      set.set(member, score);
      changed++;
      if (present === undefined) added++;
    }
    if (set.size > 0) this.#data.set(key, set);
    this.#changed(argv, changed);
    return added;
  }

  #xadd(argv: Argv, key: string, args: readonly string[]): string {
    const [, , kept = '', id = '', ...fields] = args; // MAXLEN ~ kept id …
    const stream = (this.#get(key) as Stream | undefined) ?? new Stream();
    const number = numberOf(id, 0);
    if (number <= stream.last) throw new Error(`ERR the ID ${id} is not above the last of ${key}`);
    const from = Math.max(0, stream.entries.length + 1 - Number(kept));
    stream.entries = [...stream.entries, { number, fields }].slice(from);
    stream.last = number;
    this.#data.set(key, stream);
    this.#effects.push(argv);
    return id;
  }
}

/** A bound such as `(5`, `-inf`, or `5-0` in a stream. */
function numberOf(text: string, open: number): number {
  if (text === '-' || text === '+') return open;
  const number = Number.parseFloat(text.replace('inf', 'Infinity'));
  if (Number.isNaN(number)) throw new Error(`ERR ${text} is no number`);
  return number;
}

function between(from: string, to: string): (score: number) => boolean {
  const [min, max] = [from, to].map((text) => numberOf(text.replace('(', ''), 0)) as [number, number];
  const [isAbove, isBelow] = [from.startsWith('('), to.startsWith('(')];
  return (score) => (isAbove ? score > min : score >= min) && (isBelow ? score < max : score <= max);
}

const textOf = (score: number): string => String(score).replace('Infinity', 'inf');
const valuesAfter = (args: readonly string[], option: string): readonly string[] => {
  const at = args.indexOf(option, 2);
  return at < 0 ? [] : args.slice(at + 1);
};
