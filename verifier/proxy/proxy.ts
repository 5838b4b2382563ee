import type { IncomingMessage } from 'node:http';
import type { Clock } from '#shared/process/clock.ts';
import {
  type ConfigOf,
  choice,
  host,
  httpUrl,
  integer,
  list,
  port,
  type Setting,
} from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { Seldom } from '#shared/process/seldom.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { ApiError, type ErrorCode, toApiError } from '#shared/rules/errors.ts';
import { newRequestId, traceIdIn } from '#shared/rules/request-id.ts';
import { ANY_API, API_ID } from '#shared/rules/slugs.ts';
import type { HoldEnder, RefusalLog } from '../core/ports.ts';
import {
  type Costs,
  CREDITS,
  DEFAULT_REQUIREMENTS,
  HELD_LIMITS_MAX,
  type Question,
  questionAbout,
  type Requirements,
  requiring,
} from '../core/question.ts';
import { Rechecker } from '../core/rechecker.ts';
import { answerOn, type Hold, routeOf, type Verdict, type VerdictSource } from '../core/verdict.ts';
import { type AuthzSettings, clientQuestion } from '../doors/http/authz.ts';
import {
  asReadByServers,
  keyHeaders,
  namesOf,
  withoutKey,
  withoutKeyCookies,
} from '../doors/http/credentials.ts';
import {
  ANSWERS,
  type AuthzOutcome,
  allowancesOf,
  authzAnswer,
  type HeaderLine,
  identityHeaders,
  isIdentityHeader,
  readableByPage,
  sendAnswer,
} from '../doors/http/gateway-answer.ts';
import { identify } from '../doors/http/respond.ts';
import {
  createListener,
  type Handler,
  type Listener,
  type ListenerOptions,
  type RequestEvents,
} from '../doors/http/server.ts';
import { trustedProxies } from '../doors/http/trusted-proxies.ts';
import type { Call } from '../doors/lane/head.ts';
import { FastLane, type LaneConnection, type LaneCounts } from '../doors/lane/lane.ts';
import { gatewayReplies, Output } from '../doors/lane/reply.ts';
import { ABORT_RULES, costsAtEnd, type Ended } from '../metering/on-abort.ts';
import { endToEndHeaders, forwardedFor, isForwarding, isOfConnection, writtenByTracer } from './headers.ts';
import { type Downstream, RawResponse } from './raw-response.ts';
import {
  type Body,
  bodyOf,
  FaultLog,
  leadsTo,
  UpstreamError,
  type UpstreamFault,
  UpstreamPool,
  type UpstreamStats,
} from './upstream.ts';

const apiId: Setting<string> = {
  parse(value) {
    if (value !== '' && value !== ANY_API && !API_ID.test(value))
      throw new Error(`"${value}" is not allowed`);
    return value;
  },
  default: '',
  rule: `API id, or ${ANY_API}`,
  help: 'Proxy mode: id of the API to which a key must belong; with `*`, or if it is empty and API_IDS is set, any for which this verifier answers',
};

const requirements: Setting<Requirements> = {
  parse(value) {
    return value === '' ? DEFAULT_REQUIREMENTS : requiring(value, (fault) => new Error(fault));
  },
  default: '',
  rule: 'permissions, as `a AND (b OR c)`',
  help: 'Proxy mode: permissions that a key must have',
};

