import { API_ID } from '#shared/contract/api-id.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { type ConfigOf, host, httpUrl, integer, port, type Setting } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { trustedProxies } from '#shared/process/trusted-proxies.ts';
import { DEFAULT_REQUIREMENTS, type Requirements, requiring } from '../core/question.ts';
import type { RefusalLog, VerdictSource } from '../core/verdict.ts';
import type { AuthzSettings } from '../http/authz.ts';
import type { ListenerOptions } from '../http/server.ts';
import { leadsTo } from './own-address.ts';

const apiId: Setting<string> = {
  parse(value) {
    if (value !== '' && !API_ID.test(value)) throw new Error(`"${value}" is not allowed`);
    return value;
  },
  default: '',
  rule: 'API id',
  help: 'Proxy mode: id of the API to which a key must belong. If empty, a key of any API for which this verifier answers is accepted',
};

const requirements: Setting<Requirements> = {
  parse(value) {
    return value === '' ? DEFAULT_REQUIREMENTS : requiring(value, (fault) => new Error(fault));
  },
  default: '',
  rule: 'permissions, as `a AND (b OR c)`',
  help: 'Proxy mode: permissions that a key must have. If empty, a key needs none',
};

export const proxySettings = {
  UPSTREAM_URL: httpUrl().help(
    'Address of your API, for proxy mode. If it is set, the verifier receives requests for the API at PROXY_PORT, and forwards those with a valid key',
  ),
  PROXY_HOST: host().help('Address at which the verifier listens in proxy mode'),
  PROXY_PORT: port(3002).help('Port at which the verifier listens in proxy mode'),
  PROXY_API_ID: apiId,
  PROXY_PERMISSIONS: requirements,
  UPSTREAM_CONNECTIONS_MAX: integer(1, 10_000, 'connections', 1000).help(
    'Maximum number of requests and WebSockets that are open at the API at the same time; each takes one connection. Further requests get 503. A request also gets 503 if its key already has as many connections as are still free. So if no other key has any, a key can have half of all connections',
  ),
  UPSTREAM_TIMEOUT_MS: integer(100, 119_000, 'ms', 60_000).help(
    "Maximum wait for the head of the API's response, and then for each further part of its body.",
  ),
  WEBSOCKET_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).help(
    'The verifier closes a WebSocket if neither side has sent anything for this time',
  ),
  PROXY_RECHECK_MS: integer(100, 3_600_000, 'ms', 1000).help(
    'Period after which the verifier checks the key of a long request or WebSocket again. The verifier ends the request if the key is no longer valid. If it cannot get a new verdict, it ends the request when the lease behind the last verdict is over',
  ),
  TRUSTED_PROXIES: trustedProxies(
    'Proxies that you run in front of the verifier, or of Envoy. In proxy mode, their headers such as `Forwarded`, `X-Forwarded-…` and `X-Real-IP` reach the API; the verifier removes such headers of all other clients. For `allowedIps`, the client is the last address in X-Forwarded-For that is none of them',
  ),
};

/** The values of `proxySettings`. */
type ProxyConfig = ConfigOf<typeof proxySettings>;

/** Returns the faults of `proxySettings` in combination with the listener's settings. */
export function proxyFaults(config: ProxyConfig & { HOST: string; PORT: number }): string[] {
  const { UPSTREAM_URL: url, PROXY_HOST, PROXY_PORT, HOST, PORT } = config;
  if (url === undefined) return [];
  const itself = leadsTo(url, PROXY_HOST, PROXY_PORT) || leadsTo(url, HOST, PORT);
  return [...(itself ? ['UPSTREAM_URL: leads to this verifier itself, not to the API behind it'] : [])];
}

/** Dependencies and settings of a proxy. */
export interface ProxyOptions extends Pick<ListenerOptions, 'limits' | 'crowded' | 'certificate'> {
  readonly log: Pick<Logger, 'error' | 'warn'>;
  readonly verifier: VerdictSource;
  /** undefined = nobody remembers refusals. */
  readonly refusals?: RefusalLog | undefined;
  readonly authz: AuthzSettings;
  readonly config: ProxyConfig;
  readonly clock: Clock;
}
