import { RedisExchanges } from '../shared/metering/redis-exchanges.ts';
import type { RedisNodes } from '../shared/redis/redis.ts';
import type { VerifierLimits } from '../verifier/core/verifier.ts';
import { metered } from '../verifier/metering/metering.ts';

/**
 * Limits of verifiers without HTTP: the settings' defaults, except for waits, which a benchmark must not cut
 * short.
 */
export const verifierLimits: VerifierLimits = {
  syncPeriodMs: 1000,
  syncDeadlineMs: 800,
  cacheKeysMax: 10_000,
  unknownKeysMax: 100,
  unknownTtlMs: 1000,
  lookupsInFlightMax: 64,
  lookupsQueuedMax: 1000,
  lookupWaitMs: 10_000,
  apisMax: 10,
  apiIdleMs: 3_600_000,
};

/** Time for which a slice should last, in milliseconds. */
export const CREDITS_SLICE_MS = 2000;

/** Returns the options of a verifier whose keys have credits and limits, in this Redis. */
export const meteredAt = (nodes: RedisNodes) =>
  metered({ exchanges: new RedisExchanges(nodes, 0), sliceMs: CREDITS_SLICE_MS });

const nothing = () => undefined;

/** Returns event handlers that ignore everything. */
export const silent = () => ({
  live: nothing,
  dropped: nothing,
  disconnected: nothing,
  resumed: nothing,
  gap: nothing,
  applied: nothing,
});
