import { type ConfigOf, flag, host, integer, port, secret, text } from '#shared/process/load-config.ts';
import { processLimits, processSettings } from '#shared/process/process-settings.ts';
import { LEASE } from '#shared/protocol/timing.ts';
import { redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { tokenSettings } from '#shared/tokens/token-keys.ts';
import { httpLimits, httpSettings } from './core/serve/limits.ts';
import { leakFaults, leakSettings } from './subjects/leaks/leaks.ts';
import { oidcFaults, oidcSettings } from './subjects/sign-in/oidc.ts';
import { webhookSettings } from './subjects/webhooks/webhook-settings.ts';

const ROOT_KEY_LENGTH_MIN = 32;

export const settings = {
  HOST: host().help('Address of the API'),
  PORT: port(3000).help('Port of the API'),
  ...processSettings(9300),
  ROOT_KEY: secret(undefined, 'at least 32 characters each', parseRootKeys).help(
    'Bootstrap root keys, which may do everything, one a line; better in ROOT_KEY_FILE. During a rotation, list the old and the new one',
  ),
  ...redisSettings,
  REDIS_MIN_REPLICAS_MAX_LAG_S: integer(1, 60, 's', 2).help(
    'The `min-replicas-max-lag` of Redis: how long a primary without replicas still accepts writes. Used if REDIS_REPLICAS > 0',
  ),
  API_AUTO_CREATE: flag(true).help(
    'true: the first key of an unknown apiId creates the API; false: createKey answers 404',
  ),
  LEASE_MS: integer(LEASE.minMs, LEASE.maxMs, 'ms', LEASE.usualMs).help(
    'Time for which a verifier may answer from memory, counted from when it sent its last successful SYNC. It limits how stale an answer may be, how long verifiers answer without Redis, and how long a disable waits for a verifier that cannot be reached',
  ),
  FENCE_WAIT_MS: integer(0, 60_000, 'ms', 30_000).help(
    'Longest time for which a call waits until its change is complete. Then it answers `pending`, and the control plane completes the change later',
  ),
  HISTORY_FILE: text('').help(
    'A file in which this control plane keeps the latest change of each API. With it, a restore of Redis is noticed even if all control planes were restarted meanwhile',
  ),
  AUDIT_EVENTS_MAX: integer(1000, 100_000_000, 'events', 100_000).help(
    'Number of the latest changes that audit.listEvents has; about 300 bytes of Redis each',
  ),
  ROOT_KEY_CALLS_PER_MINUTE: integer(0, 100_000_000, 'calls', 60_000).help(
    'Calls of one root key in a minute, counted separately for reads and for changes; further calls get 429. Calls that delete, end or disable something have as many again. 0 = no limit',
  ),
  FAILURES_PER_MINUTE: integer(0, 100_000_000, 'calls', 60).help(
    'Calls without a valid root key from one address in a minute that get 401; further calls get 429 and no audit event. 0 = no limit',
  ),
  ...tokenSettings,
  ...oidcSettings,
  ...leakSettings,
  ...webhookSettings,
  ...httpSettings,
};

/** Limits that suit everybody. Only tests replace them. */
export const limits = {
  ...processLimits,
  ...redisLimits,
  ...httpLimits,
  /** Maximum number of incomplete changes of one API; more are refused with 503. */
  FENCES_PENDING_MAX: 10_000,
  /**
   * Maximum number of incomplete disables and deletes of one API, counted separately from its other changes;
   * more are refused with 503.
   */
  STOPS_PENDING_MAX: 10_000,
  /**
   * Number of the latest refused calls that Redis keeps for audit.listEvents, separately from changes, so
   * that a flood of refusals does not displace changes.
   */
  AUDIT_REFUSED_MAX: 10_000,
  /**
   * Maximum number of audit events of changes that wait in memory while Redis does not accept them, about 1
   * KiB each. Further events are only in the log of the process, and counted as lost.
   */
  AUDIT_WAITING_MAX: 10_000,
  /**
   * Maximum number of concurrent calls of one root key; a call counts until it has written or is answered.
   * Further calls of that root key wait, without delaying other callers.
   */
  ROOT_KEY_CALLS_AT_ONCE: 32,
  /** Maximum number of calls of one root key that wait for their turn; more are refused with 429. */
  ROOT_KEY_CALLS_WAITING_MAX: 1000,
  /**
   * Mean delay of the event loop above which calls are refused with 503, except updates and deletes. 0 =
   * never.
   */
  EVENT_LOOP_DELAY_MS_MAX: 500,
};

/** A control plane's settings, parsed and validated, and its limits. */
export type Config = ConfigOf<typeof settings> & typeof limits;

/** Returns the faults of settings that do not fit together. */
export function configFaults(config: ConfigOf<typeof settings>): string[] {
  return [...redisFaults(config), ...leakFaults(config), ...oidcFaults(config)];
}

function parseRootKeys(text: string): readonly string[] {
  const keys = text
    .split(/\r?\n/)
    .map((key) => key.trim())
    .filter(Boolean);
  if (keys.length === 0 || keys.some((key) => key.length < ROOT_KEY_LENGTH_MIN)) {
    throw new Error(`every root key needs at least ${ROOT_KEY_LENGTH_MIN} characters`);
  }
  return keys;
}
