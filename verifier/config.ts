import { API_ID } from '#shared/contract/api-id.ts';
import { type ConfigOf, choice, flag, list, port, text } from '#shared/process/load-config.ts';
import { processSettings } from '#shared/process/process-settings.ts';
import { redisFaults, redisSettings } from '#shared/redis/redis-settings.ts';
import { grpcSettings } from './endpoints/envoy-grpc.ts';
import { engineSettings } from './engine/engine-settings.ts';
import { httpSettings } from './http/http-settings.ts';
import { tlsFaults, tlsSettings } from './http/tls.ts';
import { unixSettings } from './http/unix-socket.ts';
import { forwardFaults, forwardSettings } from './proxy/control-plane-proxy.ts';
import { proxyFaults, proxySettings } from './proxy/proxy-options.ts';

export const settings = {
  HOST: text('127.0.0.1').help('Address at which the verifier listens for callers'),
  PORT: port(3001).help('Port at which the verifier listens for callers'),
  ...unixSettings,
  ...tlsSettings,
  ...processSettings(9301),
  API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The APIs whose keys this verifier answers for; it follows them from the start. Empty = every API; it begins to follow an API at the first question about one of its keys',
  ),
  POD_API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The same as API_IDS, from an annotation of the pod. If it is set, API_IDS is ignored',
  ),
  ...redisSettings,
  ...engineSettings,
  CREDENTIAL_SOURCES: list(
    /^(bearer|x-api-key|query)$/,
    'comma-separated: bearer, x-api-key, query',
    'bearer,x-api-key',
  ).help(
    "Where a gateway's client may put its key: `Authorization: Bearer`, `X-Api-Key`, or the query parameter `api_key` (which ends up in logs and histories). A request with one source twice, or with two different keys, gets 401. Leave `bearer` out if Bearer carries a token of your own",
  ),
  AUTHZ_META: flag(false).help(
    "Sends the key's `meta` to the API behind a gateway in `X-Key-Meta`: JSON in ASCII, empty if over 2 KiB",
  ),
  CORS_PREFLIGHT: choice(['deny', 'allow'], 'deny').help(
    "`allow` lets CORS preflights pass, which never carry a key. Use it only if the gateway itself says what the client's method was",
  ),
  ...httpSettings,
  ...forwardSettings,
  ...proxySettings,
  ...grpcSettings,
};

/** The verifier's settings, after parsing and checking. */
export type Config = ConfigOf<typeof settings>;

/** Returns the faults of settings that do not fit together. */
export function configFaults(config: Config): string[] {
  return [...redisFaults(config), ...tlsFaults(config), ...forwardFaults(config), ...proxyFaults(config)];
}
