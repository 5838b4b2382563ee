import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { type Pools, poolsOf } from '#shared/metering/pools.ts';
import type { Clock } from '#shared/process/clock.ts';
import { CLOCK_HELP, metricMakers } from '#shared/process/process-metrics.ts';
import type { DropReason, Follower, FollowerEvents } from '#shared/protocol/follower/follower.ts';
import { PROTOCOL } from '#shared/protocol/records/protocol.ts';
import type { RedisMeasures } from '#shared/redis/redis.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import type { Refusals } from '#shared/reports/refusals-report.ts';
import type { Usage } from '#shared/reports/usage-report.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { codesWhere, perVerdict, type VerdictCounts } from '#shared/rules/verdict-codes.ts';
import { LookupGivenUp } from '../core/given-up.ts';
import type { Verdict, VerdictSource } from '../core/verdict.ts';
import type { Verifier } from '../core/verifier.ts';
import type { LaneCounts } from '../doors/lane/lane.ts';
import type { Metering } from '../metering/metering.ts';
import type { CostFaults } from '../proxy/proxy.ts';
import type { UpstreamStats } from '../proxy/upstream.ts';

const DROP_REASONS: readonly DropReason[] = [
  'noreg',
  'trimmed',
  'diverged',
  'refused',
  'hole',
  'nonce',
  'damaged',
];
/** The codes of verdicts that refuse a known key, as a readable list. */
const REFUSAL_CODES = codesWhere(({ status, usage }) => status !== 200 && usage !== undefined).join(', ');
const UNDECIDED_REASONS = ['crowded', 'shed', 'slow', 'silent', 'held', 'redis'] as const;

/**
 * The metrics of events: verdicts, look-ups and what followers report. On the hot path verdicts are plain
 * numbers; a scrape turns them into series.
 */