export const proxySettings = {
  UPSTREAM_URL: httpUrl().help(
    'Address of your API, for proxy mode: the verifier receives its requests at PROXY_PORT, and forwards those with a valid key',
  ),
  PROXY_HOST: host().help('Address at which the verifier listens in proxy mode'),
  PROXY_PORT: port(3002).help('Port at which the verifier listens in proxy mode'),
  PROXY_API_ID: apiId,
  PROXY_PERMISSIONS: requirements,
  PROXY_RESERVE_CREDITS: integer(0, CREDITS_MAX, 'credits', 1).help(
    'Proxy mode: credits that a request reserves, if its key has credits. It costs these, unless the response says its cost in the header or trailer `X-Keyfence-Cost`',
  ),
  PROXY_RESERVE_LIMITS: list(
    /^(?!credits=)[\w-]{1,64}=\d{1,9}$/,
    'rate limits and amounts, as tokens=5000',
  ).help(
    'Proxy mode: what a request reserves of rate limits and quotas, if its key has them. `X-Keyfence-Cost: 12; tokens=1234` says its costs',
  ),
  PROXY_ON_ABORT: choice(ABORT_RULES, 'charge').help(
    'Proxy mode: what a request costs whose client leaves before the end of the response. `charge`: at least what was reserved; `release`: nothing; `last`: what `X-Keyfence-Cost` said before, else what was reserved',
  ),
  UPSTREAM_CONNECTIONS_MAX: integer(1, 10_000, 'connections', 1000).help(
    'Maximum number of requests and WebSockets that are open at the API at the same time; each takes one connection. Further requests get 503, and so do requests of a key that already has as many connections as are still free',
  ),
  UPSTREAM_TIMEOUT_MS: integer(100, 119_000, 'ms', 60_000).help(
    "Maximum wait for the head of the API's response, and then for each further part of its body.",
  ),
  WEBSOCKET_IDLE_MS: integer(1000, 86_400_000, 'ms', 600_000).help(
    'The verifier closes a WebSocket if neither side has sent anything for this time',
  ),
  PROXY_RECHECK_MS: integer(100, 3_600_000, 'ms', 1000).help(
    'Period after which the verifier checks the key of a long request or WebSocket again, and ends it if the key is no longer valid, or if the lease is over',
  ),
  TRUSTED_PROXIES: trustedProxies(
    'Proxies that you run in front of the verifier, or of Envoy. In proxy mode, only their headers such as `Forwarded`, `X-Forwarded-…` and `X-Real-IP` reach the API. For `allowedIps`, the client is the last address in X-Forwarded-For that is none of them',
  ),
};

/** The values of `proxySettings`. */
type ProxyConfig = ConfigOf<typeof proxySettings>;

/** Returns the faults of `proxySettings` in combination with the listener's settings. */
export function proxyFaults(
  config: ProxyConfig & { HOST: string; PORT: number },
  apiIds: readonly string[],
): string[] {
  const { UPSTREAM_URL: url, PROXY_HOST, PROXY_PORT, PROXY_API_ID, HOST, PORT } = config;
  const names = reservedIn(config).map(({ name }) => name);
  if (url === undefined) return [];
  const itself = leadsTo(url, PROXY_HOST, PROXY_PORT) || leadsTo(url, HOST, PORT);
  return [
    ...(itself ? ['UPSTREAM_URL: leads to this verifier itself, not to the API behind it'] : []),
    ...(names.length > HELD_LIMITS_MAX || new Set(names).size < names.length
      ? [`PROXY_RESERVE_LIMITS: must name at most ${HELD_LIMITS_MAX} rate limits, each once`]
      : []),
    ...(PROXY_API_ID === '' && apiIds.length === 0
      ? [
          `PROXY_API_ID: required with UPSTREAM_URL unless API_IDS is set; ${ANY_API} accepts the keys of every API`,
        ]
      : []),
  ];
}

/** Dependencies and settings of a proxy. */
interface ProxyOptions extends Pick<ListenerOptions, 'limits' | 'crowded' | 'certificate'> {
  readonly log: Pick<Logger, 'error' | 'warn'>;
  readonly verifier: VerdictSource;
  /** undefined = nothing is held. */
  readonly holds?: HoldEnder | undefined;
  /** undefined = nobody remembers refusals. */
  readonly refusals?: RefusalLog | undefined;
  readonly authz: AuthzSettings;
  readonly config: ProxyConfig;
  readonly clock: Clock;
}

