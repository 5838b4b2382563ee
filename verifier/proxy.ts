import type { IncomingMessage } from 'node:http';
import type { Clock } from '#shared/clock.ts';
import { type ConfigOf, httpUrl, integer, port, type Setting, text } from '#shared/config.ts';
import type { Logger } from '#shared/log.ts';
import type { AuthzSettings } from './authz.ts';
import { FastLane, type LaneCounts } from './fast-lane.ts';
import { FaultLog } from './fault-log.ts';
import { createListener, type Listener, type ListenerOptions } from './listener.ts';
import { Ongoing } from './ongoing.ts';
import { leadsTo } from './own-address.ts';
import { handler, laneHandler, Passing } from './proxy-calls.ts';
import { Relay, type RelayStats } from './relay.ts';
import { type Answers, API_ID } from './verify-key.ts';

const apiId: Setting<string> = {
  parse(value) {
    if (value !== '' && !API_ID.test(value)) throw new Error(`"${value}" is not allowed`);
    return value;
  },
  default: '',
  rule: 'API id',
  help: 'The API that a key must be of to pass; empty = any that this verifier answers for',
};

export const proxySettings = {
  UPSTREAM_URL: httpUrl(
    'Proxy mode: the API itself. Set, PROXY_PORT takes its requests and passes those on that a key allows',
  ),
  PROXY_HOST: text('127.0.0.1', 'Address of the listener in front of the API'),
  PROXY_PORT: port(3002, 'Port of the listener in front of the API'),
  PROXY_API_ID: apiId,
  UPSTREAM_CONNECTIONS_MAX: integer(
    1,
    10_000,
    'connections',
    1000,
    'Requests and WebSockets at the API at once, each on a connection of its own; more are answered 503',
  ),
  UPSTREAM_TIMEOUT_MS: integer(
    100,
    300_000,
    'ms',
    60_000,
    'How long the API may take to answer, and then to go on with its answer; below STALL_TIMEOUT_MS',
  ),
  WEBSOCKET_IDLE_MS: integer(
    1000,
    86_400_000,
    'ms',
    600_000,
    'How long a WebSocket on which nothing moves stays open',
  ),
  PROXY_RECHECK_MS: integer(
    100,
    3_600_000,
    'ms',
    1000,
    'How often the key of a request or WebSocket that goes on is judged again; it is cut when the key is no longer good, and when the lease has passed without a verdict',
  ),
};

/** The values of `proxySettings`. */
export type ProxyConfig = ConfigOf<typeof proxySettings>;

/** Faults of `proxySettings` that only show beside the settings of the listener. */
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

/** What a proxy works with. */
export interface ProxyOptions extends Pick<ListenerOptions, 'limits' | 'crowded' | 'certificate'> {
  readonly log: Pick<Logger, 'error' | 'warn'>;
  readonly answers: Answers;
  readonly authz: AuthzSettings;
  readonly config: ProxyConfig;
  readonly clock: Clock;
}

/** A listener in front of an API. */
export interface ProxyListener extends Listener {
  readonly stats: RelayStats;
  readonly lane: Readonly<LaneCounts>;
}

/**
 * A listener in front of the API at `url`: a request whose key is good is passed on without the key and with the
 * identity headers, any other is refused and never reaches the API.
 */
export async function createProxy(url: URL, options: ProxyOptions): Promise<ProxyListener> {
  const { config, limits, log, crowded, certificate } = options;
  const bounds = {
    connectionsMax: config.UPSTREAM_CONNECTIONS_MAX,
    timeoutMs: config.UPSTREAM_TIMEOUT_MS,
    headerBytesMax: limits.HEADER_BYTES_MAX,
  };
  const relay = await Relay.to(url, bounds, new FaultLog('the API', options.clock, log), options.clock);
  const ongoing = new Ongoing(options.answers, log, options.clock, config.PROXY_RECHECK_MS);
  const passing = new Passing(relay, ongoing, options);
  const lane = { answered: 0, lent: 0, handedOver: 0 };
  // Which of several keys in a query counts is for the reference to say.
  const hasLane = limits.FAST_LANE && certificate === undefined && !options.authz.sources.includes('query');
  const passOn = laneHandler(passing, options);
  // A long body may take long; STALL_TIMEOUT_MS bounds the time in which nothing of it comes.
  const ownLimits = { ...limits, REQUEST_TIMEOUT_MS: 0 };
  const listener = createListener({
    limits: ownLimits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    problems: true,
    // Clients that leave rarely say more than this, and the API may be at work for them.
    endIsAbort: true,
    mayUpgrade: isWebSocket,
    serve: handler(passing, options),
    ...(hasLane
      ? {
          lane: (server, tooSlow) =>
            new FastLane(server, { ...options, limits: ownLimits, tooSlow, passOn, counts: lane }),
        }
      : {}),
  });
  const { close } = listener;
  return Object.assign(listener, {
    stats: relay,
    lane,
    async close(graceMs: number) {
      await close(graceMs);
      ongoing.close();
      await relay.close();
    },
  });
}

function isWebSocket({ method, httpVersion, headers }: IncomingMessage): boolean {
  return (
    method === 'GET' &&
    httpVersion === '1.1' &&
    headers.upgrade?.toLowerCase() === 'websocket' &&
    headers['content-length'] === undefined &&
    headers['transfer-encoding'] === undefined
  );
}
