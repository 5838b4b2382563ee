import { API_ID } from '#shared/contract/api-id.ts';
import { type ConfigOf, choice, flag, integer, list, port, text } from '#shared/process/load-config.ts';
import { processLimits, processSettings } from '#shared/process/process-settings.ts';
import { redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { clientIpFaults, clientIpSettings } from './endpoints/client-ips.ts';
import { grpcSettings } from './endpoints/envoy-grpc.ts';
import { engineLimits, engineSettings } from './engine/engine-settings.ts';
import { httpLimits, httpSettings } from './http/http-settings.ts';
import { tlsFaults, tlsSettings } from './http/tls.ts';
import { unixSettings } from './http/unix-socket.ts';
import { forwardFaults, forwardLimits, forwardSettings } from './proxy/control-plane-proxy.ts';
import { proxyFaults, proxySettings } from './proxy/proxy-options.ts';

export const settings = {
  HOST: text('127.0.0.1').help('Address at which the verifier listens for questions about keys'),
  PORT: port(3001).help('Port at which the verifier listens for questions about keys'),
  WORKERS: integer(1, 64, 'processes', 1).help(
    'Number of verifier processes that share the ports, for a machine whose other cores would be idle. Each has keys in memory of its own (CACHE_KEYS_MAX) and is a verifier of its own for changes. SIGHUP replaces them one after the other, while the others answer',
  ),
  ...unixSettings,
  ...tlsSettings,
  ...processSettings(9301),
  API_IDS: list(API_ID, 'comma-separated API ids').help(
    'Ids of the APIs for whose keys this verifier answers. The verifier follows these APIs from its start. If empty, it answers for every API, and begins to follow an API at the first question about one of its keys',
  ),
  POD_API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The same as API_IDS, for use with a pod annotation. If it is set, the verifier ignores API_IDS',
  ),
  ...redisSettings,
  ...engineSettings,
  VERIFY_ROOT_KEYS: choice(['ignored', 'required'], 'ignored').help(
    'With `required`, `verifyKey` needs a root key with `api.<apiId>.verify_key` in `Authorization: Bearer`, and `ratelimit.limit` and `multiLimit` one with `root.*.check_rate_limit`. A root key that may ask about some APIs only learns nothing of the keys of others. Answers to gateways, and proxy mode, need no root key',
  ),
  CREDENTIAL_SOURCES: list(
    /^(bearer|x-api-key|query)$/,
    'comma-separated: bearer, x-api-key, query',
    'bearer,x-api-key',
  ).help(
    'Where a client of a gateway or of proxy mode may put its key: in `Authorization: Bearer`, in `X-Api-Key`, or in the query parameter `api_key` (which ends up in logs and histories). A request that uses one of these places twice, or contains two different keys, gets 401. Leave out `bearer` if your clients use `Authorization: Bearer` for another token',
  ),
  ...clientIpSettings,
  AUTHZ_META: flag(false).help(
    "If true, an answer to a gateway also has the header `X-Key-Meta` with the key's `meta`, as JSON in ASCII. The header is empty if `meta` is larger than 2 KiB. The same header goes to the API in proxy mode",
  ),
  CORS_PREFLIGHT: choice(['deny', 'allow'], 'deny').help(
    "`allow` lets CORS preflight requests pass; they never contain a key. Use it only if the gateway itself sets the header with the client's method",
  ),
  ...httpSettings,
  ...forwardSettings,
  ...proxySettings,
  ...grpcSettings,
};

/** Limits that suit everybody. Only tests replace them. */
export const limits = { ...processLimits, ...redisLimits, ...engineLimits, ...httpLimits, ...forwardLimits };

/** The verifier's settings, after parsing and checking, and its limits. */
export type Config = ConfigOf<typeof settings> & typeof limits;

/** Returns the faults of settings that do not fit together. */
export function configFaults(config: ConfigOf<typeof settings>): string[] {
  return [
    ...(config.WORKERS > 1 && config.LISTEN_UNIX
      ? ['LISTEN_UNIX: one process listens there, so WORKERS must be 1']
      : []),
    ...redisFaults(config),
    ...tlsFaults(config),
    ...clientIpFaults(config),
    ...forwardFaults(config),
    ...proxyFaults(config),
  ];
}