/**
 * Counts of requests whose cost the API did not say as it should. `missing`: not at all; `short`: more than the key has,
 * so that only a part was charged. Of the other two, what was reserved was charged.
 */
export type CostFaults = Readonly<Record<'invalid' | 'missing' | 'short', number>>;

/** A listener in front of an API. */
export interface ProxyListener extends Listener {
  readonly stats: UpstreamStats;
  readonly costFaults: CostFaults;
  readonly lane: Readonly<LaneCounts>;
}

/**
 * Creates a listener in front of the API at `url`. A request with a valid key is passed on without the key
 * and with the identity headers. Any other request is refused and never reaches the API.
 */
export async function createProxy(url: URL, options: ProxyOptions): Promise<ProxyListener> {
  const { config, limits, log, crowded, certificate } = options;
  const bounds = {
    connectionsMax: config.UPSTREAM_CONNECTIONS_MAX,
    timeoutMs: config.UPSTREAM_TIMEOUT_MS,
    headerBytesMax: limits.HEADER_BYTES_MAX,
  };
  const upstream = await UpstreamPool.to(
    url,
    bounds,
    new FaultLog('the API', options.clock, log),
    options.clock,
  );
  const rechecker = new Rechecker(options.verifier, log, options.clock, config.PROXY_RECHECK_MS);
  const forwarder = new Forwarder(upstream, rechecker, options);
  const lane = { answered: 0, delegated: 0, handedOver: 0 };
  // A request in the lane bypasses Node's server, so a tracer has no span there as a parent for the request
  // to the API.
  const hasTracer = writtenByTracer().size > 0;
  const hasLane = limits.FAST_LANE && certificate === undefined && !hasTracer;
  const passOn = laneHandler(forwarder, options);
  // A long body may take long. STALL_TIMEOUT_MS bounds the time without progress.
  const ownLimits = { ...limits, REQUEST_TIMEOUT_MS: 0 };
  const listener = createListener({
    limits: ownLimits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    problems: true,
    // Most clients that leave end only their side, and the API may still be working for them.
    endIsAbort: true,
    mayUpgrade: isWebSocket,
    serve: handler(forwarder, options),
    ...(hasLane
      ? {
          lane: (server, tooSlow) =>
            new FastLane(server, { ...options, limits: ownLimits, tooSlow, passOn, counts: lane }),
        }
      : {}),
  });
  const { close } = listener;
  return Object.assign(listener, {
    stats: upstream,
    costFaults: forwarder.costFaults,
    lane,
    async close(graceMs: number) {
      // Cuts the responses here first: a client that is cut has not left.
      const cut = options.clock.after(graceMs, () => void upstream.close());
      await close(graceMs + CUT_MS);
      cut.cancel();
      rechecker.close();
      await upstream.close();
      // The requests that this ended release their holds.
      await new Promise(setImmediate);
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

/** Time in which the responses that the close of a proxy cuts end, in milliseconds. */
const CUT_MS = 500;

/** A request from Node's server or from the fast lane. */
interface ForwardRequest {
  readonly question: Question | undefined;
  /** The entry of the request's key; undefined = a request without a key, such as a preflight. */
  readonly entry: Entry | undefined;
  /** undefined = the key has neither credits nor a concurrency limit. */
  readonly hold: Hold | undefined;
  /** The names in the costs of what the hold reserves: `credits`, and rate limits. */
  readonly reserved: readonly string[];
  /** Headers of the response that tell what the key has left; undefined = none. */
  readonly allowances: readonly HeaderLine[] | undefined;
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly connection: string | undefined;
  readonly forwardedFor: string | undefined;
  readonly address: string | undefined;
  readonly requestId: string;
  readonly startedAtMs: number;
  readonly tunnelIdleMs?: number;
}

/** Time of a hold, in milliseconds: the longest timer. The end of each response releases its hold before. */
const HOLD_MS = 2_147_483_647;

/** The rate limits of which a request reserves something, if its key has them. */
const reservedIn = ({ PROXY_RESERVE_LIMITS: texts }: Pick<ProxyConfig, 'PROXY_RESERVE_LIMITS'>) =>
  texts.map((text) => {
    const [name = '', amount] = text.split('=');
    return { name, cost: Number(amount), isHeld: true, isOptional: true };
  });

/** Returns the parts of every question that the settings say. */
function routeQuestionOf(config: ProxyConfig) {
  const { PROXY_API_ID, PROXY_PERMISSIONS, PROXY_RESERVE_CREDITS: cost } = config;
  const limits = reservedIn(config);
  return {
    apiId: PROXY_API_ID === '' || PROXY_API_ID === ANY_API ? undefined : PROXY_API_ID,
    requirements:
      cost === 1 && limits.length === 0 ? PROXY_PERMISSIONS : { ...PROXY_PERMISSIONS, cost, limits },
    hold: {
      ...({ forMs: HOLD_MS, onlyWith: 'placesOrCredits' } as const),
      ...(limits.length > 0 && { names: limits.map(({ name }) => name) }),
    },
  };
}

/** A cost of credits, or of a rate limit by its name. */
const COST_PART = /^(?:([\w-]{1,64})=)?(\d{1,13})$/;

/**
 * Returns the costs in a value of `X-Keyfence-Cost`: `1234`, `tokens=1234`, or both as `12; tokens=1234`; undefined = it is
 * wrong, or names a rate limit of which requests reserve nothing.
 */
function costsIn(text: string, names: readonly string[] = []): Costs | undefined {
  const costs: Record<string, number> = {};
  for (const [i, part] of text.split(';').entries()) {
    const [, name = CREDITS, amount] = COST_PART.exec(part.trim()) ?? [];
    if (amount === undefined || Number(amount) > CREDITS_MAX || Object.hasOwn(costs, name)) return undefined;
    if (name === CREDITS ? i > 0 || part.includes('=') : !names.includes(name)) return undefined;
    costs[name] = Number(amount);
  }
  return costs;
}

/** Number of keys of whose costs the log tells in a minute. */
export const KEYS_WARNED_MAX = 20;

/** Passes on the requests that a key allows. */
class Forwarder {
  readonly #upstream: UpstreamPool;
  readonly #rechecker: Rechecker;
  readonly #options: ProxyOptions;
  readonly #isSecure: boolean;
  readonly #byTracer = writtenByTracer();
  readonly #holdsKey: ReturnType<typeof keyHeaders>;
  readonly #hasKeyCookies: boolean;
  readonly costFaults = { invalid: 0, missing: 0, short: 0 };
  readonly #warning: Seldom;

  constructor(upstream: UpstreamPool, rechecker: Rechecker, options: ProxyOptions) {
    this.#upstream = upstream;
    this.#rechecker = rechecker;
    this.#options = options;
    this.#warning = new Seldom(options.clock, 60_000, KEYS_WARNED_MAX);
    this.#isSecure = options.certificate !== undefined;
    this.#holdsKey = keyHeaders(options.authz.sources);
    this.#hasKeyCookies = namesOf(options.authz.sources, 'cookie').length > 0;
  }

  /** Throws an ApiError for a target that the API must not see. It is asked before anything is charged. */
  checkTarget(target: string): void {
    this.#upstream.checkTarget(target);
  }

  /**
   * Passes a request on, and releases its hold when the response has ended, or was cut.
   * @param identity headers that say whose key it is
   */
  async send(
    outgoing: ForwardRequest,
    identity: readonly HeaderLine[],
    response: Downstream,
    body: Body,
    events: RequestEvents,
  ): Promise<void> {
    const { hold, reserved } = outgoing;
    let costs: Costs = {};
    let isInvalid = false;
    let ended: Ended = 'cut';
    const take = (text: string) => {
      const read = costsIn(text, outgoing.question?.hold?.names);
      if (read === undefined) this.#noteInvalid(outgoing, text);
      isInvalid ||= read === undefined;
      // The last counts, even if it is wrong: an earlier one may be that of work that had not begun.
      costs = read ?? {};
    };
    try {
      ended = await this.#pass(outgoing, identity, response, body, events, take);
      if (ended === 'whole' && !isInvalid && reserved.some((name) => !Object.hasOwn(costs, name)))
        this.costFaults.missing++;
    } catch (error) {
      if (!(error instanceof UpstreamError)) throw error;
      if (error.isUnsent) ended = 'unsent';
      throw gatewayError(error);
    } finally {
      const rule = this.#options.config.PROXY_ON_ABORT;
      if (hold) void this.#release(hold, costsAtEnd(ended, rule, costs, amountsIn(outgoing)));
    }
  }

  async #release({ id }: Hold, costs: Costs): Promise<void> {
    const release = async (all?: Costs) => this.#options.holds?.release(id, all);
    try {
      const { short, ratelimits = [] } = (await release(costs)) ?? {};
      if ([short, ...ratelimits.map((limit) => limit.short)].some(Boolean)) this.costFaults.short++;
    } catch {
      // Without an answer about a cost above the reservation, this charges the reservation, unless its time was over.
      await release().catch(() => undefined);
    }
  }

  /** Counts a cost of the API that is none, and logs it once a minute for each of some keys. */
  #noteInvalid({ entry, requestId }: ForwardRequest, text: string): void {
    this.costFaults.invalid++;
    const keyId = entry?.keyId;
    this.#warning.tell(
      (unsaid) =>
        this.#options.log.warn(
          { keyId, requestId, value: text.slice(0, 64), unsaid },
          `X-Keyfence-Cost of the API must be a whole number from 0 to ${CREDITS_MAX}, or have the form 12; tokens=1234 with names in PROXY_RESERVE_LIMITS; the request costs what was reserved`,
        ),
      keyId,
    );
  }

  async #pass(
    outgoing: ForwardRequest,
    identity: readonly HeaderLine[],
    response: Downstream,
    body: Body,
    events: RequestEvents,
    take: (cost: string) => void,
  ): Promise<Ended> {
    const { authz, clock, config } = this.#options;
    const { question, entry, method, target, requestId, tunnelIdleMs } = outgoing;
    const isTrusted = config.TRUSTED_PROXIES.has(outgoing.address);
    const drop = isTrusted ? this.#drop : this.#dropForwarding;
    const headers = endToEndHeaders(outgoing.rawHeaders, outgoing.connection, drop);
    if (this.#hasKeyCookies) keepOtherCookies(headers, authz.sources);
    for (const [name, value] of identity) headers.push(name, value);
    headers.push(
      'X-Forwarded-For',
      forwardedFor(isTrusted ? outgoing.forwardedFor : undefined, outgoing.address),
    );
    if (!isTrusted || !saysProtocol(headers))
      headers.push('X-Forwarded-Proto', this.#isSecure ? 'https' : 'http');
    headers.push('X-Request-Id', requestId);
    const checkedMs = (clock.monotonicMs() - outgoing.startedAtMs).toFixed(2);
    const place = question && entry ? this.#rechecker.begin(response, question, entry) : undefined;
    let ended: Ended;
    let isCut = false;
    try {
      ended = await this.#upstream.send(response, {
        method,
        body,
        target: withoutKey(target, authz.sources),
        headers,
        events,
        requestId,
        rawHeaders: outgoing.rawHeaders,
        responseHeaders: [
          'Server-Timing',
          `keyfence;dur=${checkedMs}`,
          ...(outgoing.allowances?.flat() ?? []),
        ],
        tunnelIdleMs,
        // Requests without a key share one holder.
        keyId: entry?.keyId ?? '',
        cost: { take, isAwaited: outgoing.reserved.length > 0 },
      });
    } finally {
      if (place !== undefined) isCut = this.#rechecker.end(place);
    }
    // The client did not leave a response that the recheck cut.
    return isCut && ended === 'left' ? 'cut' : ended;
  }

  /**
   * Returns true for a header that must not reach the API although a trusted proxy sent it, in any spelling
   * that the API may recognize.
   */
  readonly #drop = (spelling: string, value: string) => {
    const name = asReadByServers(spelling);
    return (
      OWN_HEADERS.has(name) ||
      this.#byTracer.has(name) ||
      isIdentityHeader(name) ||
      this.#holdsKey(name, value) ||
      (name !== spelling && (isOfConnection(name) || isForwarding(name)))
    );
  };

  /** Returns true also for headers that only a trusted proxy may send. */
  readonly #dropForwarding = (spelling: string, value: string) =>
    isForwarding(asReadByServers(spelling)) || this.#drop(spelling, value);
}