export class Metrics {
  readonly registry = new Registry();
  readonly #verdicts: Record<'memory' | 'redis', VerdictCounts> = {
    memory: perVerdict(() => 0),
    redis: perVerdict(() => 0),
  };
  readonly #make = metricMakers(this.registry);
  readonly #lookups = new Histogram({
    name: 'keyfence_lookup_seconds',
    help: 'How long requests waited for a look-up. outcome="undecided" ended in 503.',
    labelNames: ['outcome'],
    buckets: [0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1],
    registers: [this.registry],
  });
  readonly #undecided = this.#make
    .counter('keyfence_undecided_total', 'reason', UNDECIDED_REASONS)
    .help(
      'Verifications that ended in 503, by reason. Callers must refuse these requests. crowded: there were more than 10,000 requests at the same time. shed: 64 look-ups ran and 1,000 waited. slow: Redis answered others, but not this request within LOOKUP_WAIT_MS. silent: it answered nobody for so long. held: 50,000 holds were open, or 10,000 of the key. redis: the verifier could not reach Redis, or was not in sync with the API.',
    );
  readonly #drops = this.#make
    .counter('keyfence_drops_total', 'reason', DROP_REASONS)
    .help(
      'How often this verifier forgot the keys of an API and started over, by reason. noreg: a control plane removed the verifier, which acknowledged too late. trimmed: the verifier missed more changes or creations than Redis keeps. diverged: Redis lost history (failover, restore). refused: Redis is older than what was durable, and nobody has accepted that yet. hole, nonce, damaged: the verifier got a reply that a correct Redis never sends; check the network and other writers to this Redis.',
    );
  readonly #disconnects = this.#make
    .counter('keyfence_sync_failures_total')
    .help('Sessions with Redis that ended or could not start, once for each API that the verifier follows.');
  readonly #gaps = this.#make
    .counter('keyfence_gaps_total')
    .help(
      'Messages that did not directly follow the last applied change. A steady rate means that messages are lost.',
    );
  readonly #applied = this.#make
    .counter('keyfence_changes_applied_total', 'source', ['message', 'sync'])
    .help(
      'Applied changes. source="message": through pub/sub; source="sync": through SYNC. A large share of "sync" means that pub/sub loses messages.',
    );

  constructor() {
    // A series must exist before its first event, or a rate misses that event.
    for (const outcome of ['decided', 'undecided']) this.#lookups.zero({ outcome });
    const verdicts = this.#verdicts;
    new Counter({
      name: 'keyfence_verdicts_total',
      help: `Verdicts by code and by source (memory, or a look-up in Redis). NOT_FOUND: the key was unknown or mistyped. ${REFUSAL_CODES}: the key was known, and was refused. The hit rate is the share of verdicts from memory.`,
      labelNames: ['code', 'source'],
      registers: [this.registry],
      collect() {
        this.reset();
        for (const source of ['memory', 'redis'] as const) {
          for (const [code, count] of Object.entries(verdicts[source])) this.inc({ code, source }, count);
        }
      },
    });
  }

  /** The verdicts since the start, by source and by code. */
  get verdictTotals() {
    const { memory, redis } = this.#verdicts;
    const sum = (counts: VerdictCounts) => Object.values(counts).reduce((a, b) => a + b);
    return {
      verdicts: { memory: sum(memory), redis: sum(redis) },
      codes: perVerdict((_, code) => memory[code] + redis[code]),
    };
  }

  /** Counts a request that was refused because there were too many. */
  readonly crowded = (): void => this.#undecided.inc({ reason: 'crowded' });

  /** Counts a verdict that needed no question to the verifier. */
  countVerdict(verdict: Verdict): Verdict {
    this.#verdicts.memory[verdict.code]++;
    return verdict;
  }

  /**
   * Returns a verdict source that counts verdicts and look-up times. It does not count rechecks, because
   * their requests were already counted.
   */
  count(verifier: VerdictSource, clock: Clock): VerdictSource {
    const { memory, redis } = this.#verdicts;
    const undecided = this.#undecided;
    const decidedWait = this.#lookups.labels({ outcome: 'decided' });
    const undecidedWait = this.#lookups.labels({ outcome: 'undecided' });
    return {
      decide(question) {
        const verdict = verifier.decide(question);
        if (verdict !== undefined && !question.isRecheck) memory[verdict.code]++;
        return verdict;
      },
      lookUp(question) {
        if (question.isRecheck) return verifier.lookUp(question);
        const startedAtMs = clock.monotonicMs();
        const seconds = () => (clock.monotonicMs() - startedAtMs) / 1000;
        return verifier.lookUp(question).then(
          (verdict) => {
            redis[verdict.code]++;
            decidedWait.observe(seconds());
            return verdict;
          },
          (error) => {
            // The question itself was wrong, and would be refused again.
            if (error instanceof ApiError && error.code === 'BAD_REQUEST') throw error;
            undecided.inc({ reason: error instanceof LookupGivenUp ? error.reason : 'redis' });
            undecidedWait.observe(seconds());
            throw error;
          },
        );
      },
    };
  }

  /** Counts events before it passes them on. */
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
      gap: (position, sequence) => {
        this.#gaps.inc();
        events.gap(position, sequence);
      },
      applied: (change, source) => {
        this.#applied.inc({ source });
        events.applied(change, source);
      },
    };
  }
}

/** Label of all APIs outside API_IDS, so that the configuration bounds the number of series. */
const OTHER_APIS = 'other';
/** The ways to combine the values of several APIs or processes into one. */
const JOINS = { min: Math.min, max: Math.max };

/** The part of a verifier that its metrics read. */
type WatchedVerifier = Pick<
  Verifier,
  'followers' | 'sharedLog' | 'counts' | 'cache' | 'lookupsInFlight' | 'wrongAddresses' | 'wrongOrigins'
> & { readonly meter: WatchedMeter };
interface WatchedMeter extends Pick<Metering, 'counts'> {
  readonly rateLimits: Pick<Metering['rateLimits'], 'counts'>;
  readonly holds: Pick<Metering['holds'], 'size' | 'counts'>;
}

