import { API_ID } from '#shared/contract/api-id.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { type ConfigOf, httpUrl, integer, port, type Setting, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { trustedProxies } from '#shared/process/trusted-proxies.ts';
import { DEFAULT_REQUIREMENTS, type Requirements, requiring } from '../core/question/requirements.ts';
import type { VerdictSource } from '../core/verdict/verdict.ts';
import type { AuthzSettings } from '../endpoints/authz.ts';
import type { ListenerOptions } from '../http/server.ts';
import { leadsTo } from './own-address.ts';

const apiId: Setting<string> = {
  parse(value) {
    if (value !== '' && !API_ID.test(value)) throw new Error(`"${value}" is not allowed`);
    return value;
  },
  default: '',
  rule: 'API id',
  help: 'The API that a key must belong to; empty = any that this verifier answers for',
};

const requirements: Setting<Requirements> = {
  parse(value) {
    return value === '' ? DEFAULT_REQUIREMENTS : requiring(value, (fault) => new Error(fault));
  },
  default: '',
  rule: 'permissions, as `a AND (b OR c)`',
  help: 'The permissions that a key must have; empty = none',
};

export const proxySettings = {
  UPSTREAM_URL: httpUrl().help(
    "Proxy mode: address of the API itself. If it is set, the verifier takes the API's requests at PROXY_PORT and passes on those with a valid key",
  ),
  PROXY_HOST: text('127.0.0.1').help('Address of the listener in front of the API'),
  PROXY_PORT: port(3002).help('Port of the listener in front of the API'),
  PROXY_API_ID: apiId,
  PROXY_PERMISSIONS: requirements,
  UPSTREAM_CONNECTIONS_MAX: integer(1, 10_000, 'connections', 1000).help(
    'Most requests and WebSockets at the API at once, each on a connection of its own; further ones get 503. A key may have at most as many as it leaves free for others: half of all, if no other key has any',
  ),
  UPSTREAM_TIMEOUT_MS: integer(100, 300_000, 'ms', 60_000).help(
    "Longest wait for the head of the API's response, and then for each next piece of it. Set it below STALL_TIMEOUT_MS",
  ),
  WEBSOCKET_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).help(
    'Time without any byte after which the verifier closes a WebSocket',
  ),
  PROXY_RECHECK_MS: integer(100, 3_600_000, 'ms', 1000).help(
    'Period in which the verifier rechecks the key of a long request or WebSocket. It cuts the request when the key is no longer valid, or when the lease of the last verdict ends without a new verdict',
  ),
  TRUSTED_PROXIES: trustedProxies(
    'Proxies in front of this one. Their headers `Forwarded`, `X-Forwarded-…` and `X-Real-IP` reach the API; the verifier removes those of any other client',
  ),
};

/** The values of `proxySettings`. */
export type ProxyConfig = ConfigOf<typeof proxySettings>;

/** Returns the faults of `proxySettings` in combination with the listener's settings. */
export function proxyFaults(
  config: ProxyConfig & { STALL_TIMEOUT_MS: number; HOST: string; PORT: number },
): string[] {
  const { UPSTREAM_URL: url, PROXY_HOST, PROXY_PORT, HOST, PORT } = config;
  if (url === undefined) return [];
  const itself = leadsTo(url, PROXY_HOST, PROXY_PORT) || leadsTo(url, HOST, PORT);
  return [
    ...(config.UPSTREAM_TIMEOUT_MS < config.STALL_TIMEOUT_MS
      ? []
      : ['UPSTREAM_TIMEOUT_MS: must be below STALL_TIMEOUT_MS']),
    ...(itself ? ['UPSTREAM_URL: leads to this verifier itself, not to the API behind it'] : []),
  ];
}

/** Dependencies and settings of a proxy. */
export interface ProxyOptions extends Pick<ListenerOptions, 'limits' | 'crowded' | 'certificate'> {
  readonly log: Pick<Logger, 'error' | 'warn'>;
  readonly verifier: VerdictSource;
  readonly authz: AuthzSettings;
  readonly config: ProxyConfig;
  readonly clock: Clock;
}
