import type { Clock } from '../../process/clock.ts';
import { unavailable } from '../../rules/errors.ts';
import type { NewCompanion } from './companion.ts';
import { Follower, type FollowerEvents, type FollowerLimits } from './follower.ts';
import type { Memory } from './key-cache.ts';
import type { Directory } from './source.ts';

/** The limits of all followers together. */
export interface FollowersLimits extends FollowerLimits {
  readonly apisMax: number;
  /** Time without a question after which an API that was not configured is left, in milliseconds. */
  readonly apiIdleMs: number;
}

/** Dependencies and limits of followers. */
export interface FollowersOptions {
  readonly directory: Directory;
  readonly companion: NewCompanion;
  readonly clock: Clock;
  readonly newNonce: () => string;
  /** Returns a number from 0 to below 1, for jitter and backoff. */
  readonly random?: () => number;
  readonly limits: FollowersLimits;
  /** Name of the region of this process; '' or undefined = none. */
  readonly region?: string;
  /** Empty = all. */
  readonly apiIds: readonly string[];
  readonly events: (apiId: string) => FollowerEvents;
}

/** The followers of a verifier, one for each API that it answers for. */
export class Followers {
  readonly #options: FollowersOptions;
  readonly #apiIds: ReadonlySet<string>;
  readonly #keys: Memory;
  readonly #all = new Map<string, { follower: Follower; idleSinceMs: number }>();
  #idleCheck: { cancel(): void } | undefined;
  #isStopped = false;
  /**
   * The follower of the API that probably has the next key to look up. A follower finds and reads a key in
   * one step at Redis.
   */
  likely: Follower | undefined;

  /** @param keys memory that the followers keep up to date */
  constructor(options: FollowersOptions, keys: Memory) {
    this.#options = options;
    this.#apiIds = new Set(options.apiIds);
    this.#keys = keys;
  }

  get all(): Follower[] {
    return [...this.#all.values()].map(({ follower }) => follower);
  }

  /** Starts to follow the configured APIs. */
  start(): void {
    for (const apiId of this.#apiIds) this.follow(apiId);
    this.#checkIdle();
  }

  /** Leaves every API. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#idleCheck?.cancel();
    await Promise.all(this.all.map((follower) => follower.stop()));
  }

  /** Returns true if this verifier answers for an API. */
  serves(apiId: string): boolean {
    return this.#apiIds.size === 0 || this.#apiIds.has(apiId);
  }

  /** Returns the follower of an API that is followed already. */
  present(apiId: string): Follower | undefined {
    return this.#all.get(apiId)?.follower;
  }

  /**
   * Returns the follower of an API; starts it if necessary. Throws SERVICE_UNAVAILABLE if there are too many.
   */
  follow(apiId: string): Follower {
    const present = this.#all.get(apiId);
    if (present) return present.follower;
    const { limits, clock } = this.#options;
    if (this.#all.size >= limits.apisMax) throw unavailable('this verifier follows too many APIs');
    const follower = this.begin(apiId, this.#keys);
    this.likely ??= follower;
    this.#all.set(apiId, { follower, idleSinceMs: clock.monotonicMs() });
    return follower;
  }

  /**
   * Starts a follower outside this collection, which keeps `memory` up to date. Throws SERVICE_UNAVAILABLE
   * after `stop`.
   */
  begin(apiId: string, memory: Memory): Follower {
    if (this.#isStopped) throw unavailable('shutting down');
    const { directory, companion, clock, newNonce, random = Math.random } = this.#options;
    const { limits, region, events } = this.#options;
    const follower = new Follower({
      ...{ apiId, directory, companion, cache: memory, clock, newNonce, random, limits, region },
      events: events(apiId),
    });
    void follower.run();
    return follower;
  }

  /** Leaves the APIs that were not configured and had no question during `apiIdleMs`. */
  #checkIdle(): void {
    const { limits, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    for (const [apiId, record] of this.#all) {
      if (record.follower.takeUsed()) record.idleSinceMs = nowMs;
      if (this.#apiIds.has(apiId) || nowMs - record.idleSinceMs < limits.apiIdleMs) continue;
      this.#all.delete(apiId);
      void record.follower.stop();
    }
    this.#idleCheck = clock.after(limits.apiIdleMs / 10, () => this.#checkIdle());
  }
}
