import { asset } from '../assets.ts';
import { type Clock, pause } from '../process/clock.ts';
import type { Logger } from '../process/log.ts';
import type { Entry } from '../protocol/follower/key-cache.ts';
import type { LimitRequirement } from '../protocol/records/limits-in-memory.ts';
import {
  MISSING_LENGTH_MAX,
  QUESTION_JSON_MAX,
  REFUSALS_KEPT,
  REFUSALS_KEPT_S,
  type RefusalCause,
  type RefusalRecord,
  type RefusedQuestion,
} from '../protocol/records/refusal-records.ts';
import { command } from '../redis/command.ts';
import type { RedisNodes } from '../redis/redis.ts';
import { latestRefusalsKey, refusalsKey, refusedKeysKey, refusedRequestsKey } from '../redis/redis-keys.ts';
import { send } from '../redis/script.ts';
import { queryText, slugsIn } from '../rules/permission-query.ts';
import { notedFacts, presenterOf } from '../rules/presenter.ts';
import type { RefusedRequest, ReportedQuestion, ReportedVerdict } from './port.ts';
import { eachPeriod, type WatchedApis } from './watched-apis.ts';

export const reportRefusals = command(
  asset('shared/reports/report-refusals.lua'),
  ['keys', 'requests', 'latest', '...names'],
  ['prefix', 'keysKept', 'kept', 'latestKept', 'seconds', '...refusals'],
  String,
);

/** Maximum number of refusals that wait for a report, about 300 bytes each. */
export const WAITING_MAX = 5000;
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
  /** Absent = only once in a period. */
  readonly watched?: WatchedApis | undefined;
}

/** A refusal as the verifier holds it until its report: a flood of refusals writes no texts. */
interface NotedRefusal {
  readonly timeMs: number;
  readonly verdict: ReportedVerdict;
  readonly question: ReportedQuestion;
  readonly request: RefusedRequest;
  /** The key's effective permissions and its expiry at that time. */
  readonly slugSet: ReadonlySet<string> | undefined;
  readonly expires: number;
}

/** The latest refusals of a key. A refusal that finds no room replaces the oldest one. */
interface RefusalRing {
  readonly latest: NotedRefusal[];
  /** Index of the oldest of them. */
  oldest: number;
}

/**
 * Remembers the latest refusals of known keys, and periodically adds them to those in Redis. No request waits for
 * it. What it cannot report it drops: refusals help to find out, and decide nothing.
 */
export class Refusals {
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

