import { type Clock, pause } from '../process/clock.ts';
import type { RedisNodes } from '../redis/redis.ts';
import { watchedApis } from '../redis/redis-keys.ts';

/** Time between two questions, and between two reports about an API that somebody watches. */
const WATCHED_PERIOD_MS = 1000;
/** Maximum number of APIs that are watched at a time. */
const WATCHED_MAX = 10;

/** The APIs whose usage somebody watches now, so that their counts and refusals are reported each second. */
export class WatchedApis {
  readonly #nodes: RedisNodes;
  readonly #clock: Clock;
  #answer: Promise<ReadonlySet<string>> = Promise.resolve(new Set());
  #askedAtMs = Number.NEGATIVE_INFINITY;

  constructor(nodes: RedisNodes, clock: Clock) {
    this.#nodes = nodes;
    this.#clock = clock;
  }

  /** Asks Redis at most once in a period; none where Redis does not answer. */
  current(): Promise<ReadonlySet<string>> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#askedAtMs >= WATCHED_PERIOD_MS / 2) {
      this.#askedAtMs = nowMs;
      this.#answer = this.#nodes
        .run(watchedApis, (redis) => redis.zrandmember(watchedApis, WATCHED_MAX))
        .then(
          (apiIds) => new Set(apiIds),
          () => new Set(),
        );
    }
    return this.#answer;
  }
}

/**
 * Reports everything once in a period, and meanwhile, each second, the APIs that somebody watches. Ends when `stop`
 * is aborted.
 */
export async function eachPeriod(
  of: {
    readonly clock: Clock;
    readonly periodMs: number;
    readonly watched: WatchedApis | undefined;
    readonly stop: AbortSignal;
  },
  report: (only?: ReadonlySet<string>) => Promise<void>,
): Promise<void> {
  const { clock, periodMs, watched, stop } = of;
  for (let startedAtMs = clock.monotonicMs(); !stop.aborted; ) {
    const dueMs = startedAtMs + periodMs - clock.monotonicMs();
    await pause(clock, Math.max(0, watched ? Math.min(WATCHED_PERIOD_MS, dueMs) : dueMs), stop);
    if (stop.aborted) return;
    if (clock.monotonicMs() - startedAtMs >= periodMs) {
      await report();
      startedAtMs = clock.monotonicMs();
    } else {
      const apiIds = await watched?.current();
      if (apiIds?.size) await report(apiIds);
    }
  }
}