/** Removes the cookies that may have a key from the headers. */
function keepOtherCookies(headers: string[], sources: AuthzSettings['sources']): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (headers[i]?.toLowerCase() !== 'cookie') continue;
    const rest = withoutKeyCookies(headers[i + 1] ?? '', sources);
    if (rest === '') headers.splice(i, 2);
    else headers[i + 1] = rest;
  }
}

/** Returns true if `X-Forwarded-Proto` is among the headers. */
const saysProtocol = (headers: readonly string[]): boolean =>
  headers.some((name, i) => i % 2 === 0 && name.toLowerCase() === 'x-forwarded-proto');

/** Returns the handler of requests from Node's server. */
function handler(forwarder: Forwarder, { verifier, refusals, authz, config, clock }: ProxyOptions): Handler {
  const routeQuestion = routeQuestionOf(config);
  return (request, response, requestId, events) => {
    const startedAtMs = clock.monotonicMs();
    const { method = '', url: target = '', rawHeaders, headers } = request;
    // Reads the address now, because a socket loses it when its client has gone.
    const { remoteAddress: address } = request.socket;
    checkRequest(request);
    forwarder.checkTarget(target);
    // Before the verdict, which takes what the request costs.
    const body = bodyOf(request, response);
    const clientIp = authz.clientIps?.behind(address, headers['x-forwarded-for']?.toString());
    const about = { ...routeQuestion, clientIp };
    const question = clientQuestion({ method, target }, request.headersDistinct, about, authz);
    // Not async: an immediate refusal is sent before more of the request is read.
    const proceed = (outcome: AuthzOutcome): Promise<void> | undefined => {
      const answer = authzAnswer(outcome, requestId, authz);
      if (answer.status !== 200) {
        identify(response, requestId);
        return void sendAnswer(
          response,
          readableByPage(answer, outcome, question.presenter.origin, authz.allowPreflight),
        );
      }
      const outgoing: ForwardRequest = {
        question: 'key' in question ? question : undefined,
        entry: 'entry' in outcome ? outcome.entry : undefined,
        hold: 'hold' in outcome ? outcome.hold : undefined,
        reserved: reservedBy(outcome, 'key' in question ? question : undefined),
        allowances: answer.allowances,
        method,
        target,
        rawHeaders,
        connection: headers.connection,
        forwardedFor: headers['x-forwarded-for']?.toString(),
        address,
        requestId,
        startedAtMs,
        ...('upgrade' in request && request.upgrade === true
          ? { tunnelIdleMs: config.WEBSOCKET_IDLE_MS }
          : {}),
      };
      return forwarder.send(outgoing, answer.headers, response, body, events);
    };
    if ('code' in question) return proceed(question);
    const conclude = (verdict: Verdict) => {
      refusals?.note(verdict, question, { requestId, route: routeOf(method, target) });
      return proceed(verdict);
    };
    return answerOn(verifier, question, conclude);
  };
}

