import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { STOPPED_REPORT, type VerifierStatus } from '#shared/protocol/records/verifier-status.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { usageLoss, verifierStatus, watchedVerifiers } from '#shared/redis/redis-keys.ts';
import type { NoticeSink } from '../../core/ports.ts';
import type { FleetView } from '../fleet/fleet.ts';
import type { Duty } from './duty.ts';

const PAGE = 100;

/** A verifier that reports no more. */
export interface MissingVerifier {
  readonly verifierId: string;
  readonly host: string;
  readonly version: string;
  readonly lastReportedAt: number;
}

/** The verifiers that reported at some time and neither stopped nor were counted as lost since. */
export class WatchedFleet {
  readonly #nodes: RedisNodes;
  readonly #fleet: FleetView;
  /** When each verifier reported last, as far as this process saw it. */
  readonly #lastReports = new Map<string, number>();

  constructor(nodes: RedisNodes, fleet: FleetView) {
    this.#nodes = nodes;
    this.#fleet = fleet;
  }

  /**
   * Returns the time until which the usage of all keys is known: every verifier that may answer has reported what it counted
   * before; and when usage was last lost. Unix milliseconds; 0 = not known, or never.
   */
  async usageExtent(): Promise<{ readonly untilMs: number; readonly lostMs: number }> {
    const { missing, reporting } = await this.look();
    const isKnown = missing.length === 0 && reporting.length > 0;
    const untilMs = isKnown ? Math.min(...reporting.map(({ usage }) => usage?.untilMs ?? 0)) : 0;
    return { untilMs, lostMs: await this.#lostMs() };
  }

  /** Notes that usage was lost. */
  async noteLoss(atMs: number): Promise<void> {
    if (atMs > (await this.#lostMs()))
      await this.#nodes.run(usageLoss, (redis) => redis.set(usageLoss, String(atMs)));
  }

  async #lostMs(): Promise<number> {
    return Number(await this.#nodes.run(usageLoss, (redis) => redis.get(usageLoss)));
  }

  /** Remembers the verifiers that report now; returns them, and those that did and do no more. */
  async look(): Promise<{
    readonly missing: readonly MissingVerifier[];
    readonly reporting: readonly VerifierStatus[];
  }> {
    const reporting = new Map<string, VerifierStatus>();
    for (let after: string | undefined = ''; after !== undefined; ) {
      const page = await this.#fleet.list(after, PAGE);
      for (const status of page.verifiers) reporting.set(status.id, status);
      after = page.next;
    }
    const lossMs = Math.max(0, ...[...reporting.values()].map(({ usage }) => usage?.lostMs ?? 0));
    if (lossMs > 0) await this.noteLoss(lossMs);
    const before = await this.#nodes.run(watchedVerifiers, (redis) => redis.hgetall(watchedVerifiers));
    for (const { id, reportedAt } of reporting.values()) this.#lastReports.set(id, reportedAt);
    const fields = [...reporting.values()].flatMap(({ id, host, version, reportedAt }) =>
      id in before ? [] : [id, JSON.stringify({ host, version, lastReportedAt: reportedAt })],
    );
    if (fields.length > 0)
      await this.#nodes.run(watchedVerifiers, (redis) => redis.hset(watchedVerifiers, ...fields));
    const silent = Object.keys(before).filter((id) => !reporting.has(id));
    if (silent.length === 0) return { missing: [], reporting: [...reporting.values()] };
    const reports = await this.#nodes.run(verifierStatus(''), (redis) =>
      redis.mget(silent.map(verifierStatus)),
    );
    const stopped = silent.filter((_id, i) => reports[i] === STOPPED_REPORT);
    for (const id of stopped) await this.forget(id);
    const missing = silent.flatMap((verifierId, i) => {
      if (reports[i] !== null) return [];
      const about = JSON.parse(before[verifierId] ?? '{}') as Omit<MissingVerifier, 'verifierId'>;
      const lastReportedAt = this.#lastReports.get(verifierId) ?? about.lastReportedAt;
      return [{ verifierId, ...about, lastReportedAt }];
    });
    return { missing, reporting: [...reporting.values()] };
  }

  /** Watches a verifier no longer. */
  async forget(verifierId: string): Promise<void> {
    await this.#nodes.run(watchedVerifiers, (redis) => redis.hdel(watchedVerifiers, verifierId));
    this.#lastReports.delete(verifierId);
  }
}

const PERIOD_MS = 2000;
/** Time for which a verifier's report must be missing: Redis may have been away, too, and lost all of them. */
const MISSING_MS = 12_000;

interface FleetWatchOptions {
  readonly fleet: WatchedFleet;
  readonly notices: NoticeSink;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Tells of verifiers that report no more and did not say that they stop. */
export class FleetWatch implements Duty {
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
    const { missing } = await fleet.look();
    const ids = new Set(missing.map(({ verifierId }) => verifierId));
    for (const id of missingSince.keys()) if (!ids.has(id)) missingSince.delete(id);
    for (const { verifierId, ...about } of missing) {
      const sinceMs = missingSince.get(verifierId) ?? nowMs;
      missingSince.set(verifierId, sinceMs);
      if (nowMs - sinceMs < MISSING_MS) continue;
      // With it went what it had counted and not reported. What it accepted while it was cut off, it did within its leases.
      await fleet.noteLoss(clock.wallMs());
      const data = { verifierId, ...about };
      const notice = { type: 'verifier.lost', time: clock.wallMs(), data, mark: verifierId } as const;
      if ((await notices.add([notice])) === 1) await fleet.forget(verifierId);
    }
  }
}
