import { type Clock, pause } from '#shared/clock.ts';
import { apiList } from '#shared/layout.ts';
import type { Logger } from '#shared/log.ts';
import type { RedisNodes } from '#shared/redis.ts';

const PERIOD_MS = 30_000;
const RETRY_MS = 500;
/** Oldest major version of Redis that has all that the scripts use. */
export const REDIS_MAJOR_MIN = 7;

/**
 * Looks at what Redis is set up to keep, at start and every 30 s, and says so in the log when it changes.
 * It decides nothing but what `durable` in our answers may claim.
 */
export class RedisPromises {
  readonly #nodes: RedisNodes;
  readonly #replicas: number;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  #faults: string | undefined;
  /** Whether Redis ever answered; once true it stays so. */
  reached = false;
  /** Whether it answered the last look. */
  answering = false;
  durable = false;

  constructor(nodes: RedisNodes, replicas: number, clock: Clock, log: Logger) {
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#clock = clock;
    this.#log = log;
  }

  /** Looks until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#look();
        this.answering = true;
        await pause(this.#clock, PERIOD_MS, this.#stop.signal);
      } catch (error) {
        this.answering = false;
        this.#log.debug({ err: error }, 'waiting for Redis');
        await pause(this.#clock, RETRY_MS, this.#stop.signal);
      }
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #look(): Promise<void> {
    const { version, settings, syncs } = await lookAtRedis(this.#nodes);
    const faults: string[] = [];
    if (Number.parseInt(version, 10) < REDIS_MAJOR_MIN)
      faults.push(`Redis ${version} is too old: ${REDIS_MAJOR_MIN} is needed`);
    if (settings.size === 0)
      faults.push('CONFIG GET is not permitted, so nothing is known of its persistence');
    else if (!syncs)
      faults.push('a crash can lose acknowledged writes: set `appendonly yes` and `appendfsync always`');
    this.durable = this.#replicas > 0 || syncs;
    this.reached = true;
    const said = faults.join('; ');
    if (said === this.#faults) return;
    this.#faults = said;
    if (said) this.#log.warn({ durable: this.durable }, said);
    else
      this.#log.info({ durable: this.durable, replicas: this.#replicas }, 'Redis keeps what it acknowledges');
  }
}

/** What Redis is, and how it is set up; no settings where it does not let us see them. */
interface RedisFacts {
  readonly version: string;
  readonly settings: ReadonlyMap<string, string>;
  /** Whether every write is on disk before it is acknowledged. */
  readonly syncs: boolean;
}

/** Asks the Redis that holds the list of APIs. */
export async function lookAtRedis(nodes: RedisNodes): Promise<RedisFacts> {
  const redis = await nodes.connection(apiList);
  const info = await nodes.within(redis, redis.info('server'));
  const version = /redis_version:(\S+)/.exec(info)?.[1] ?? '0';
  const settings = await nodes
    .within(redis, redis.config('GET', 'append*', 'maxmemory*', 'min-replicas-*'))
    .then((flat) => new Map(pairs(flat as string[])))
    .catch(() => new Map<string, string>());
  const syncs = settings.get('appendonly') === 'yes' && settings.get('appendfsync') === 'always';
  return { version, settings, syncs };
}

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let i = 0; i + 1 < flat.length; i += 2) yield [flat[i] ?? '', flat[i + 1] ?? ''];
}
