import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ChainableCommander, Redis } from 'ioredis';

type Argument = string | number;

/** The keys and arguments of one run of a script. */
export interface ScriptCall {
  readonly keys: readonly string[];
  readonly args: readonly Argument[];
}

/** One Lua file, run atomically by Redis. */
export class Script {
  readonly #lua: string;
  readonly #sha: string;
  /** Connections over which `runAll` has brought it to the server. */
  readonly #holders = new WeakSet<Redis>();

  /**
   * @param file the script's location, usually `new URL('./lua/name.lua', import.meta.url)`. A line `-- include name.lua`
   * in it stands for the file at that path from there.
   */
  constructor(file: URL) {
    this.#lua = readFileSync(file, 'utf8').replace(/^-- include (\S+)$/gm, (_line, name: string) =>
      readFileSync(new URL(name, file), 'utf8').trimEnd(),
    );
    this.#sha = hash('sha1', this.#lua);
  }

  /** Runs it by its hash; sends it whole where Redis did not know it, and so did nothing. Cheaper than `defineCommand`. */
  run(redis: Redis, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    return redis.evalsha(this.#sha, keys.length, ...keys, ...args).catch((error: Error) => {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return redis.eval(this.#lua, keys.length, ...keys, ...args);
    });
  }

  /**
   * Runs it on a connection of its own kind and waits on that connection until `replicas` hold what it wrote.
   * @returns the script's reply and how many replicas confirmed within `waitMs`
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
   * As `runAndWait`, once for each call, in one round trip. Rejects with the first call's error when any failed; the
   * others may have been executed. With 0 replicas nothing is waited for.
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
      // The first brings the script along: by hash, an unknown script would be sent again *after* the WAIT.
      if (i === 0 && !isThere) pipeline.eval(this.#lua, keys.length, ...keys, ...args);
      else pipeline.evalsha(this.#sha, keys.length, ...keys, ...args);
    }
    if (replicas > 0) pipeline.wait(replicas, waitMs);
    const results = (await pipeline.exec()) ?? [];
    if (isThere && results.slice(0, calls.length).every(([error]) => error?.message.startsWith('NOSCRIPT'))) {
      // Somebody made Redis forget it, and so none was executed.
      this.#holders.delete(redis);
      return this.runAll(redis, calls, replicas, waitMs);
    }
    const replies = results.slice(0, calls.length).map(([error, reply]) => {
      if (error) throw error;
      return reply;
    });
    if (replies.length < calls.length) throw new Error('the pipeline was not executed');
    this.#holders.add(redis);
    const wait = results[calls.length];
    return { replies, confirmed: wait && !wait[0] ? Number(wait[1]) : 0 };
  }
}

/** The longest that WAIT may hold its connection, milliseconds. */
export const WAIT_MS = 1000;
