import { createHash, timingSafeEqual } from 'node:crypto';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { command, list } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { BOOTSTRAP_FORGOTTEN_MS, bootstrapAnnouncements } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { hashSecret } from '#shared/rules/key-format.ts';

export const announceBootstrap = command(
  new URL('./announce-bootstrap.lua', import.meta.url),
  ['announcements'],
  ['own', 'now', 'since'],
  list,
);

const PERIOD_MS = 30_000;

/** The root keys of the configuration. Only digests are kept; the ids do not reveal the keys. */
export class BootstrapKeys {
  /** The keys' hashes, as `hashSecret` returns them, and their ids. */
  readonly all: readonly { readonly secretHash: string; readonly id: string }[];

  constructor(keys: readonly string[]) {
    this.all = keys.map((key) => ({ secretHash: hashSecret(key), id: idOf(key) }));
  }

  /** The ids, sorted and without duplicates. */
  get ids(): readonly string[] {
    return [...new Set(this.all.map(({ id }) => id))].sort();
  }

  /**
   * The id of the root key with this hash; undefined = the configuration has no such key.
   * @param secretHash as `hashSecret` returns it
   */
  idOf(secretHash: string): string | undefined {
    const digest = Buffer.from(secretHash);
    // Compare all of them, each in constant time.
    return this.all.filter((key) => timingSafeEqual(Buffer.from(key.secretHash), digest))[0]?.id;
  }
}

/**
 * The id is short, so that it cannot serve to guess the key, and it hashes another input than the stored
 * hashes.
 */
function idOf(key: string): string {
  return `bootstrap_${createHash('sha256').update(`keyfence bootstrap root key ${key}`).digest('hex').slice(0, 8)}`;
}

/**
 * Detects control planes on the same Redis with other root keys in their configuration: a rotation that is
 * under way, or one that stopped half-way. Each control plane announces the ids of its keys and reads the
 * recent announcements of the others.
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

  /** Number of differing sets of root keys that the last comparison found. */
  get differing(): number {
    return this.#differing;
  }

  /** Compares until `stop`; never rejects. */
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

  /**
   * Announces the ids, and resolves with the recent announcements of others, each with its ids separated by commas.
   */
  async exchange(): Promise<readonly string[]> {
    const redis = await this.#nodes.connection(bootstrapAnnouncements);
    const nowMs = this.#clock.wallMs();
    const times = { now: nowMs, since: nowMs - BOOTSTRAP_FORGOTTEN_MS };
    const run = announceBootstrap({ announcements: bootstrapAnnouncements, own: this.#ids, ...times });
    return this.#nodes.within(redis, send(redis, run));
  }

  async #compare(): Promise<void> {
    const others = await this.exchange();
    this.#differing = others.length;
    for (const ids of others) {
      if (this.#reportedIds.has(ids)) continue;
      this.#reportedIds.add(ids);
      this.#log.warn(
        { ours: this.#ids.split(','), theirs: ids.split(',') },
        'another control plane has other bootstrap root keys: expected only during a rotation',
      );
    }
    for (const reportedIds of this.#reportedIds)
      if (!others.includes(reportedIds)) this.#reportedIds.delete(reportedIds);
  }
}
