import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { REFUSALS_KEPT, REFUSALS_KEPT_S, type RefusalRecord } from '#shared/protocol/refusal-records.ts';
import { command } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { refusalsKey, refusedKeysKey, refusedRequestsKey } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { asset } from '../assets.ts';
import type { Entry } from '../core/key-cache.ts';
import type { RefusalLog, RefusedRequest, Verdict } from '../core/verdict.ts';

export const reportRefusals = command(
  asset('redis/lua/report-refusals.lua'),
  ['keys', 'requests', '...names'],
  ['prefix', 'keysKept', 'kept', 'seconds', '...refusals'],
  String,
);

/** Maximum number of refusals that wait for a report, about 300 bytes each. */
const WAITING_MAX = 5000;
/** Maximum number of keys in one call, so that a call does not block Redis for a millisecond. */
const BATCH_KEYS_MAX = 5;
/** Ratio of the pause after each call to the call's duration. Requests are answered during the pause. */
const REST_RATIO = 9;
const ROUTE_LENGTH_MAX = 200;

interface RefusalsOptions {
  readonly nodes: RedisNodes;
  readonly clock: Clock;
  readonly log: Logger;
  /** Id of this process in the fleet's list. */
  readonly verifier: string;
  /** Time between two reports, in milliseconds. */
  readonly periodMs: number;
}

/** The latest refusals of a key. A refusal that finds no room replaces the oldest one. */
interface RefusalRing {
  readonly latest: RefusalRecord[];
  /** Index of the oldest of them. */
  oldest: number;
}

/**
 * Remembers the latest refusals of known keys, and periodically adds them to those in Redis. No request waits for
 * it. What it cannot report it drops: refusals help to find out, and decide nothing.
 */
export class Refusals implements RefusalLog {
  readonly #options: RefusalsOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #waiting = new Map<Entry, RefusalRing>();
  #count = 0;
  /** Refusals that no report contains. */
  dropped = 0;

  constructor(options: RefusalsOptions) {
    this.#options = options;
  }

  note(
    { code, entry, about = entry, isByAddress }: Verdict,
    { requestId, clientIp, route }: RefusedRequest,
  ): void {
    if (about === undefined || code === 'VALID') return;
    let refusals = this.#waiting.get(about);
    if (refusals === undefined) {
      if (this.#count >= WAITING_MAX) return void this.dropped++;
      refusals = { latest: [], oldest: 0 };
      this.#waiting.set(about, refusals);
    }
    const isFull = refusals.latest.length >= REFUSALS_KEPT.ofKey || this.#count >= WAITING_MAX;
    if (!isFull) this.#count++;
    refusals.latest[isFull ? refusals.oldest : refusals.latest.length] = {
      t: this.#options.clock.wallMs(),
      c: code,
      w: isByAddress ? 'ip' : undefined,
      r: requestId,
      v: this.#options.verifier,
      a: clientIp,
      p: route?.slice(0, ROUTE_LENGTH_MAX),
    };
    if (isFull) refusals.oldest = (refusals.oldest + 1) % refusals.latest.length;
  }

  /** Reports until `stop`. */
  run(): void {
    this.#running = this.#report();
  }

  /** Reports the remaining refusals, if Redis can be reached, and stops. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #report(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(this.#options.clock, this.#options.periodMs, this.#stop.signal);
      await this.#flush();
    }
    await this.#flush();
  }

  async #flush(): Promise<void> {
    const waiting = this.#waiting;
    this.#waiting = new Map();
    this.#count = 0;
    const byApi = Map.groupBy(waiting, ([{ epoch }]) => epoch.apiId);
    for (const [apiId, keys] of byApi)
      for (let i = 0; i < keys.length; i += BATCH_KEYS_MAX)
        await this.#send(apiId, keys.slice(i, i + BATCH_KEYS_MAX));
  }

  async #send(apiId: string, keys: readonly (readonly [Entry, RefusalRing])[]): Promise<void> {
    const { nodes, clock, log } = this.#options;
    const refusals = keys.flatMap(([{ keyId }, { latest, oldest }]) => [
      keyId,
      latest.length,
      ...[...latest.slice(oldest), ...latest.slice(0, oldest)].flatMap((record) => [
        record.r,
        JSON.stringify(record),
      ]),
    ]);
    const run = reportRefusals({
      ...{ keys: refusedKeysKey(apiId), requests: refusedRequestsKey(apiId), refusals },
      names: keys.map(([{ keyId }]) => refusalsKey(apiId, keyId)),
      ...{ prefix: refusalsKey(apiId, ''), seconds: REFUSALS_KEPT_S },
      ...{ keysKept: REFUSALS_KEPT.keysOfApi, kept: REFUSALS_KEPT.ofKey },
    });
    const startedAtMs = clock.monotonicMs();
    try {
      const redis = await nodes.connection(refusedKeysKey(apiId));
      await nodes.within(redis, send(redis, run));
      await pause(clock, REST_RATIO * (clock.monotonicMs() - startedAtMs), this.#stop.signal);
    } catch (error) {
      this.dropped += keys.reduce((sum, [, { latest }]) => sum + latest.length, 0);
      log.debug({ err: error, keys: keys.length }, 'refusals were not reported');
    }
  }
}
