import { API_ID } from '#shared/api-id.ts';
import { type ConfigOf, choice, flag, integer, list, port, text } from '#shared/process/config.ts';
import { processSettings } from '#shared/process/process-settings.ts';
import { redisFaults, redisSettings } from '#shared/redis/redis-settings.ts';
import { grpcSettings } from './endpoints/envoy-grpc.ts';
import { httpSettings } from './http/limits.ts';
import { tlsFaults, tlsSettings } from './http/tls.ts';
import { unixSettings } from './http/unix-socket.ts';
import { forwardFaults, forwardSettings } from './proxy/control-plane-proxy.ts';
import { proxyFaults, proxySettings } from './proxy/options.ts';

export const settings = {
  HOST: text('127.0.0.1').help('Address that callers ask at'),
  PORT: port(3001).help('Port that callers ask at'),
  ...unixSettings,
  ...tlsSettings,
  ...processSettings(9301),
  API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The APIs whose keys this verifier answers for, followed from the start; empty = every API, followed from its first key on',
  ),
  POD_API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The same from an annotation of the pod. Where it is set, API_IDS is ignored',
  ),
  ...redisSettings,
  CACHE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Most keys kept in memory; the least recently used leave first. About 450 bytes each without meta',
  ),
  UNKNOWN_KEYS_MAX: integer(1, 1_000_000, 'keys', 10_000).help(
    'Most unknown keys that are remembered as such, apart from the known ones; about 50 bytes each, taken at the start',
  ),
  UNKNOWN_KEY_TTL_MS: integer(1, 1000, 'ms', 1000).help(
    'Time for which an unknown key is remembered as such. A new key whose secret was asked for before it existed can be refused for so long, or for LOOKUP_WAIT_MS where that is longer',
  ),
  LOOKUPS_IN_FLIGHT_MAX: integer(1, 10_000, 'look-ups', 64).help('Most look-ups at Redis at once'),
  LOOKUPS_QUEUED_MAX: integer(0, 100_000, 'look-ups', 1000).help(
    'Most look-ups that wait for one of those; more are answered 503',
  ),
  LOOKUP_WAIT_MS: integer(1, 10_000, 'ms', 50).help(
    'Longest wait of a request for its look-up. Then it is answered 503, and the look-up goes on',
  ),
  SYNC_PERIOD_MS: integer(50, 60_000, 'ms', 1000).help(
    'Period after which each followed API is synchronised (±10 %). It bounds staleness when messages are lost. Set it well below LEASE_MS',
  ),
  SYNC_DEADLINE_MS: integer(20, 60_000, 'ms', 800).help(
    'Longest wait for a reply to a synchronisation; then the connection to Redis is cut',
  ),
  APIS_MAX: integer(1, 100_000, 'APIs', 1000).help(
    'Most APIs followed at once; keys of any other API are answered 503',
  ),
  API_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).help(
    'Time after which an API that nobody asks for is followed no more, unless it is one of API_IDS',
  ),
  FOREIGN_KEYS: flag(false).help(
    'Looks keys of another format than ours up, as imported ones are; otherwise they are refused without asking Redis',
  ),
  STATUS_PERIOD_MS: integer(100, 600_000, 'ms', 10_000).help(
    'Period after which this verifier reports itself for fleet.listVerifiers. After three missed reports it is no longer listed',
  ),
  USAGE_PERIOD_MS: integer(0, 3_600_000, 'ms', 60_000).help(
    'Period after which this verifier reports its counts of verdicts by key. lastUsedAt is later than the truth by up to this period and the time that a report takes. 0 = usage is not counted',
  ),
  USAGE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Most keys that are counted between two such reports; verdicts on others are in no usage. About 150 bytes each',
  ),
  CREDENTIAL_SOURCES: list(
    /^(bearer|x-api-key|query)$/,
    'comma-separated: bearer, x-api-key, query',
    'bearer,x-api-key',
  ).help(
    "Where a gateway's client may put its key: `Authorization: Bearer`, `X-Api-Key`, the query parameter `api_key` (which ends up in logs and histories). One source twice, or two that differ, is 401. Leave `bearer` out where Bearer is a token of your own",
  ),
  AUTHZ_META: flag(false).help(
    'Tells the API behind a gateway `meta` in `X-Key-Meta`: JSON in ASCII, empty when over 2 KiB',
  ),
  CORS_PREFLIGHT: choice(['deny', 'allow'], 'deny').help(
    'Lets a CORS preflight pass, which never carries a key. Use `allow` only where the gateway itself says what the method was',
  ),
  ...httpSettings,
  ...forwardSettings,
  ...proxySettings,
  ...grpcSettings,
};

/** A verifier's settings, read and checked. */
export type Config = ConfigOf<typeof settings>;

/** Returns what is wrong with the settings together. */
export function configFaults(config: Config): string[] {
  return [...redisFaults(config), ...tlsFaults(config), ...forwardFaults(config), ...proxyFaults(config)];
}
