import { Gauge, type Registry } from 'prom-client';
import { PROTOCOL } from '#shared/contract/protocol.ts';
import { metricMakers } from '#shared/process/process-metrics.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import type { Follower } from '../core/follower.ts';
import type { Verifier } from '../core/verifier.ts';
import type { Refusals } from '../redis/refusals-report.ts';
import type { Usage } from '../redis/usage-report.ts';

/** Label of all APIs outside API_IDS, so that the configuration bounds the number of series. */
const OTHER_APIS = 'other';
/** The ways to combine the values of several APIs or processes into one. */
const JOINS = { min: Math.min, max: Math.max };

/** The part of a verifier that its metrics read. */
type WatchedVerifier = Pick<
  Verifier,
  'followers' | 'sharedLog' | 'counts' | 'cache' | 'lookupsInFlight' | 'wrongAddresses'
> & {
  readonly rateLimits: Pick<Verifier['rateLimits'], 'counts'>;
};

/** Reports to Redis; undefined = there are none. */
interface Reports {
  readonly usage: Pick<Usage, 'keys' | 'tags' | 'dropped'> | undefined;
  readonly refusals: Pick<Refusals, 'dropped'> | undefined;
}

/** Registers the metrics of a verifier's state, which are read at each scrape. */
export function watchState(
  registry: Registry,
  verifier: WatchedVerifier,
  apiIds: readonly string[],
  { usage, refusals }: Reports,
): void {
  const followers = () =>
    verifier.sharedLog ? [...verifier.followers, verifier.sharedLog] : verifier.followers;
  watchLookups(registry, verifier);
  watchCredits(registry, verifier, followers);
  watchUsage(registry, { usage, refusals });
  watchMemory(registry, verifier);
  watchFollowers(registry, apiIds, followers);
}

function watchLookups(registry: Registry, verifier: WatchedVerifier): void {
  const { counts, cache } = verifier;
  const { count } = metricMakers(registry);
  count('keyfence_lookups_total', () => counts.fills).help(
    'Look-ups (readings of a key from Redis). One look-up serves all requests that wait for the key.',
  );
  count('keyfence_malformed_keys_total', () => counts.malformed).help(
    'Keys that the verifier refused without a look-up, because their checksum was wrong.',
  );
  count('keyfence_address_refusals_total', () => verifier.wrongAddresses).help(
    'Verdicts FORBIDDEN because the key may not be used from the address of the client (`allowedIps`), or because the address was unknown. They are also counted as FORBIDDEN.',
  );
  count('keyfence_stale_answers_prevented_total', () => counts.stale).help(
    'Look-ups that were made although the key was in memory, because the lease was over. Rises when Redis cannot be reached, or after this process was paused.',
  );
  count('keyfence_cache_evictions_total', () => cache.evictions).help(
    'Keys that were dropped from memory because CACHE_KEYS_MAX was reached. If the number rises steadily, raise CACHE_KEYS_MAX.',
  );
}

function watchCredits(
  registry: Registry,
  { counts, rateLimits }: WatchedVerifier,
  followers: () => readonly Follower[],
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_credit_exchanges_total', () => counts.credits.exchanges).help(
    'Calls to Redis (exchanges) that report spent credits and uses of rate limits, take more, and return unused ones. Compare with the VALID verdicts on keys with credits or limits: for a key that is used often, there should be far fewer exchanges than verdicts.',
  );
  count('keyfence_credit_exchanges_failed_total', () => counts.credits.failed).help(
    'Exchanges that failed, or that fewer than REDIS_REPLICAS replicas confirmed. Requests that waited for them got 503 and spent nothing.',
  );
  count('keyfence_credit_recalls_total', () => counts.credits.recalls).help(
    'How often Redis asked this verifier to return credits or uses of a rate limit, because another verifier needed them. Many recalls mean that many verifiers get questions about keys that have little left.',
  );
  count('keyfence_credits_withheld_total', () => counts.credits.withheld).help(
    'USAGE_EXCEEDED verdicts given because other verifiers had enough credits but did not return them within 50 ms.',
  );
  count('keyfence_limits_withheld_total', () => counts.credits.limitsWithheld).help(
    'RATE_LIMITED verdicts given because other verifiers had enough uses of the limit but did not return them within 50 ms.',
  );
  count('keyfence_ratelimit_passed_total', () => rateLimits.counts.passed).help(
    'Checks of standalone rate limits (ratelimit.limit and multiLimit) that passed.',
  );
  count('keyfence_ratelimit_refused_total', () => rateLimits.counts.refused).help(
    'Checks of standalone rate limits that were refused, because the limit was reached.',
  );
  const sum = (read: (follower: Follower) => number) =>
    followers().reduce((total, follower) => total + read(follower), 0);
  gauge('keyfence_credit_pools', () => sum(({ credits }) => credits.pools)).help(
    'Pools of credits that were used recently. A pool belongs to one key, or to several keys that share credits.',
  );
  gauge('keyfence_limit_pools', () => sum(({ credits }) => credits.limits)).help(
    'Rate limits that were used recently.',
  );
  gauge('keyfence_credits_held', () => sum(({ credits }) => credits.held)).help(
    'Credits that this verifier has taken from Redis and not spent yet. A crash would lose them.',
  );
}