  /** Notes the verdict on a question, if it refuses a known key. */
  note(
    verdict: ReportedVerdict,
    { apiId, presenter, requirements }: ReportedQuestion,
    request: RefusedRequest,
  ): void {
    const { code, entry, about = entry, effectivePermissions } = verdict;
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
      timeMs: this.#options.clock.wallMs(),
      ...{ verdict, request, question: { apiId, presenter: presenterOf(presenter), requirements } },
      slugSet: (effectivePermissions ?? about.ownPermissions)?.slugSet,
      expires: about.expires,
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
    const { clock, periodMs, watched } = this.#options;
    await eachPeriod({ clock, periodMs, watched, stop: this.#stop.signal }, (only) => this.#flush(only));
    await this.#flush();
  }

  /** @param only the APIs that are reported; undefined = all */
  async #flush(only?: ReadonlySet<string>): Promise<void> {
    const byApi = Map.groupBy(this.#waiting, ([{ epoch }]) => epoch.apiId);
    const isNow = ([apiId]: readonly [string, unknown]) => only === undefined || only.has(apiId);
    const others = [...byApi].filter((api) => !isNow(api)).flatMap(([, keys]) => keys);
    this.#waiting = new Map(others);
    this.#count = others.reduce((sum, [, { latest }]) => sum + latest.length, 0);
    for (const [apiId, keys] of [...byApi].filter(isNow))
      for (let i = 0; i < keys.length; i += BATCH_KEYS_MAX)
        await this.#send(apiId, keys.slice(i, i + BATCH_KEYS_MAX));
  }

  async #send(apiId: string, keys: readonly (readonly [Entry, RefusalRing])[]): Promise<void> {
    const { nodes, clock, log } = this.#options;
    const refusals = keys.flatMap(([{ keyId }, { latest, oldest }]) => [
      keyId,
      latest.length,
      ...[...latest.slice(oldest), ...latest.slice(0, oldest)].flatMap((noted) => [
        noted.request.requestId,
        JSON.stringify(recordOf(noted, this.#options.verifier)),
      ]),
    ]);
    const run = reportRefusals({
      ...{ keys: refusedKeysKey(apiId), requests: refusedRequestsKey(apiId), refusals },
      latest: latestRefusalsKey(apiId),
      names: keys.map(([{ keyId }]) => refusalsKey(apiId, keyId)),
      ...{ prefix: refusalsKey(apiId, ''), seconds: REFUSALS_KEPT_S },
      ...{ keysKept: REFUSALS_KEPT.keysOfApi, kept: REFUSALS_KEPT.ofKey, latestKept: REFUSALS_KEPT.ofApi },
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

function recordOf(noted: NotedRefusal, verifier: string): RefusalRecord {
  const { timeMs, verdict, question, request } = noted;
  const parts = questionOf(question);
  return {
    t: timeMs,
    c: verdict.code,
    w: verdict.rule,
    r: request.requestId,
    v: verifier,
    ...notedFacts(question.presenter),
    p: request.route?.slice(0, ROUTE_LENGTH_MAX),
    q: JSON.stringify(parts).length > QUESTION_JSON_MAX ? undefined : parts,
    d: causeOf(noted),
  };
}

const questionOf = ({
  apiId,
  requirements: { permissions, cost, limits },
}: ReportedQuestion): RefusedQuestion => ({
  ...(apiId === undefined ? {} : { apiId }),
  ...(permissions === undefined ? {} : { permissions: queryText(permissions) }),
  ...(cost === 1 ? {} : { cost }),
  ...(limits.length === 0 ? {} : { ratelimits: limits.map(limitIn) }),
});

const limitIn = ({ name, cost, own }: LimitRequirement) => ({
  ...{ name, cost },
  ...(own ? { limit: own.limit, duration: own.durationMs } : {}),
});

function causeOf({ verdict, question, slugSet, expires }: NotedRefusal): RefusalCause | undefined {
  const { code, rule, spending, effectivePermissions } = verdict;
  const { requirements } = question;
  if (rule === 'permissions') return { missingPermissions: missingIn(requirements, slugSet) };
  if (rule === 'expires') return { expires };
  if (rule === 'identity') return { externalId: effectivePermissions?.identity?.externalId ?? '' };
  if (code === 'USAGE_EXCEEDED')
    return { credits: { remaining: spending?.remaining ?? 0, cost: requirements.cost } };
  const place = spending?.places?.find((each) => each.exceeded)?.limit;
  if (place) return { concurrency: { name: place.name, limit: place.limit } };
  const exceeded = spending?.limits?.find((each) => each.exceeded);
  if (exceeded === undefined) return undefined;
  const { name, limit, durationMs: duration } = exceeded.limit;
  const { cost = 1 } = requirements.limits.find((each) => each.name === name) ?? {};
  return { ratelimit: { name, limit, duration, remaining: exceeded.remaining, cost } };
}

/** The permissions that a query names and `slugSet` lacks, as many as there is room for. */
function missingIn(
  { permissions = '' }: ReportedQuestion['requirements'],
  slugSet: ReadonlySet<string> | undefined,
): string[] {
  let length = 0;
  return slugsIn(permissions).filter((slug) => {
    if (slugSet?.has(slug)) return false;
    length += slug.length;
    return length <= MISSING_LENGTH_MAX;
  });
}