/** Measures of Redis, and reports to it; undefined = there are none. */
interface Reports {
  readonly redis: RedisMeasures;
  readonly usage: Pick<Usage, 'keys' | 'tags' | 'dropped'> | undefined;
  readonly refusals: Pick<Refusals, 'dropped'> | undefined;
}

/** Registers the metrics of a verifier's state, which are read at each scrape. */
export function watchState(
  registry: Registry,
  verifier: WatchedVerifier,
  apiIds: readonly string[],
  { redis, usage, refusals }: Reports,
): void {
  const followers = () =>
    verifier.sharedLog ? [...verifier.followers, verifier.sharedLog] : verifier.followers;
  watchLookups(registry, verifier);
  watchCredits(registry, verifier.meter, followers);
  watchRedis(registry, redis);
  watchUsage(registry, { usage, refusals });
  watchMemory(registry, verifier);
  watchFollowers(registry, apiIds, followers);
}

function watchLookups(registry: Registry, verifier: WatchedVerifier): void {
  const { counts, cache } = verifier;
  const { count } = metricMakers(registry);
  count('keyfence_lookups_total', () => counts.fills).help(
    'Look-ups. One serves all requests that wait for the key.',
  );
  count('keyfence_lookups_nearby_total', () => counts.nearby).help(
    'Look-ups that a replica of REDIS_READ_URL answered, so that the primary had nothing to do.',
  );
  count('keyfence_malformed_keys_total', () => counts.malformed).help(
    'Keys refused without a look-up, because their checksum was wrong.',
  );
  count('keyfence_address_refusals_total', () => verifier.wrongAddresses).help(
    'Verdicts FORBIDDEN because of `allowedIps`: from another address, or an unknown one.',
  );
  count('keyfence_origin_refusals_total', () => verifier.wrongOrigins).help(
    'Verdicts FORBIDDEN because of `allowedOrigins`: from another web page, or none.',
  );
  count('keyfence_stale_answers_prevented_total', () => counts.stale).help(
    'Look-ups of keys in memory, because the lease was over: Redis cannot be reached, or this process was paused.',
  );
  count('keyfence_cache_evictions_total', () => cache.evictions).help(
    'Keys dropped from memory because of CACHE_KEYS_MAX. If it rises steadily, raise CACHE_KEYS_MAX.',
  );
}

function watchCredits(
  registry: Registry,
  { counts, holds, rateLimits }: WatchedMeter,
  followers: () => readonly Follower[],
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_credit_exchanges_total', () => counts.exchanges).help(
    'Exchanges of credits and rate limits with Redis. There should be far fewer than VALID verdicts on keys with credits or limits.',
  );
  count('keyfence_credit_exchanges_failed_total', () => counts.failed).help(
    'Exchanges that failed, or that too few replicas confirmed. Requests that waited for them got 503 and spent nothing.',
  );
  count('keyfence_credit_recalls_total', () => counts.recalls).help(
    'Recalls of credits or uses of a rate limit that another verifier needed.',
  );
  count('keyfence_credits_withheld_total', () => counts.withheld).help(
    'USAGE_EXCEEDED verdicts because other verifiers did not return credits within 50 ms.',
  );
  count('keyfence_limits_withheld_total', () => counts.limitsWithheld).help(
    'RATE_LIMITED verdicts because other verifiers did not return uses of the limit within 50 ms.',
  );
  count('keyfence_ratelimit_passed_total', () => rateLimits.counts.passed).help(
    'Checks of standalone rate limits (ratelimit.limit and multiLimit) that passed.',
  );
  count('keyfence_ratelimit_refused_total', () => rateLimits.counts.refused).help(
    'Checks of standalone rate limits that were refused.',
  );
  const sum = (read: (pools: Pools) => number) =>
    followers().reduce((total, { companion }) => total + (companion ? read(poolsOf(companion)) : 0), 0);
  gauge('keyfence_credit_pools', () => sum(({ credits }) => credits)).help(
    'Pools of credits that were used recently.',
  );
  gauge('keyfence_limit_pools', () => sum(({ limits }) => limits)).help(
    'Rate limits that were used recently.',
  );
  gauge('keyfence_holds', () => holds.size).help('Accepted questions whose work has not ended.');
  count('keyfence_holds_expired_total', () => holds.counts.expired).help(
    'Holds that nobody released in time. They were charged in full; if there are many, the work takes longer than `forMs`, or its end is not told.',
  );
  gauge('keyfence_credits_held', () => sum(({ available }) => available)).help(
    'Credits in the slices of this verifier. A crash would lose them.',
  );
}

