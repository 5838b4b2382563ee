import { hostname } from 'node:os';
import { asset } from '../assets.ts';
import { type Clock, pause } from '../process/clock.ts';
import type { Logger } from '../process/log.ts';
import type { Follower } from '../protocol/follower/follower.ts';
import { PROTOCOL } from '../protocol/records/protocol.ts';
import {
  APIS_LISTED_MAX,
  type FollowedApi,
  type Following,
  STOPPED_REPORT,
  STOPPED_REPORT_MS,
  type VerifierStatus,
} from '../protocol/records/verifier-status.ts';
import { command } from '../redis/command.ts';
import type { RedisNodes } from '../redis/redis.ts';
import { verifierIds, verifierStatus } from '../redis/redis-keys.ts';
import { send } from '../redis/script.ts';
import { clockOffMs } from '../redis/server-facts.ts';
import { VERSION } from '../version.ts';
import type { ReportedVerifier } from './port.ts';
import type { Usage } from './usage-report.ts';

export const reportStatus = command(
  asset('shared/reports/report-status.lua'),
  ['ids', 'report'],
  ['own', 'text', 'ms', 'reports'],
  Number,
);

/**
 * Number of periods after which a report expires, so that one lost write does not remove a verifier from the
 * list.
 */
const PERIODS_KEPT = 3;

/** Subject and period of the report. */
interface StatusOptions {
  readonly nodes: RedisNodes;
  readonly verifier: ReportedVerifier;
  readonly verdicts: () => Pick<VerifierStatus, 'verdicts' | 'codes'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly periodMs: number;
  readonly settings: NonNullable<VerifierStatus['settings']>;
  /** Returns when the first certificate of the listeners ends, Unix milliseconds; undefined = they have none. */
  readonly certificateEnds: () => number | undefined;
  /** '' = none. */
  readonly region: string;
  /** undefined = no usage is counted. */
  readonly usage: Pick<Usage, 'extent'> | undefined;
}

/** A report about this verifier in the fleet's list. No change and no verdict waits for it. */
export class StatusReport {
  readonly #options: StatusOptions;
  readonly #startedAt: number;
  /** Id of this process in the list of verifiers. */
  readonly id: string;
  readonly #stop = new AbortController();
  #reportedLossMs: number | undefined;
  /** Time by which this process's clock was ahead of that of Redis at the last report, milliseconds; 0 = not known. */
  clockOffMs = 0;
  #roundTripMs = 0;

  constructor(options: StatusOptions) {
    this.#options = options;
    this.#startedAt = options.clock.wallMs();
    this.id = options.verifier.id;
  }

  /** Reports until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#attempt('report', () => this.#report());
      await pause(this.#options.clock, this.#options.periodMs, this.#stop.signal);
    }
  }

  /**
   * Removes this verifier from the list, if Redis can be reached, and leaves a word that it was not lost; unless it lost usage
   * of which it has not reported.
   */
  async stop(): Promise<void> {
    this.#stop.abort();
    if (this.#options.usage?.extent.lostMs !== this.#reportedLossMs) return;
    await this.#attempt('leave the list', async () => {
      await this.#options.nodes.run(verifierIds, (redis) =>
        redis.set(verifierStatus(this.id), STOPPED_REPORT, 'PX', STOPPED_REPORT_MS),
      );
      await this.#options.nodes.run(verifierIds, (redis) => redis.zrem(verifierIds, this.id));
    });
  }

  async #report(): Promise<void> {
    const status = this.#status();
    const run = reportStatus({
      ...{ ids: verifierIds, report: verifierStatus(this.id), reports: verifierStatus('') },
      ...{ own: this.id, text: JSON.stringify(status), ms: PERIODS_KEPT * this.#options.periodMs },
    });
    const { clock, nodes } = this.#options;
    const [askedAt, askedAtMs] = [clock.wallMs(), clock.monotonicMs()];
    const timeMs = await nodes.run(verifierIds, (redis) => send(redis, run));
    const tookMs = clock.monotonicMs() - askedAtMs;
    this.#roundTripMs = Math.round(tookMs * 10) / 10;
    this.clockOffMs = clockOffMs(askedAt, tookMs, timeMs) ?? this.clockOffMs;
    this.#reportedLossMs = status.usage?.lostMs;
  }

  #status(): VerifierStatus {
    const { verifier, usage, region } = this.#options;
    const { followers, cache, sharedLog } = verifier;
    const certificateEnds = this.#options.certificateEnds();
    const apis = followers
      .map((each) => ({ apiId: each.apiId, ...standingOf(each) }))
      .sort(worstFirst)
      .slice(0, APIS_LISTED_MAX);
    return {
      id: this.id,
      host: hostname(),
      version: VERSION,
      protocol: PROTOCOL,
      startedAt: this.#startedAt,
      reportedAt: this.#options.clock.wallMs(),
      ...this.#options.verdicts(),
      keysInMemory: cache.size,
      settings: this.#options.settings,
      clockOffMs: this.clockOffMs,
      ...(region ? { region } : {}),
      roundTripMs: this.#roundTripMs,
      ...(certificateEnds === undefined ? {} : { certificateEnds }),
      ...(usage ? { usage: usage.extent } : {}),
      apis,
      apisNotShown: followers.length - apis.length,
      ...(sharedLog ? { sharedLog: standingOf(sharedLog) } : {}),
    };
  }

  async #attempt(apis: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.debug({ err: error }, `the verifier could not ${apis}`);
    }
  }
}

function standingOf(follower: Follower): Following {
  const { member, position, lag, leaseRemainingMs, needsNoLease, withheldAtMs } = follower;
  const state = follower.canAnswer || needsNoLease ? 'live' : follower.live ? 'lapsed' : 'joining';
  const withheld = withheldAtMs === undefined ? {} : { tokensWithheldAt: withheldAtMs };
  return { member, state, position, lag, leaseRemainingMs: Math.round(leaseRemainingMs), ...withheld };
}

const worstFirst = (a: FollowedApi, b: FollowedApi) =>
  Number(a.state === 'live') - Number(b.state === 'live') ||
  b.lag - a.lag ||
  a.leaseRemainingMs - b.leaseRemainingMs;
