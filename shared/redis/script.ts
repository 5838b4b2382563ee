import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ChainableCommander, Redis } from 'ioredis';

type Argument = string | number;

/** The keys and arguments of one run of a script. */
export interface ScriptCall {
  readonly keys: readonly string[];
  readonly args: readonly Argument[];
}

/** Returns the text of a script with the files that it includes, and those that they include: each once, where it comes first. */
const withIncluded = (file: URL, included = new Set([file.href])): string =>
  readFileSync(file, 'utf8').replace(/^-- include (\S+\.lua)$/gm, (_line, name: string) => {
    const other = new URL(name, file);
    if (included.has(other.href)) return '';
    included.add(other.href);
    return withIncluded(other, included).trimEnd();
  });

/** One run of a script, and how to read its reply. */
export interface Run<T> extends ScriptCall {
  readonly script: Script;
  readonly read: (reply: unknown) => T;
}

/** Runs a script, and reads its reply. */
export const send = async <T>(redis: Redis, { script, keys, args, read }: Run<T>): Promise<T> =>
  read(await script.run(redis, keys, args));

/** A Lua file that Redis runs atomically. */
export class Script {
  /** The whole text, with what it includes. */
  readonly lua: string;
  readonly #sha: string;
  /** Connections over which `runAll` has loaded the script into the server. */
  readonly #holders = new WeakSet<Redis>();

  /**
   * @param file location of the script, usually `new URL('./lua/name.lua', import.meta.url)`. A line `--
   * include name.lua` is replaced by the file at that path, relative to the file with the line, which may include
   * others
   * @param locals Lua that comes before the script's own, on a line after its first
   */
  constructor(file: URL, locals = '') {
    const text = withIncluded(file);
    this.lua = locals ? text.replace('\n', () => `\n${locals}\n`) : text;
    this.#sha = hash('sha1', this.lua);
  }

  /**
   * Runs the script by its hash. If Redis does not know the script, and so did nothing, sends its whole text.
   * This is cheaper than `defineCommand`.
   */
  run(redis: Redis, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    return redis.evalsha(this.#sha, keys.length, ...keys, ...args).catch((error: Error) => {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return redis.eval(this.lua, keys.length, ...keys, ...args);
    });
  }

  /** Runs the script as `run` does, at a server that may be a replica. The script is flagged `no-writes`. */
  async runReadOnly(redis: Redis, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    const rest = [keys.length, ...keys, ...args];
    return redis.call('EVALSHA_RO', this.#sha, ...rest).catch((error: Error) => {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return redis.call('EVAL_RO', this.lua, ...rest);
    });
  }

  /**
   * Runs the script, and then waits until `replicas` replicas have its writes. Use a separate connection,
   * because WAIT blocks it.
   * @returns the script's reply, and the number of replicas that confirmed within `waitMs`
   */
  async runAndWait(
    redis: Redis,
    keys: readonly string[],
    args: readonly Argument[],
    replicas: number,
    waitMs: number,
  ): Promise<{ reply: unknown; confirmed: number }> {
    const { replies, confirmed } = await this.runAll(redis, [{ keys, args }], replicas, waitMs);
    return { reply: replies[0], confirmed };
  }

  /**
   * Runs the script once for each call, in one round trip, and then waits like `runAndWait`. Rejects with the
   * first call's error if any call failed; the others may have been executed. Does not wait if `replicas` is
   * 0.
   */
  async runAll(
    redis: Redis,
    calls: readonly ScriptCall[],
    replicas: number,
    waitMs: number,
  ): Promise<{ replies: unknown[]; confirmed: number }> {
    const isThere = this.#holders.has(redis);
    const pipeline: ChainableCommander = redis.pipeline();
    for (const [i, { keys, args }] of calls.entries()) {
      // The first call sends the script's text. If all calls used the hash and Redis did not know it, the
      // calls would be repeated *after* the WAIT.
      if (i === 0 && !isThere) pipeline.eval(this.lua, keys.length, ...keys, ...args);
      else pipeline.evalsha(this.#sha, keys.length, ...keys, ...args);
    }
    if (replicas > 0) pipeline.wait(replicas, waitMs);
    const results = (await pipeline.exec()) ?? [];
    if (results.length < calls.length) throw new Error('the pipeline was not executed');
    const isForgotten = (i: number) => results[i]?.[0]?.message.startsWith('NOSCRIPT') === true;
    // If Redis was made to forget the script meanwhile, it executed none of these calls.
    const again = calls.filter((_, i) => isForgotten(i));
    const replies = results.slice(0, calls.length).map(([error, reply], i) => {
      if (error && !isForgotten(i)) throw error;
      return reply;
    });
    const wait = results[calls.length];
    if (again.length === 0) {
      this.#holders.add(redis);
      return { replies, confirmed: wait && !wait[0] ? Number(wait[1]) : 0 };
    }
    this.#holders.delete(redis);
    // A WAIT counts the replicas that have all writes before it, so the last one counts for all calls.
    const repeated = await this.runAll(redis, again, replicas, waitMs);
    const rest = repeated.replies.values();
    return {
      replies: replies.map((reply, i) => (isForgotten(i) ? rest.next().value : reply)),
      confirmed: repeated.confirmed,
    };
  }
}

/** The longest time that WAIT may block its connection, in milliseconds. */
export const WAIT_MS = 1000;
