import { creditCounts, Pools } from '../../shared/metering/pools.ts';
import { systemClock } from '../../shared/process/clock.ts';
import { unavailable } from '../../shared/rules/errors.ts';

/** Pools of a follower whose keys have no credits. */
export const noPools = new Pools({
  member: '',
  clock: systemClock,
  sliceMs: 0,
  counts: creditCounts(),
  exchange: () => Promise.reject(unavailable('there are no credits')),
  onBehind: () => undefined,
  isLive: () => true,
  position: () => 0,
});