function watchRedis(registry: Registry, redis: RedisMeasures): void {
  const { gauge } = metricMakers(registry);
  gauge('keyfence_redis_round_trip_seconds', () => redis.lastTripMs / 1000).help(
    'Duration of the command that Redis answered last. Its minimum over minutes is the distance to Redis; the rest is waiting for Redis, or for this process.',
  );
  gauge('keyfence_clock_offset_seconds', () => redis.clockOffMs / 1000).help(CLOCK_HELP);
}

function watchUsage(registry: Registry, { usage, refusals }: Pick<Reports, 'usage' | 'refusals'>): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_usage_dropped_total', () => usage?.dropped ?? 0).help(
    'Verdicts that are missing from the usage counts: there were more than 100,000 keys, or Redis could not be reached for an hour or when this process stopped.',
  );
  count('keyfence_refusals_dropped_total', () => refusals?.dropped ?? 0).help(
    'Refusals of keys that `keys.listRefusals` does not show, because too many keys were refused between two reports, or Redis could not be reached.',
  );
  gauge('keyfence_usage_tags', () => usage?.tags ?? 0).help(
    'Tags whose counts wait for the next report. From 10,000 on, they are counted as `other`.',
  );
  gauge('keyfence_usage_keys', () => usage?.keys ?? 0).help(
    'Keys whose counts wait for the next report. Grows up to 100,000 while Redis cannot be reached.',
  );
}

function watchMemory(registry: Registry, verifier: WatchedVerifier): void {
  const { gauge } = metricMakers(registry);
  gauge('keyfence_protocol', () => PROTOCOL, 'min').help(
    'The protocol (a version number) that this verifier understands. Changes that need a higher one get VERIFIERS_TOO_OLD.',
  );
  gauge('keyfence_cache_keys', () => verifier.cache.size).help('Keys in memory.');
  gauge('keyfence_lookups_in_flight', () => verifier.lookupsInFlight).help('Look-ups in progress.');
  gauge('keyfence_followers', () => verifier.followers.length).help('APIs that this verifier follows.');
}

function watchFollowers(
  registry: Registry,
  apiIds: readonly string[],
  followers: () => readonly Follower[],
): void {
  const perApi = (
    name: string,
    help: string,
    read: (follower: Follower) => number | undefined,
    join: keyof typeof JOINS,
  ) =>
    new Gauge({
      name,
      aggregator: join,
      help,
      labelNames: ['api_id'],
      registers: [registry],
      collect() {
        this.reset();
        for (const [api_id, value] of perLabel(followers(), apiIds, read, JOINS[join])) {
          this.set({ api_id }, value);
        }
      },
    });
  perApi(
    'keyfence_follower_live',
    '1 if the verifier is in sync with the API and has a lease. 0: questions about keys of the API get 503 unless Redis answers.',
    (follower) => (follower.canAnswer || follower.needsNoLease ? 1 : 0),
    'min',
  );
  perApi(
    'keyfence_lease_remaining_seconds',
    'Remaining time of the lease. Normal is a value near LEASE_MS. At 0, questions about known keys get 503 unless Redis answers. Absent while the API does not exist.',
    (follower) => (follower.needsNoLease ? undefined : follower.leaseRemainingMs / 1000),
    'min',
  );
  perApi(
    'keyfence_sync_position',
    'Sequence number of the last applied change.',
    (follower) => follower.position,
    'max',
  );
  perApi(
    'keyfence_sync_lag_changes',
    'Changes that this verifier has not applied yet. If this stays above 0, it delays disables.',
    (follower) => follower.lag,
    'max',
  );
}

