import { Counter, Gauge, Histogram } from 'prom-client';
import type { Clock } from '#shared/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { processMetrics } from '#shared/process/process-metrics.ts';
import { codesWhere, perVerdict, type VerdictCounts } from '#shared/verdict-codes.ts';
import type { DropReason, Follower, FollowerEvents } from './core/follower.ts';
import { LookupGivenUp, type Verifier } from './core/verifier.ts';
import type { Decider } from './endpoints/verify-key.ts';
import type { Usage } from './redis/usage-report.ts';
import type { VerifierServer } from './verifier-server.ts';

/** Label of all APIs that are not in API_IDS, so that the number of series is bounded by the configuration. */
const OTHER_APIS = 'other';
const DROP_REASONS: readonly DropReason[] = ['noreg', 'trimmed', 'diverged', 'hole', 'nonce', 'damaged'];
/** Verdicts that refuse a known key, as a list to read. */
const REFUSED = codesWhere(({ status, usage }) => status !== 200 && usage !== undefined).join(', ');
const UNDECIDED_REASONS = ['crowded', 'shed', 'slow', 'redis'] as const;

/** The verifier's metrics. On the hot path they are plain numbers, which a scrape turns into series. */
export class Metrics {
  readonly registry = processMetrics();
  readonly #verdicts: Record<'memory' | 'redis', VerdictCounts> = {
    memory: perVerdict(() => 0),
    redis: perVerdict(() => 0),
  };
  readonly #lookups: Histogram<'outcome'>;
  readonly #undecided: Counter<'reason'>;
  readonly #drops: Counter<'reason'>;
  readonly #disconnects: Counter;
  readonly #gaps: Counter;
  readonly #applied: Counter<'source'>;

  constructor() {
    const registers = [this.registry];
    const verdicts = this.#verdicts;
    new Counter({
      name: 'keyfence_verdicts_total',
      help: `Decided verifications by verdict, and whether memory or a look-up at Redis decided. VALID was allowed; ${REFUSED} are known keys that were refused, NOT_FOUND unknown or mistyped ones. The hit rate is memory ÷ all. Outages are not counted here: see keyfence_undecided_total.`,
      labelNames: ['code', 'source'],
      registers,
      collect() {
        this.reset();
        for (const source of ['memory', 'redis'] as const) {
          for (const [code, count] of Object.entries(verdicts[source])) this.inc({ code, source }, count);
        }
      },
    });
    this.#lookups = new Histogram({
      name: 'keyfence_lookup_seconds',
      help: 'Waits of requests that memory could not answer. "undecided" ended in 503; those near LOOKUP_WAIT_MS gave up waiting for Redis.',
      labelNames: ['outcome'],
      buckets: [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1],
      registers,
    });
    this.#undecided = new Counter({
      name: 'keyfence_undecided_total',
      help: 'Verifications answered 503; callers must refuse. crowded: more requests at once than REQUESTS_IN_FLIGHT_MAX; shed: more look-ups at once than LOOKUPS_IN_FLIGHT_MAX and LOOKUPS_QUEUED_MAX allow; slow: no answer within LOOKUP_WAIT_MS; redis: out of reach, or this API not in sync. The rate of outages is this ÷ (this + keyfence_verdicts_total).',
      labelNames: ['reason'],
      registers,
    });
    this.#drops = new Counter({
      name: 'keyfence_drops_total',
      help: 'APIs that were forgotten and followed anew. noreg: a fence removed this verifier because it did not acknowledge in time, or Redis was emptied; trimmed: it missed more changes or creations than are kept; diverged: Redis lost history (failover, restore); hole, nonce, damaged: replies that cannot be; look at the network and at who writes to this Redis.',
      labelNames: ['reason'],
      registers,
    });
    this.#disconnects = new Counter({
      name: 'keyfence_sync_failures_total',
      help: 'Sessions with Redis that ended or could not begin, one for each followed API and attempt. Memory goes on answering until its lease runs out.',
      registers,
    });
    this.#gaps = new Counter({
      name: 'keyfence_gaps_total',
      help: 'Messages that did not follow the last applied change; a SYNC then fetched what was missing. A few at reconnects are normal; a steady rate is lost messages.',
      registers,
    });
    this.#applied = new Counter({
      name: 'keyfence_changes_applied_total',
      help: 'Changes applied, by how they came. "message" is the fast way; much "sync" means that pub/sub loses messages.',
      labelNames: ['source'],
      registers,
    });
    // A series must be there before its first event, or a rate misses that one.
    for (const outcome of ['decided', 'undecided']) this.#lookups.zero({ outcome });
    for (const reason of UNDECIDED_REASONS) this.#undecided.inc({ reason }, 0);
    for (const reason of DROP_REASONS) this.#drops.inc({ reason }, 0);
    for (const source of ['message', 'sync']) this.#applied.inc({ source }, 0);
  }

  /** Verdicts since the start, by where they came from. */
  get verdictsGiven(): { readonly memory: number; readonly redis: number } {
    const sum = (counts: VerdictCounts) => Object.values(counts).reduce((a, b) => a + b);
    return { memory: sum(this.#verdicts.memory), redis: sum(this.#verdicts.redis) };
  }

  /** A request was refused because there were too many. */
  readonly crowded = (): void => this.#undecided.inc({ reason: 'crowded' });

  /** The same answers, counted. */
  count(answers: Decider, clock: Clock): Decider {
    const { memory, redis } = this.#verdicts;
    const undecided = this.#undecided;
    const decided = this.#lookups.labels({ outcome: 'decided' });
    const gaveUp = this.#lookups.labels({ outcome: 'undecided' });
    return {
      decide(key, askedApi, isAgain) {
        const verdict = answers.decide(key, askedApi, isAgain);
        if (verdict !== undefined && !isAgain) memory[verdict.code]++;
        return verdict;
      },
      lookUp(key, askedApi, isAgain) {
        if (isAgain) return answers.lookUp(key, askedApi, isAgain);
        const startedAtMs = clock.monotonicMs();
        const seconds = () => (clock.monotonicMs() - startedAtMs) / 1000;
        return answers.lookUp(key, askedApi).then(
          (verdict) => {
            redis[verdict.code]++;
            decided.observe(seconds());
            return verdict;
          },
          (error) => {
            undecided.inc({ reason: error instanceof LookupGivenUp ? error.reason : 'redis' });
            gaveUp.observe(seconds());
            throw error;
          },
        );
      },
    };
  }

  /** Values that are read when somebody asks. */
  watch(
    verifier: Pick<Verifier, 'followers' | 'counts' | 'cache' | 'lookupsInFlight'>,
    apiIds: readonly string[],
    server: Pick<VerifierServer, 'requestsInFlight' | 'lane'>,
    usage: Pick<Usage, 'keys' | 'dropped'> | undefined,
  ): void {
    const registers = [this.registry];
    const count = (name: string, help: string, read: () => number) =>
      new Counter({
        name,
        help,
        registers,
        collect() {
          this.reset();
          this.inc(read());
        },
      });
    const gauge = (name: string, help: string, read: () => number) =>
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    const perApi = (
      name: string,
      help: string,
      read: (follower: Follower) => number,
      join: (a: number, b: number) => number,
    ) =>
      new Gauge({
        name,
        help: `${help} APIs outside API_IDS share the label api_id="${OTHER_APIS}".`,
        labelNames: ['api_id'],
        registers,
        collect() {
          this.reset();
          for (const [api_id, value] of perLabel(verifier.followers, apiIds, read, join)) {
            this.set({ api_id }, value);
          }
        },
      });

    const { counts } = verifier;
    count(
      'keyfence_lookups_total',
      'Look-ups sent to Redis; one serves all who ask for that key.',
      () => counts.fills,
    );
    count(
      'keyfence_malformed_keys_total',
      'Keys refused by their checksum, without a look-up.',
      () => counts.malformed,
    );
    count(
      'keyfence_stale_answers_prevented_total',
      'Look-ups at Redis because the lease of an answer in memory had run out. Rises when Redis is away or this process was paused.',
      () => counts.stale,
    );
    count(
      'keyfence_cache_evictions_total',
      'Keys pushed out of memory. A steady rate: raise CACHE_KEYS_MAX.',
      () => verifier.cache.evictions,
    );
    count(
      'keyfence_fast_lane_requests_total',
      "Requests answered without Node's HTTP server, at half the cost; compare keyfence_verdicts_total. Every common client's are: where it is less than 99 %, see the two below.",
      () => server.lane.answered,
    );
    count(
      'keyfence_fast_lane_loans_total',
      "Requests answered by Node's HTTP server whose connections stayed in the fast lane: other paths, and what is refused.",
      () => server.lane.lent,
    );
    count(
      'keyfence_fast_lane_handovers_total',
      "Connections handed over to Node's HTTP server; a connection never comes back to the fast lane. If there are many and few requests in the fast lane, clients send something uncommon (chunked bodies, Expect, a head over 4 KiB), or ask for other paths only, or so many requests come in parts that FAST_LANE_WAIT_BYTES_MAX is used up.",
      () => server.lane.handedOver,
    );
    count(
      'keyfence_usage_dropped_total',
      'Verdicts that are missing from usage, because there were more keys than USAGE_KEYS_MAX or Redis failed during a report. The verdicts themselves were given.',
      () => usage?.dropped ?? 0,
    );
    gauge(
      'keyfence_usage_keys',
      'Keys whose verdicts are counted and not yet reported. Grows while Redis is away, up to USAGE_KEYS_MAX.',
      () => usage?.keys ?? 0,
    );
    gauge('keyfence_cache_keys', 'Keys in memory.', () => verifier.cache.size);
    gauge('keyfence_lookups_in_flight', 'Look-ups under way.', () => verifier.lookupsInFlight);
    gauge('keyfence_followers', 'APIs followed.', () => verifier.followers.length);
    gauge(
      'keyfence_requests_in_flight',
      'Requests being received or looked up. At REQUESTS_IN_FLIGHT_MAX more are refused with 503.',
      () => server.requestsInFlight,
    );
    perApi(
      'keyfence_follower_live',
      '1 where the API is followed and in sync, 0 where it is not and its keys are answered 503.',
      (follower) => (follower.live ? 1 : 0),
      Math.min,
    );
    perApi(
      'keyfence_lease_remaining_seconds',
      'Time for which memory may still answer without hearing from Redis. Near LEASE_MS is normal; 0 means 503 for known keys.',
      (follower) => follower.leaseRemainingMs / 1000,
      Math.min,
    );
    perApi(
      'keyfence_sync_position',
      'The sequence of the last change applied. Compare verifiers of one API with each other.',
      (follower) => follower.position,
      Math.max,
    );
    perApi(
      'keyfence_sync_lag_changes',
      'Changes that exist and are not yet applied. Above 0 for more than a moment, this verifier holds disables up.',
      (follower) => follower.lag,
      Math.max,
    );
  }

  /** The same events, counted. */
  followerEvents(events: FollowerEvents): FollowerEvents {
    return {
      live: (position, leaseMs) => events.live(position, leaseMs),
      dropped: (reason, position) => {
        this.#drops.inc({ reason });
        events.dropped(reason, position);
      },
      disconnected: (reason, position) => {
        this.#disconnects.inc();
        events.disconnected(reason, position);
      },
      resumed: (position) => events.resumed(position),
      gap: (position, received) => {
        this.#gaps.inc();
        events.gap(position, received);
      },
      applied: (change, source) => {
        this.#applied.inc({ source });
        events.applied(change, source);
      },
    };
  }
}

/** Says what happens to a follower; of a row of failures only the first, so that an outage is one line per API. */
export function followerLog(apiId: string, log: Logger): FollowerEvents {
  let failing = false;
  return {
    live(position, leaseMs) {
      failing = false;
      log.info({ apiId, position, leaseMs }, 'following');
    },
    dropped(reason, position) {
      log.warn({ apiId, reason, position }, 'out of sync: forgot everything, registering anew');
    },
    disconnected(reason, position) {
      const say = failing ? log.debug.bind(log) : log.warn.bind(log);
      say(
        { apiId, position, err: reason },
        'no session with Redis; answering from memory while the lease holds',
      );
      failing = true;
    },
    resumed(position) {
      failing = false;
      log.info({ apiId, position }, 'in touch with Redis again');
    },
    gap(position, received) {
      log.debug({ apiId, position, received }, 'a message was missed; synchronising');
    },
    applied({ sequence, keyId }, source) {
      log.debug({ apiId, sequence, keyId, source }, 'change applied');
    },
  };
}

function perLabel(
  followers: readonly Follower[],
  apiIds: readonly string[],
  read: (follower: Follower) => number,
  join: (a: number, b: number) => number,
): Map<string, number> {
  const values = new Map<string, number>();
  for (const follower of followers) {
    const label = apiIds.includes(follower.apiId) ? follower.apiId : OTHER_APIS;
    const known = values.get(label);
    values.set(label, known === undefined ? read(follower) : join(known, read(follower)));
  }
  return values;
}
