import type { Exchanges } from '../../shared/metering/exchange.ts';
import { creditCounts, Pools, type PoolsOptions, withPools } from '../../shared/metering/pools.ts';
import { systemClock } from '../../shared/process/clock.ts';
import type { CompanionHost, NewCompanion } from '../../shared/protocol/follower/companion.ts';
import { unavailable } from '../../shared/rules/errors.ts';

/** Of verifiers whose keys have no credits. */
export const noCredits: Omit<PoolsOptions, 'counts'> = {
  exchanges: {
    awaitsReplicas: false,
    exchange: () => Promise.reject(unavailable('there are no credits')),
  },
  sliceMs: 0,
};
/** Of followers whose keys have no credits. */
export const withoutCredits: NewCompanion = withPools({ ...noCredits, counts: creditCounts() });

/** Pools of a follower, by themselves; `exchange` is Redis. */
export const poolsBy = (exchange: Exchanges['exchange'], host: Partial<CompanionHost> = {}): Pools =>
  new Pools(
    { exchanges: { awaitsReplicas: false, exchange }, sliceMs: 0, counts: creditCounts() },
    {
      ...{ apiId: 'api', member: '2.a', clock: systemClock },
      onBehind: () => undefined,
      isLive: () => true,
      position: () => 0,
      ...host,
    },
  );

/** Pools of a follower whose keys have no credits. */
export const noPools = poolsBy(noCredits.exchanges.exchange);