function perLabel(
  followers: readonly Follower[],
  apiIds: readonly string[],
  read: (follower: Follower) => number | undefined,
  join: (a: number, b: number) => number,
): Map<string, number> {
  const values = new Map<string, number>();
  for (const follower of followers) {
    const label = [...apiIds, SHARED_LOG].includes(follower.apiId) ? follower.apiId : OTHER_APIS;
    const [previous, value] = [values.get(label), read(follower)];
    if (value !== undefined) values.set(label, previous === undefined ? value : join(previous, value));
  }
  return values;
}

/** Registers the metrics of the HTTP server, which are read at each scrape. */
export function watchServer(
  registry: Registry,
  server: { readonly requestsInFlight: number; readonly lane: Readonly<LaneCounts> },
  certificate?: { readonly endsMs: number },
): void {
  const { count, gauge } = metricMakers(registry);
  gauge('keyfence_certificate_end_timestamp_seconds', () => (certificate?.endsMs ?? 0) / 1000, 'min').help(
    'Unix time at which the first certificate in TLS_CERT_FILE or TLS_CLIENT_CA_FILE ends. 0 without TLS.',
  );
  count('keyfence_fast_lane_requests_total', () => server.lane.answered).help(
    "Requests that the fast lane answered without Node's HTTP server. With common clients, these are 99 % of keyfence_verdicts_total or more.",
  );
  count('keyfence_fast_lane_loans_total', () => server.lane.delegated).help(
    "Requests that the fast lane delegated to Node's HTTP server: to paths that it does not serve, and invalid ones. The connection stayed in the fast lane.",
  );
  count('keyfence_fast_lane_handovers_total', () => server.lane.handedOver).help(
    "Connections that the fast lane handed over to Node's HTTP server for good. Three reasons for many: clients send uncommon requests (chunked bodies, Expect, a head over 4 KiB); they use only paths that the fast lane does not serve; or so many requests arrive in parts that FAST_LANE_WAIT_BYTES_MAX is used up.",
  );
  gauge('keyfence_requests_in_flight', () => server.requestsInFlight).help(
    'Requests in progress. At 10,000, further ones get 503.',
  );
}

/**
 * Registers the metrics of the requests passed on.
 * @param relays statistics of each relay, keyed by the name of its upstream server
 */
export function watchUpstreams(
  registry: Registry,
  relays: Readonly<Record<string, UpstreamStats>>,
  costFaults: CostFaults,
): void {
  const registers = [registry];
  new Gauge({
    name: 'keyfence_relayed_in_flight',
    help: 'Open requests and WebSockets that the verifier forwarded to the API or the control plane. At UPSTREAM_CONNECTIONS_MAX or 100 calls of the control plane, further requests get 503.',
    labelNames: ['to'],
    registers,
    collect() {
      for (const [to, { inFlight }] of Object.entries(relays)) this.set({ to }, inFlight);
    },
  });
  new Counter({
    name: 'keyfence_relay_faults_total',
    help: 'Forwarded requests that got no response, by reason. busy: too many requests at the same time. unreachable: no connection. late: no response in time. cut: the connection ended before a response. invalid: the response was not valid HTTP, or its head was too large. The log has details.',
    labelNames: ['to', 'fault'],
    registers,
    collect() {
      this.reset();
      for (const [to, { faults }] of Object.entries(relays)) {
        for (const [fault, count] of Object.entries(faults)) this.inc({ to, fault }, count);
      }
    },
  });
  new Counter({
    name: 'keyfence_proxy_cost_faults_total',
    help: 'Requests in proxy mode whose cost the API did not say well. invalid: X-Keyfence-Cost was no whole number, or named a limit that is not in PROXY_RESERVE_LIMITS; the log has one. missing: the response said no cost of something that was reserved. Both cost what was reserved. short: the cost was higher than what the key has.',
    labelNames: ['fault'],
    registers,
    collect() {
      this.reset();
      for (const [fault, count] of Object.entries(costFaults)) this.inc({ fault }, count);
    },
  });
}
