import { adminSettings } from '#shared/admin.ts';
import { type ConfigOf, choice, flag, integer, port, secret, text } from '#shared/process/config.ts';
import { redisSettings } from '#shared/redis/redis-settings.ts';
import { httpSettings } from './http/limits.ts';

const ROOT_KEY_LENGTH_MIN = 32;

export const settings = {
  HOST: text('127.0.0.1', 'Address of the API'),
  PORT: port(3000, 'Port of the API'),
  ...adminSettings(9300),
  ROOT_KEY: secret(
    undefined,
    'at least 32 characters each',
    'Bootstrap root keys, one a line, which may do everything; better from ROOT_KEY_FILE. Two overlap during a rotation',
    parseRootKeys,
  ),
  LOG_LEVEL: choice(
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    'info',
    'Least level that is logged',
  ),
  ...redisSettings,
  REDIS_MIN_REPLICAS_MAX_LAG_S: integer(
    1,
    60,
    's',
    2,
    "Redis' own `min-replicas-max-lag`: how long a cut-off primary goes on accepting. Used where REDIS_REPLICAS > 0",
  ),
  API_AUTO_CREATE: flag(
    true,
    'Whether the first key of an unknown apiId creates the API; otherwise that is 404',
  ),
  LEASE_MS: integer(
    500,
    600_000,
    'ms',
    10_000,
    'How long a verifier may answer from memory after it last heard from Redis: the bound on staleness, on answering without Redis, and on how long a disable waits for a verifier that cannot be reached',
  ),
  FENCE_WAIT_MS: integer(
    0,
    60_000,
    'ms',
    30_000,
    'The longest that a change holds its caller; the fence goes on after it',
  ),
  FENCES_PENDING_MAX: integer(
    1,
    1_000_000,
    'changes',
    10_000,
    'Incomplete changes of one API at once; more are refused with 503',
  ),
  REFUSALS_PENDING_MAX: integer(
    1,
    1_000_000,
    'changes',
    10_000,
    'Incomplete disables and deletes of one API at once, which do not count among its other changes; more are refused with 503',
  ),
  AUDIT_EVENTS_MAX: integer(
    1000,
    100_000_000,
    'events',
    100_000,
    'Changes kept for audit.listEvents, the latest ones; about 300 bytes of Redis each',
  ),
  AUDIT_REFUSED_MAX: integer(
    1000,
    100_000_000,
    'events',
    10_000,
    'Refused calls kept apart from them, the latest ones, so that a flood of these pushes no change out',
  ),
  AUDIT_WAITING_MAX: integer(
    0,
    1_000_000,
    'events',
    10_000,
    'Events of changes that wait in memory while Redis does not take them, about 1 KiB each; more are only in the log of the process, and counted as lost',
  ),
  ROOT_KEY_CALLS_PER_MINUTE: integer(
    0,
    100_000_000,
    'calls',
    60_000,
    'Calls of one root key within a minute that read, and as many that change; more are refused with 429. 0 = no limit',
  ),
  FAILURES_PER_MINUTE: integer(
    0,
    100_000_000,
    'calls',
    60,
    'Calls without a valid root key from one address within a minute that are told so; more are refused with 429 and leave no trace in the audit log. 0 = no limit',
  ),
  EVENT_LOOP_DELAY_MS_MAX: integer(
    0,
    60_000,
    'ms',
    500,
    'Mean delay of the event loop from which on calls are refused with 503, but those that change or delete what exists. 0 = never',
  ),
  ...httpSettings,
  SHUTDOWN_GRACE_MS: integer(
    0,
    300_000,
    'ms',
    10_000,
    'Longest time that requests in flight may take to finish after DRAIN_MS',
  ),
};

/** A control plane's settings, read and checked. */
export type Config = ConfigOf<typeof settings>;

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
