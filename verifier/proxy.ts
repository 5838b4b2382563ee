import type { IncomingMessage } from 'node:http';
import type { Clock } from '#shared/clock.ts';
import { type ConfigOf, httpUrl, integer, port, type Setting, text } from '#shared/config.ts';
import { ApiError, type ErrorCode } from '#shared/errors.ts';
import { identify } from './answer.ts';
import { type AuthzOutcome, type AuthzSettings, authzAnswer, clientQuestion, sendAnswer } from './authz.ts';
import { mayHoldKey, withoutKey } from './credentials.ts';
import { endToEndHeaders } from './end-to-end-headers.ts';
import { isIdentityHeader } from './identity.ts';
import { createListener, type Listener, type ListenerOptions } from './listener.ts';
import { Ongoing } from './ongoing.ts';
import { Relay, RelayError, type RelayFault, type RelayStats } from './relay.ts';
import type { Handler } from './routes.ts';
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
    'How often the key of a request or WebSocket that goes on is judged again; it is cut when the key is no longer good',
  ),
};

/** The values of `proxySettings`. */
export type ProxyConfig = ConfigOf<typeof proxySettings>;

/** What `proxySettings` and the listener's STALL_TIMEOUT_MS cannot be together. */
export function proxyFaults(config: ProxyConfig & { STALL_TIMEOUT_MS: number }): string[] {
  if (config.UPSTREAM_URL === undefined || config.UPSTREAM_TIMEOUT_MS < config.STALL_TIMEOUT_MS) return [];
  return ['UPSTREAM_TIMEOUT_MS: must be below STALL_TIMEOUT_MS'];
}

/** What a proxy works with. */
export interface ProxyOptions extends Pick<ListenerOptions, 'limits' | 'log' | 'crowded' | 'certificate'> {
  readonly answers: Answers;
  readonly authz: AuthzSettings;
  readonly config: ProxyConfig;
  readonly clock: Clock;
}

/** A listener in front of an API. */
export interface ProxyListener extends Listener {
  readonly stats: RelayStats;
}

/**
 * A listener in front of the API at `url`: a request whose key is good is passed on without the key and with the
 * identity headers, any other is refused and never reaches the API.
 */
export async function createProxy(url: URL, options: ProxyOptions): Promise<ProxyListener> {
  const { config, limits, log, crowded, certificate } = options;
  const relay = await Relay.to(url, {
    connectionsMax: config.UPSTREAM_CONNECTIONS_MAX,
    timeoutMs: config.UPSTREAM_TIMEOUT_MS,
  });
  const ongoing = new Ongoing(options.answers, log, options.clock, config.PROXY_RECHECK_MS);
  const listener = createListener({
    // A long body may take long; STALL_TIMEOUT_MS bounds the time in which nothing of it comes.
    limits: { ...limits, REQUEST_TIMEOUT_MS: 0 },
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    problems: true,
    // Clients that leave rarely say more than this, and the API may be at work for them.
    endIsAbort: true,
    mayUpgrade: isWebSocket,
    serve: handler(relay, ongoing, options),
  });
  const { close } = listener;
  return Object.assign(listener, {
    stats: relay,
    async close(graceMs: number) {
      await close(graceMs);
      ongoing.close();
      await relay.close();
    },
  });
}

function handler(relay: Relay, ongoing: Ongoing, { answers, authz, config, clock }: ProxyOptions): Handler {
  const apiId = config.PROXY_API_ID || undefined;
  const drop = (name: string, value: string) =>
    OURS.has(name) || isIdentityHeader(name) || mayHoldKey(name, value, authz.sources);
  return (request, response, requestId, hooks) => {
    const startedAtMs = clock.monotonicMs();
    const { method, url: target = '', rawHeaders, headers } = request;
    judge(request);
    const asked = clientQuestion({ method, target }, request.headersDistinct, apiId, authz);
    const proceed = async (outcome: AuthzOutcome) => {
      const answer = authzAnswer(outcome, requestId, authz.withMeta);
      if (answer.status !== 200) {
        identify(response, requestId);
        return sendAnswer(response, answer);
      }
      const kept = endToEndHeaders(rawHeaders, headers.connection, drop);
      for (const [name, value] of answer.headers) kept.push(name, value);
      kept.push('X-Forwarded-For', forwardedFor(request), 'X-Request-Id', requestId);
      const checkedMs = (clock.monotonicMs() - startedAtMs).toFixed(2);
      const place = 'key' in asked ? ongoing.begin(response, asked) : undefined;
      try {
        await relay.send(request, response, {
          target: withoutKey(target, authz.sources),
          headers: kept,
          hooks,
          responseHeaders: ['Server-Timing', `keyfence;dur=${checkedMs}`],
          tunnelIdleMs:
            'upgrade' in request && request.upgrade === true ? config.WEBSOCKET_IDLE_MS : undefined,
        });
      } catch (error) {
        throw error instanceof RelayError ? gatewayError(error) : error;
      } finally {
        if (place !== undefined) ongoing.end(place);
      }
    };
    if ('code' in asked) return proceed(asked);
    const verdict = answers.decide(asked.key, asked.apiId);
    return verdict === undefined ? answers.lookUp(asked.key, asked.apiId).then(proceed) : proceed(verdict);
  };
}

/** What we say to the API ourselves, in place of the client's own. */
const OURS: ReadonlySet<string> = new Set(['x-forwarded-for', 'x-request-id']);

/** Throws for what the API might understand in another way than we do, and for what shows its caller our headers. */
function judge({ method, url, headersDistinct }: IncomingMessage): void {
  if (method === 'TRACE') throw new ApiError('METHOD_NOT_ALLOWED', 'TRACE is not passed on');
  if (!url?.startsWith('/')) throw new ApiError('BAD_REQUEST', 'the target must be a path');
  if ((headersDistinct['host']?.length ?? 0) > 1) throw new ApiError('BAD_REQUEST', 'Host: once only');
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

/** The client's own words with its address after them: only what comes last is to be believed. */
function forwardedFor({ headers, socket }: IncomingMessage): string {
  const address = (socket.remoteAddress ?? 'unknown').replace('::ffff:', '');
  const said = headers['x-forwarded-for'];
  return said === undefined ? address : `${said}, ${address}`;
}

const CODES: Readonly<Record<RelayFault, ErrorCode>> = {
  busy: 'SERVICE_UNAVAILABLE',
  unreachable: 'BAD_GATEWAY',
  cut: 'BAD_GATEWAY',
  late: 'GATEWAY_TIMEOUT',
};

function gatewayError(error: RelayError): ApiError {
  return new ApiError(CODES[error.fault], `the API: ${error.fault}`, { cause: error });
}
