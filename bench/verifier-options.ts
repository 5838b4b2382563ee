import type { VerifierLimits } from '../verifier/core/verifier.ts';

/**
 * Limits of verifiers without HTTP: the settings' defaults, except for waits, which a benchmark must not cut
 * short.
 */
export const verifierLimits: VerifierLimits = {
  syncPeriodMs: 1000,
  syncDeadlineMs: 800,
  creditsSliceMs: 2000,
  cacheKeysMax: 10_000,
  unknownKeysMax: 100,
  unknownTtlMs: 1000,
  lookupsInFlightMax: 64,
  lookupsQueuedMax: 1000,
  lookupWaitMs: 10_000,
  apisMax: 10,
  apiIdleMs: 3_600_000,
};

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
