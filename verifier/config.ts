import { API_ID } from '#shared/api-id.ts';
import { type ConfigOf, choice, flag, list, port, text } from '#shared/process/config.ts';
import { processSettings } from '#shared/process/process-settings.ts';
import { redisFaults, redisSettings } from '#shared/redis/redis-settings.ts';
import { grpcSettings } from './endpoints/envoy-grpc.ts';
import { httpSettings } from './http/limits.ts';
import { tlsFaults, tlsSettings } from './http/tls.ts';
import { unixSettings } from './http/unix-socket.ts';
import { engineSettings } from './library/engine-settings.ts';
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
  ...engineSettings,
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
