import { type Clock, pause } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Apis } from '../apis/apis.ts';
import { DUE_AT_ONCE, type DueInApi, type DueKeys } from './due-keys.ts';
import { dueEvent } from './expiry-schedule.ts';
import type { Notice, Notices } from './notices.ts';
import type { SenderDuty } from './webhook-sender.ts';

/** APIs that are visited in each period, so that any number of them costs no more. */
const VISITED_AT_ONCE = 200;
const PERIOD_MS = 1000;
/** Pages of due keys of one API in a row, before other APIs have their turn. */
const PAGES_MAX = 50;

interface DueWatchOptions {
  readonly apis: Pick<Apis, 'ids'>;
  readonly dueKeys: DueKeys;
  readonly notices: Notices;
  /** Days before the expiry of a key at which an event is sent. */
  readonly leads: readonly number[];
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Tells of keys that expire, and of credits that ran out. Visits 200 APIs a second, and costs in each what is due
 * there.
 */
export class DueWatch implements SenderDuty {
  readonly #options: DueWatchOptions;

  constructor(options: DueWatchOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { apis, clock, log } = this.#options;
    for (let after = ''; !signal.aborted; ) {
      try {
        const apiIds = await apis.ids(after, VISITED_AT_ONCE);
        after = apiIds.length === VISITED_AT_ONCE ? (apiIds.at(-1) ?? '') : '';
        for (const apiId of apiIds) {
          if (signal.aborted) return;
          // In a Cluster, the node of one API may be away, and those of others not.
          await this.#visit(apiId, signal).catch((err: unknown) => {
            log.debug({ err, apiId }, 'cannot look for keys that expire');
          });
        }
      } catch (err) {
        log.debug({ err }, 'cannot list APIs to look for keys that expire');
      }
      await pause(clock, PERIOD_MS, signal);
    }
  }

  async #visit(apiId: string, signal: AbortSignal): Promise<void> {
    const { dueKeys, clock } = this.#options;
    for (let pages = 0; pages < PAGES_MAX && !signal.aborted; pages++) {
      const due = await dueKeys.read(apiId, clock.wallMs());
      if (!due) return;
      const isSettled = await this.#tell(apiId, due);
      if (due.keys.length < DUE_AT_ONCE || !isSettled) return;
    }
  }

  /** Returns false if there was no room for all notices; then the others stay due. */
  async #tell(apiId: string, { keys, pools }: DueInApi): Promise<boolean> {
    const { notices, dueKeys, leads, clock } = this.#options;
    const nowMs = clock.wallMs();
    const scheduled = keys.map((key) => {
      const { days, nextMs } = key.expiresMs > 0 ? dueEvent(key, leads, nowMs) : {};
      const { dueMs: _, expiresMs: expires, ...named } = key;
      const data = { apiId, ...named, expires, ...(days ? { days } : {}) };
      const type = days === 0 ? 'key.expired' : 'key.expiring';
      const time = days === 0 ? expires : nowMs;
      const mark = `${named.keyId}-${expires}-${days}`;
      return { key, nextMs, notice: days === undefined ? undefined : ({ type, time, data, mark } as const) };
    });
    const spent = pools.map((pool) => ({
      pool,
      ofKeys: pool.keys.map((named): Notice & { mark: string } => ({
        type: 'key.credits_exhausted',
        time: pool.sinceMs,
        data: { apiId, ...named, exhaustedAt: pool.sinceMs },
        mark: `${named.keyId}-${pool.poolId}-${pool.sinceMs}`,
      })),
    }));
    const all = [
      ...scheduled.flatMap(({ notice }) => notice ?? []),
      ...spent.flatMap(({ ofKeys }) => ofKeys),
    ];
    if ((await notices.add(all)) < all.length) return false;
    const settled = scheduled.map(({ key, nextMs }) => ({ ...key, nextMs }));
    await dueKeys.settle(apiId, settled, pools);
    return true;
  }
}
