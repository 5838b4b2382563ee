import { Gauge, type Registry } from 'prom-client';
import { PROTOCOL } from '#shared/contract/protocol.ts';
import { metricMakers } from '#shared/process/process-metrics.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import type { Follower } from '../core/following/follower.ts';
import type { Verifier } from '../core/verifier.ts';
import type { Usage } from '../redis/usage-report.ts';

/** Label of all APIs outside API_IDS, so that the configuration bounds the number of series. */
const OTHER_APIS = 'other';
/** The ways to combine the values of several APIs or processes into one. */
const JOINS = { min: Math.min, max: Math.max };

/** The part of a verifier that its metrics read. */
type WatchedVerifier = Pick<Verifier, 'followers' | 'sharedLog' | 'counts' | 'cache' | 'lookupsInFlight'>;

/** Registers the metrics of a verifier's state, which are read at each scrape. */
export function watchState(
  registry: Registry,
  verifier: WatchedVerifier,
  apiIds: readonly string[],
  usage: Pick<Usage, 'keys' | 'tags' | 'dropped'> | undefined,
): void {
  const followers = () =>
    verifier.sharedLog ? [...verifier.followers, verifier.sharedLog] : verifier.followers;
  watchLookups(registry, verifier);
  watchCredits(registry, verifier, followers);
  watchUsage(registry, usage);
  watchMemory(registry, verifier);
  watchFollowers(registry, apiIds, followers);
}

function watchLookups(registry: Registry, { counts, cache }: WatchedVerifier): void {
  const { count } = metricMakers(registry);
  count('keyfence_lookups_total', () => counts.fills).help(
    'Look-ups sent to Redis; one serves all requests that wait for the key.',
  );
  count('keyfence_malformed_keys_total', () => counts.malformed).help(
    'Keys refused by their checksum, without a look-up.',
  );
  count('keyfence_stale_answers_prevented_total', () => counts.stale).help(
    'Look-ups of keys that were in memory, because the lease was over. Rises when Redis is away or this process was paused.',
  );
  count('keyfence_cache_evictions_total', () => cache.evictions).help(
    'Keys that left memory for lack of room. If they do so steadily, raise CACHE_KEYS_MAX.',
  );
}

function watchCredits(
  registry: Registry,
  { counts }: WatchedVerifier,
  followers: () => readonly Follower[],
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_credit_exchanges_total', () => counts.credits.exchanges).help(
    'Calls to Redis (exchanges) that report what was spent of credits and rate limits, take more and give back; one serves all waiting keys of an API. Compare with the VALID verdicts on such keys: a key that is used often needs few.',
  );
  count('keyfence_credit_exchanges_failed_total', () => counts.credits.failed).help(
    'Exchanges that failed, or that fewer than REDIS_REPLICAS replicas confirmed. Requests that waited got 503; nothing was spent.',
  );
  count('keyfence_credit_recalls_total', () => counts.credits.recalls).help(
    'Times that Redis asked this verifier to give back credits or part of a rate limit, because another verifier needs them. Many recalls: many verifiers get questions about keys that have little left.',
  );
  count('keyfence_credits_withheld_total', () => counts.credits.withheld).help(
    'Refusals (USAGE_EXCEEDED) while other verifiers held enough credits and did not give them back within 50 ms.',
  );
  count('keyfence_limits_withheld_total', () => counts.credits.limitsWithheld).help(
    'Refusals (RATE_LIMITED) while other verifiers held enough of the limit and did not give it back within 50 ms.',
  );
  const sum = (read: (follower: Follower) => number) =>
    followers().reduce((total, follower) => total + read(follower), 0);
  gauge('keyfence_credit_pools', () => sum(({ credits }) => credits.pools)).help(
    'Keys with credits that were used lately.',
  );
  gauge('keyfence_limit_pools', () => sum(({ credits }) => credits.limits)).help(
    'Rate limits that were used lately.',
  );
  gauge('keyfence_credits_held', () => sum(({ credits }) => credits.held)).help(
    'Credits that this verifier holds and has not spent: what a crash now would lose.',
  );
}

function watchUsage(registry: Registry, usage: Pick<Usage, 'keys' | 'tags' | 'dropped'> | undefined): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_usage_dropped_total', () => usage?.dropped ?? 0).help(
    'Verdicts that usage does not count: there were more keys than USAGE_KEYS_MAX, or Redis was out of reach for an hour or when this process stopped. Callers did get these verdicts.',
  );
  gauge('keyfence_usage_tags', () => usage?.tags ?? 0).help(
    'Tags whose counts wait for the next report; from USAGE_TAGS_HELD_MAX on, further tags are counted as `other`.',
  );
  gauge('keyfence_usage_keys', () => usage?.keys ?? 0).help(
    'Keys whose counted verdicts wait for the next report. Grows while Redis is away, up to USAGE_KEYS_MAX.',
  );
}

function watchMemory(registry: Registry, verifier: WatchedVerifier): void {
  const { gauge } = metricMakers(registry);
  gauge('keyfence_protocol', () => PROTOCOL, 'min').help(
    'Version of the protocol that this verifier understands. In the APIs that it follows, control planes refuse changes that need a higher one, with VERIFIERS_TOO_OLD.',
  );
  gauge('keyfence_cache_keys', () => verifier.cache.size).help('Keys in memory.');
  gauge('keyfence_lookups_in_flight', () => verifier.lookupsInFlight).help('Look-ups under way.');
  gauge('keyfence_followers', () => verifier.followers.length).help('APIs followed.');
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
      help: `${help} APIs outside API_IDS share the label api_id="${OTHER_APIS}"; the shared log of roles and identities has "${SHARED_LOG}".`,
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
    '1 if the verifier is in sync with the API; 0 if not: questions about its keys get 503.',
    (follower) => (follower.live ? 1 : 0),
    'min',
  );
  perApi(
    'keyfence_lease_remaining_seconds',
    'Rest of the lease: time for which the verifier may still answer from memory without hearing from Redis. Near LEASE_MS is normal; at 0 known keys get 503.',
    (follower) => follower.leaseRemainingMs / 1000,
    'min',
  );
  perApi(
    'keyfence_sync_position',
    'The sequence of the last change applied. Compare verifiers of one API with each other.',
    (follower) => follower.position,
    'max',
  );
  perApi(
    'keyfence_sync_lag_changes',
    'Changes that this verifier knows of and has not applied. If it stays above 0, this verifier delays disables.',
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