const NO_NAMES: readonly string[] = [];

/** Returns the names of what an accepted request has reserved. */
function reservedBy(outcome: AuthzOutcome, question: Pick<Question, 'hold'> | undefined): readonly string[] {
  if (!('hold' in outcome) || outcome.hold === undefined) return NO_NAMES;
  const { remaining, limits = [] } = outcome.spending ?? {};
  const names = question?.hold?.names?.filter((name) => limits.some(({ limit }) => limit.name === name));
  return [...(remaining === undefined ? [] : [CREDITS]), ...(names ?? [])];
}

/** Returns the amounts that a request reserved, by name. */
function amountsIn({ reserved, question }: ForwardRequest): ReadonlyMap<string, number> {
  const { cost = 0, limits = [] } = question?.requirements ?? {};
  const costs = new Map([[CREDITS, cost], ...limits.map((limit) => [limit.name, limit.cost] as const)]);
  return new Map(reserved.map((name) => [name, costs.get(name) ?? 0]));
}

/** Returns the handler of requests from the fast lane. */
function laneHandler(
  forwarder: Forwarder,
  { verifier, refusals, authz, config, clock, log }: ProxyOptions,
): (call: Call, connection: LaneConnection) => void {
  const routeQuestion = routeQuestionOf(config);
  const replies = gatewayReplies(ANSWERS, authz);
  return (call, connection) => {
    const startedAtMs = clock.monotonicMs();
    const { remoteAddress: address } = connection.socket;
    const requestId = call.requestId || newRequestId();
    const clientIp = authz.clientIps?.behind(address, call.forwardedFor);
    const presenter = { clientIp, ...call.facts };
    const question = questionAbout(call.key, { ...routeQuestion, presenter });
    const response = new RawResponse(connection, call.method === 'HEAD');
    const refuse = (verdict: Verdict): void => {
      refusals?.note(verdict, question, { requestId, route: routeOf(call.method, call.target) });
      const output = new Output();
      replies.addVerdict(output, verdict, requestId, connection.keepAliveS, question);
      response.answer(output.text);
    };
    const proceed = (verdict: Verdict): Promise<void> | undefined => {
      if (verdict.code !== 'VALID') return void refuse(verdict);
      const outgoing = {
        ...call,
        question,
        entry: verdict.entry,
        hold: verdict.hold,
        reserved: reservedBy(verdict, question),
        allowances: verdict.spending && allowancesOf(verdict.spending),
        address,
        requestId,
        startedAtMs,
      };
      return forwarder.send(outgoing, identityHeaders(verdict, authz), response, call.body, connection);
    };
    const fail = (error: unknown) => {
      const apiError = toApiError(error, log, { requestId, traceId: traceIdIn(call.rawHeaders) });
      if (response.headersSent || response.destroyed) return;
      response.answer(replies.refusal(apiError, requestId, connection.keepAliveS));
    };
    try {
      forwarder.checkTarget(call.target);
      answerOn(verifier, question, proceed)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  };
}

/** Headers that the proxy sets itself, in place of the client's own. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['x-forwarded-for', 'x-request-id']);

/**
 * Throws if the API might read the request differently, or if the response could show the caller our headers.
 */
function checkRequest({ method, url, headersDistinct }: IncomingMessage): void {
  if (method === 'TRACE') throw new ApiError('METHOD_NOT_ALLOWED', 'TRACE is not passed on');
  if (!url?.startsWith('/')) throw new ApiError('BAD_REQUEST', 'the target must be a path');
  if ((headersDistinct['host']?.length ?? 0) > 1)
    throw new ApiError('BAD_REQUEST', 'Host: must be sent only once');
}

const CODES: Readonly<Record<UpstreamFault, ErrorCode>> = {
  busy: 'SERVICE_UNAVAILABLE',
  unreachable: 'BAD_GATEWAY',
  cut: 'BAD_GATEWAY',
  invalid: 'BAD_GATEWAY',
  late: 'GATEWAY_TIMEOUT',
};

function gatewayError(error: UpstreamError): ApiError {
  return new ApiError(CODES[error.fault], `the API: ${error.fault}`, { cause: error });
}