function watchUsage(registry: Registry, { usage, refusals }: Reports): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_usage_dropped_total', () => usage?.dropped ?? 0).help(
    'Verdicts that are missing from the usage counts. There were more than 100,000 keys, or Redis could not be reached for an hour, or Redis could not be reached when this process stopped. Callers did get these verdicts.',
  );
  count('keyfence_refusals_dropped_total', () => refusals?.dropped ?? 0).help(
    'Refusals of keys that `keys.listRefusals` does not show, because too many keys were refused between two reports, or Redis could not be reached. Callers did get these verdicts.',
  );
  gauge('keyfence_usage_tags', () => usage?.tags ?? 0).help(
    'Tags whose counts wait for the next report. Once there are 10,000 tags, further tags are counted as `other`.',
  );
  gauge('keyfence_usage_keys', () => usage?.keys ?? 0).help(
    'Keys whose counts wait for the next report. Grows up to 100,000 while Redis cannot be reached.',
  );
}

function watchMemory(registry: Registry, verifier: WatchedVerifier): void {
  const { gauge } = metricMakers(registry);
  gauge('keyfence_protocol', () => PROTOCOL, 'min').help(
    'The protocol (a version number) that this verifier understands. In the APIs that this verifier follows, control planes refuse changes that need a higher protocol, with VERIFIERS_TOO_OLD.',
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
    read: (follower: Follower) => number,
    join: keyof typeof JOINS,
  ) =>
    new Gauge({
      name,
      aggregator: join,
      help: `${help} api_id="${OTHER_APIS}": APIs outside API_IDS. api_id="${SHARED_LOG}": roles and identities.`,
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
    '1 if the verifier is in sync with the API. 0 if it is not; questions about keys of the API then get 503.',
    (follower) => (follower.live ? 1 : 0),
    'min',
  );
  perApi(
    'keyfence_lease_remaining_seconds',
    'Remaining time of the lease: how long the verifier may still answer from memory without hearing from Redis. A value near LEASE_MS is normal. At 0, questions about known keys get 503 unless Redis answers.',
    (follower) => follower.leaseRemainingMs / 1000,
    'min',
  );
  perApi(
    'keyfence_sync_position',
    'Sequence number of the last applied change. Compare the verifiers of one API with each other.',
    (follower) => follower.position,
    'max',
  );
  perApi(
    'keyfence_sync_lag_changes',
    'Changes that this verifier knows of and has not applied yet. If the value stays above 0, this verifier delays disables.',
    (follower) => follower.lag,
    'max',
  );
}

function perLabel(
  followers: readonly Follower[],
  apiIds: readonly string[],
  read: (follower: Follower) => number,
  join: (a: number, b: number) => number,
): Map<string, number> {
  const values = new Map<string, number>();
  for (const follower of followers) {
    const label = [...apiIds, SHARED_LOG].includes(follower.apiId) ? follower.apiId : OTHER_APIS;
    const previous = values.get(label);
    values.set(label, previous === undefined ? read(follower) : join(previous, read(follower)));
  }
  return values;
}
