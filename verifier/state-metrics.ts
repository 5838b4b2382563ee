import { Gauge, type Registry } from 'prom-client';
import { metricMakers } from '#shared/process/process-metrics.ts';
import { PROTOCOL } from '#shared/protocol.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import type { Follower } from './core/follower.ts';
import type { Verifier } from './core/verifier.ts';
import type { Usage } from './redis/usage-report.ts';

/** Label of all APIs that are not in API_IDS, so that the number of series is bounded by the configuration. */
const OTHER_APIS = 'other';
/** The ways to tell one number of several APIs, or of several processes. */
const JOINS = { min: Math.min, max: Math.max };

/** Metrics of the state that a verifier is in; they are read when somebody scrapes. */
export function watchState(
  registry: Registry,
  verifier: Pick<Verifier, 'followers' | 'workspace' | 'counts' | 'cache' | 'lookupsInFlight'>,
  apiIds: readonly string[],
  usage: Pick<Usage, 'keys' | 'tags' | 'dropped'> | undefined,
): void {
  const { count, gauge } = metricMakers(registry);
  const all = () => (verifier.workspace ? [...verifier.followers, verifier.workspace] : verifier.followers);
  const perApi = (
    name: string,
    help: string,
    read: (follower: Follower) => number,
    join: keyof typeof JOINS,
  ) =>
    new Gauge({
      name,
      aggregator: join,
      help: `${help} APIs outside API_IDS share the label api_id="${OTHER_APIS}"; roles and identities have "${WORKSPACE}".`,
      labelNames: ['api_id'],
      registers: [registry],
      collect() {
        this.reset();
        for (const [api_id, value] of perLabel(all(), apiIds, read, JOINS[join])) {
          this.set({ api_id }, value);
        }
      },
    });

  const { counts } = verifier;
  count('keyfence_lookups_total', () => counts.fills).help(
    'Look-ups sent to Redis; one serves all who ask for that key.',
  );
  count('keyfence_malformed_keys_total', () => counts.malformed).help(
    'Keys refused by their checksum, without a look-up.',
  );
  count('keyfence_stale_answers_prevented_total', () => counts.stale).help(
    'Look-ups at Redis because the lease of an answer in memory had run out. Rises when Redis is away or this process was paused.',
  );
  count('keyfence_cache_evictions_total', () => verifier.cache.evictions).help(
    'Keys pushed out of memory. A steady rate: raise CACHE_KEYS_MAX.',
  );
  count('keyfence_credit_exchanges_total', () => counts.credits.exchanges).help(
    'Calls to Redis by which credits, and what rate limits allow, were taken, settled and given back; one serves all keys of an API that wait. Compare VALID verdicts of keys with either: a key that is asked for often needs few.',
  );
  count('keyfence_credit_exchanges_failed_total', () => counts.credits.failed).help(
    'Those that failed, or were not confirmed by REDIS_REPLICAS replicas: who waited was answered 503, nothing was spent.',
  );
  count('keyfence_credit_recalls_total', () => counts.credits.recalls).help(
    'Requests of other verifiers to give back credits, or what is left of a rate limit. Many: keys near their end are asked for at many verifiers.',
  );
  count('keyfence_credits_withheld_total', () => counts.credits.withheld).help(
    'Refusals for want of credits while other verifiers held enough and did not give back in 50 ms.',
  );
  count('keyfence_limits_withheld_total', () => counts.credits.limitsWithheld).help(
    'Refusals by rate limits while other verifiers held enough and did not give back in 50 ms.',
  );
  const inAll = (read: (follower: Follower) => number) =>
    all().reduce((sum, follower) => sum + read(follower), 0);
  gauge('keyfence_credit_pools', () => inAll(({ credits }) => credits.pools)).help(
    'Keys with credits that were asked for lately.',
  );
  gauge('keyfence_limit_pools', () => inAll(({ credits }) => credits.limits)).help(
    'Rate limits of keys that were asked for lately.',
  );
  gauge('keyfence_credits_held', () => inAll(({ credits }) => credits.held)).help(
    'Credits that this verifier holds and has not spent: what a crash now would lose.',
  );
  count('keyfence_usage_dropped_total', () => usage?.dropped ?? 0).help(
    'Verdicts that are missing from usage, because there were more keys than USAGE_KEYS_MAX or Redis was out of reach for an hour, or at the end. The verdicts themselves were given.',
  );
  gauge('keyfence_usage_tags', () => usage?.tags ?? 0).help(
    'Tags whose counts wait for the next report; at USAGE_TAGS_HELD_MAX more of them are counted as `other`.',
  );
  gauge('keyfence_usage_keys', () => usage?.keys ?? 0).help(
    'Keys whose verdicts are counted and not yet reported. Grows while Redis is away, up to USAGE_KEYS_MAX.',
  );
  gauge('keyfence_protocol', () => PROTOCOL, 'min').help(
    'What this verifier understands. While one of a fleet is lower, keys that need more are refused with VERIFIERS_TOO_OLD in the APIs that it follows.',
  );
  gauge('keyfence_cache_keys', () => verifier.cache.size).help('Keys in memory.');
  gauge('keyfence_lookups_in_flight', () => verifier.lookupsInFlight).help('Look-ups under way.');
  gauge('keyfence_followers', () => verifier.followers.length).help('APIs followed.');
  perApi(
    'keyfence_follower_live',
    '1 where the API is followed and in sync, 0 where it is not and its keys are answered 503.',
    (follower) => (follower.live ? 1 : 0),
    'min',
  );
  perApi(
    'keyfence_lease_remaining_seconds',
    'Time for which memory may still answer without hearing from Redis. Near LEASE_MS is normal; 0 means 503 for known keys.',
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
    'Changes that exist and are not yet applied. Above 0 for more than a moment, this verifier holds disables up.',
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
    const label = [...apiIds, WORKSPACE].includes(follower.apiId) ? follower.apiId : OTHER_APIS;
    const known = values.get(label);
    values.set(label, known === undefined ? read(follower) : join(known, read(follower)));
  }
  return values;
}
