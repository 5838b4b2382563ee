import { readFileSync } from 'node:fs';
import type { ChainableCommander, Redis } from 'ioredis';

type Argument = string | number;

/** One Lua file, run atomically by Redis. */
export class Script {
  readonly #name: string;
  readonly #lua: string;

  /** @param file the script's location, usually `new URL('./lua/name.lua', import.meta.url)` */
  constructor(file: URL) {
    this.#name = `kf:${file.pathname.split('/').at(-1) ?? ''}`;
    this.#lua = readFileSync(file, 'utf8');
  }

  /** Runs it by its hash; where Redis does not know it yet, ioredis sends it whole once. */
  run(redis: Redis, keys: readonly string[], args: readonly Argument[]): Promise<unknown> {
    const commands = redis as unknown as Record<
      string,
      ((...all: Argument[]) => Promise<unknown>) | undefined
    >;
    if (!commands[this.#name]) redis.defineCommand(this.#name, { lua: this.#lua });
    const command = commands[this.#name];
    if (!command) throw new Error(`script ${this.#name} was not defined`);
    return command.call(redis, keys.length, ...keys, ...args);
  }

  /**
   * Runs it on a connection of its own kind and waits on that connection until `replicas` hold what it wrote.
   * Sent whole: by hash, an unknown script would be sent again *after* the WAIT.
   * @returns the script's reply and how many replicas confirmed within `waitMs`
   */
  async runAndWait(
    redis: Redis,
    keys: readonly string[],
    args: readonly Argument[],
    replicas: number,
    waitMs: number,
  ): Promise<{ reply: unknown; confirmed: number }> {
    const pipeline: ChainableCommander = redis.pipeline();
    pipeline.eval(this.#lua, keys.length, ...keys, ...args);
    pipeline.wait(replicas, waitMs);
    const [script, wait] = (await pipeline.exec()) ?? [];
    if (!script || script[0]) throw script?.[0] ?? new Error('the pipeline was not executed');
    return { reply: script[1], confirmed: wait && !wait[0] ? Number(wait[1]) : 0 };
  }
}

/** The longest that WAIT may hold its connection, milliseconds. */
export const WAIT_MS = 1000;
