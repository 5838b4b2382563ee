import { adminSettings } from '#shared/admin.ts';
import { API_ID } from '#shared/api-id.ts';
import { type ConfigOf, choice, flag, integer, list, port, text } from '#shared/process/config.ts';
import { redisFaults, redisSettings } from '#shared/redis/redis-settings.ts';
import { grpcSettings } from './endpoints/envoy-grpc.ts';
import { httpSettings } from './http/limits.ts';
import { tlsFaults, tlsSettings } from './http/tls.ts';
import { unixSettings } from './http/unix-socket.ts';
import { forwardFaults, forwardSettings } from './proxy/control-plane-proxy.ts';
import { proxyFaults, proxySettings } from './proxy/options.ts';

export const settings = {
  HOST: text('127.0.0.1', 'Address that callers ask at'),
  PORT: port(3001, 'Port that callers ask at'),
  ...unixSettings,
  ...tlsSettings,
  ...adminSettings(9301),
  API_IDS: list(
    API_ID,
    'comma-separated API ids',
    'The APIs whose keys this verifier answers for, followed from the start; empty = every API, followed from its first key on',
  ),
  POD_API_IDS: list(
    API_ID,
    'comma-separated API ids',
    'The same from an annotation of the pod; where there is one, it goes before API_IDS',
  ),
  LOG_LEVEL: choice(
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    'info',
    'Least level that is logged',
  ),
  ...redisSettings,
  CACHE_KEYS_MAX: integer(
    1,
    16_000_000,
    'keys',
    100_000,
    'Keys kept in memory, least recently used out first; about 450 bytes each without meta',
  ),
  UNKNOWN_KEYS_MAX: integer(
    1,
    1_000_000,
    'keys',
    10_000,
    'Unknown keys remembered as such at most, apart from the known ones; about 50 bytes each, taken at the start',
  ),
  UNKNOWN_KEY_TTL_MS: integer(
    1,
    1000,
    'ms',
    1000,
    'How long an unknown key is remembered as such: the longest (or LOOKUP_WAIT_MS, where that is longer) that a new key can be refused where its secret was asked for before it existed',
  ),
  LOOKUPS_IN_FLIGHT_MAX: integer(1, 10_000, 'look-ups', 64, 'Look-ups at Redis at once'),
  LOOKUPS_QUEUED_MAX: integer(
    0,
    100_000,
    'look-ups',
    1000,
    'Look-ups that wait for one of those; more are answered 503',
  ),
  LOOKUP_WAIT_MS: integer(
    1,
    10_000,
    'ms',
    50,
    'How long a request waits for its look-up; then it is answered 503 and the look-up goes on',
  ),
  SYNC_PERIOD_MS: integer(
    50,
    60_000,
    'ms',
    1000,
    'How often each followed API is synchronised (±10 %): the bound on staleness when messages are lost; well below LEASE_MS',
  ),
  SYNC_DEADLINE_MS: integer(
    20,
    60_000,
    'ms',
    800,
    'After this long without a reply the connection to Redis is given up',
  ),
  APIS_MAX: integer(1, 100_000, 'APIs', 1000, 'APIs followed at once; keys of more are answered 503'),
  API_IDLE_MS: integer(
    1000,
    86_400_000,
    'ms',
    600_000,
    'An API that nobody asked for during this long is left, unless it is one of API_IDS',
  ),
  FOREIGN_KEYS: flag(
    false,
    'Whether keys of another format than ours, imported ones, are looked up; otherwise they are refused without asking Redis',
  ),
  STATUS_PERIOD_MS: integer(
    100,
    600_000,
    'ms',
    10_000,
    'How often this verifier reports itself for fleet.listVerifiers; three missed ones and it is no longer listed',
  ),
  USAGE_PERIOD_MS: integer(
    0,
    3_600_000,
    'ms',
    60_000,
    'How often this verifier reports how often each key was verified; lastUsedAt is later than the truth by up to this and what a report takes. 0 = usage is not counted',
  ),
  USAGE_KEYS_MAX: integer(
    1,
    16_000_000,
    'keys',
    100_000,
    'Keys that are counted between two such reports; verdicts on others are in no usage. About 150 bytes each',
  ),
  CREDENTIAL_SOURCES: list(
    /^(bearer|x-api-key|query)$/,
    'comma-separated: bearer, x-api-key, query',
    "Where a gateway's client may put its key: `Authorization: Bearer`, `X-Api-Key`, the query parameter `api_key` (which ends up in logs and histories). One source twice, or two that differ, is 401. Leave `bearer` out where Bearer is a token of your own",
    'bearer,x-api-key',
  ),
  AUTHZ_META: flag(
    false,
    'Whether the API behind a gateway is told `meta` in `X-Key-Meta`: JSON in ASCII, empty when over 2 KiB',
  ),
  CORS_PREFLIGHT: choice(
    ['deny', 'allow'],
    'deny',
    'Whether a CORS preflight, which never carries a key, passes without one; `allow` only where the gateway itself says what the method was',
  ),
  ...httpSettings,
  ...forwardSettings,
  ...proxySettings,
  ...grpcSettings,
  SHUTDOWN_GRACE_MS: integer(
    0,
    300_000,
    'ms',
    10_000,
    'How long requests in flight may take to finish after DRAIN_MS',
  ),
};

/** A verifier's settings, read and checked. */
export type Config = ConfigOf<typeof settings>;

/** Returns what is wrong with the settings together. */
export function configFaults(config: Config): string[] {
  return [...redisFaults(config), ...tlsFaults(config), ...forwardFaults(config), ...proxyFaults(config)];
}
