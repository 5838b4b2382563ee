import { type ConfigOf, choice, flag, host, httpUrl, list, port } from '#shared/process/load-config.ts';
import { processLimits, processSettings } from '#shared/process/process-settings.ts';
import { redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import { TOKEN_ALGS, tokenSettings } from '#shared/tokens/token-keys.ts';
import { grpcSettings } from './doors/grpc/server.ts';
import { anonymousFaults, anonymousSettings } from './doors/http/anonymous-limit.ts';
import { clientIpFaults, clientIpSettings, credentialSettings } from './doors/http/credentials.ts';
import { httpLimits, httpSettings } from './doors/http/server.ts';
import { tlsFaults, tlsSettings } from './doors/http/tls.ts';
import { unixSettings } from './doors/node-internals/unix-socket.ts';
import { engineFaults, engineLimits, engineSettings } from './engine.ts';
import { forwardFaults, forwardLimits, forwardSettings } from './proxy/control-plane-proxy.ts';
import { proxyFaults, proxySettings } from './proxy/proxy.ts';

export const settings = {
  HOST: host().help('Address at which the verifier answers questions'),
  PORT: port(3001).help('Port at which the verifier answers questions'),
  REUSE_PORT: flag(false).help(
    'If true, several verifier processes of one user may listen at the same HOST and PORT (and PROXY_PORT, EXT_AUTHZ_GRPC_PORT). The system spreads connections over them. Each process needs an ADMIN_PORT of its own',
  ),
  ...unixSettings,
  ...tlsSettings,
  ...processSettings(9301),
  API_IDS: list(API_ID, 'comma-separated API ids').help(
    'Ids of the APIs for whose keys this verifier answers. If empty, it answers for every API, begins to follow an API at the first question about one of its keys, and gateways and proxy mode must name the API',
  ),
  POD_API_IDS: list(API_ID, 'comma-separated API ids').help(
    'The same, for a pod annotation. If it is set, the verifier ignores API_IDS',
  ),
  ...redisSettings,
  ...engineSettings,
  VERIFY_ROOT_KEYS: choice(['ignored', 'required'], 'ignored').help(
    'With `required`, `verifyKey`, `release` and `/oauth2/introspect` need a root key with `api.<apiId>.verify_key` in `Authorization: Bearer`, and `ratelimit.limit` and `multiLimit` one with `root.*.check_rate_limit`. Answers to gateways, and proxy mode, need no root key',
  ),
  ...tokenSettings,
  TOKEN_ALG: choice(TOKEN_ALGS, 'EdDSA').help(
    'Algorithm that signs tokens. Spring, Quarkus, .NET and `jsonwebtoken` need ES256. The public keys of both are always published',
  ),
  ...credentialSettings,
  ...clientIpSettings,
  ...anonymousSettings,
  AUTHZ_META: flag(false).help(
    "If true, answers to gateways and requests to the API in proxy mode also have `X-Key-Meta`, the key's `meta` as JSON in ASCII. It is empty if `meta` is larger than 2 KiB",
  ),
  AUTHZ_TOKEN: flag(false).help(
    'If true, answers to gateways and requests to the API in proxy mode also have `X-Key-Token`, a token about the key, if its API has tokens. It is empty if none may be issued, or if it is larger than 2 KiB. Needs TOKEN_KEY',
  ),
  RESOURCE_METADATA_URL: httpUrl().help(
    "URL of the metadata of your API as a protected resource (RFC 9728). Each 401 to a gateway's client, or in proxy mode, names it in `WWW-Authenticate`, as clients of MCP expect",
  ),
  CORS_PREFLIGHT: choice(['deny', 'allow'], 'deny').help(
    "`allow` is for APIs that web pages of other origins call: CORS preflight requests pass, and any page may read that a key is missing or unknown, or the refusal of a key without `allowedOrigins`. Use it only if the gateway itself sets the header with the client's method",
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

/** Returns the ids of the APIs for whose keys the verifier answers; empty = every API. */
export const servedApis = ({
  POD_API_IDS,
  API_IDS,
}: Pick<Config, 'POD_API_IDS' | 'API_IDS'>): readonly string[] =>
  POD_API_IDS.length > 0 ? POD_API_IDS : API_IDS;

/** Returns the faults of settings that do not fit together. */
export function configFaults(config: ConfigOf<typeof settings>): string[] {
  return [
    ...redisFaults(config),
    ...engineFaults(config),
    ...tlsFaults(config),
    ...clientIpFaults(config),
    ...anonymousFaults(config),
    ...forwardFaults(config),
    ...proxyFaults(config, servedApis(config)),
    ...(config.AUTHZ_TOKEN && config.TOKEN_KEY.length === 0
      ? ['AUTHZ_TOKEN: needs TOKEN_KEY_FILE with the secret that signs tokens']
      : []),
  ];
}
