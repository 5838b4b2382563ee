import { type Clock, pause } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Notices } from './notices.ts';
import type { WatchedFleet } from './watched-fleet.ts';
import type { SenderDuty } from './webhook-sender.ts';

const PERIOD_MS = 2000;
/** Time for which a verifier's report must be missing: Redis may have been away, too, and lost all of them. */
const MISSING_MS = 12_000;

interface FleetWatchOptions {
  readonly fleet: WatchedFleet;
  readonly notices: Notices;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Tells of verifiers that report no more and did not say that they stop. */
export class FleetWatch implements SenderDuty {
  readonly #options: FleetWatchOptions;

  constructor(options: FleetWatchOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    const missingSince = new Map<string, number>();
    while (!signal.aborted) {
      try {
        await this.#look(missingSince);
      } catch (err) {
        missingSince.clear();
        log.debug({ err }, 'cannot look for verifiers that are lost');
      }
      await pause(clock, PERIOD_MS, signal);
    }
  }

  async #look(missingSince: Map<string, number>): Promise<void> {
    const { fleet, notices, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const missing = await fleet.look();
    const ids = new Set(missing.map(({ verifierId }) => verifierId));
    for (const id of missingSince.keys()) if (!ids.has(id)) missingSince.delete(id);
    for (const { verifierId, ...about } of missing) {
      const sinceMs = missingSince.get(verifierId) ?? nowMs;
      missingSince.set(verifierId, sinceMs);
      if (nowMs - sinceMs < MISSING_MS) continue;
      const data = { verifierId, ...about };
      const notice = { type: 'verifier.lost', time: clock.wallMs(), data, mark: verifierId } as const;
      if ((await notices.add([notice])) === 1) await fleet.forget(verifierId);
    }
  }
}
