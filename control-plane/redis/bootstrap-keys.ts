import { createHash, timingSafeEqual } from 'node:crypto';
import { hashSecret } from '#shared/contract/key-format.ts';
import { type Clock, pause } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { bootstrapAnnouncements } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';

const announceScript = new Script(new URL('./lua/callers/announce-bootstrap.lua', import.meta.url));

const PERIOD_MS = 30_000;
/** An announcement that was not repeated for so long is of a process that is gone. */
const FORGOTTEN_AFTER_MS = 90_000;

/** The root keys of the configuration. Kept as digests; told by ids that do not lead back to them. */
export class BootstrapKeys {
  readonly #keys: readonly { readonly digest: Buffer; readonly id: string }[];

  constructor(keys: readonly string[]) {
    this.#keys = keys.map((key) => ({ digest: Buffer.from(hashSecret(key)), id: idOf(key) }));
  }

  /** In order, each once. */
  get ids(): readonly string[] {
    return [...new Set(this.#keys.map(({ id }) => id))].sort();
  }

  /**
   * The id of the one with this hash; undefined = it is none of them.
   * @param secretHash as `hashSecret` gives it
   */
  idOf(secretHash: string): string | undefined {
    const digest = Buffer.from(secretHash);
    // Every one is compared, in constant time.
    return this.#keys.filter((key) => timingSafeEqual(key.digest, digest))[0]?.id;
  }
}

/** Short, so that it is a name and not a hash to guess the key by; of another input than the hashes that are stored. */
function idOf(key: string): string {
  return `bootstrap_${createHash('sha256').update(`keyfence bootstrap root key ${key}`).digest('hex').slice(0, 8)}`;
}

/**
 * Notices control planes of the same Redis that have other root keys in their configuration: a rotation that is under way,
 * or one that stopped half-way. Each says which it has, and looks at what others said lately.
 */
export class BootstrapWatch {
  readonly #nodes: RedisNodes;
  readonly #ids: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #reportedIds = new Set<string>();
  readonly #stop = new AbortController();
  #differing = 0;

  constructor(nodes: RedisNodes, keys: BootstrapKeys, clock: Clock, log: Logger) {
    this.#nodes = nodes;
    this.#ids = keys.ids.join(',');
    this.#clock = clock;
    this.#log = log;
  }

  /** Number of other sets of root keys that control planes have, as of the last look. */
  get differing(): number {
    return this.#differing;
  }

  /** Looks until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#compare();
      } catch (error) {
        this.#log.debug({ err: error }, 'cannot compare bootstrap root keys with other control planes');
      }
      await pause(this.#clock, PERIOD_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #compare(): Promise<void> {
    const redis = await this.#nodes.connection(bootstrapAnnouncements);
    const nowMs = this.#clock.wallMs();
    const args = [this.#ids, nowMs, nowMs - FORGOTTEN_AFTER_MS];
    const reply = announceScript.run(redis, [bootstrapAnnouncements], args);
    const others = (await this.#nodes.within(redis, reply)) as string[];
    this.#differing = others.length;
    for (const ids of others) {
      if (this.#reportedIds.has(ids)) continue;
      this.#reportedIds.add(ids);
      this.#log.warn(
        { ours: this.#ids.split(','), theirs: ids.split(',') },
        'another control plane has other bootstrap root keys: right during a rotation only',
      );
    }
    for (const reportedIds of this.#reportedIds)
      if (!others.includes(reportedIds)) this.#reportedIds.delete(reportedIds);
  }
}
