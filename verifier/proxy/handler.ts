import type { IncomingMessage } from 'node:http';
import { ApiError, type ErrorCode } from '#shared/contract/errors.ts';
import { newRequestId } from '#shared/contract/request-id.ts';
import { traceIdIn } from '#shared/contract/trace-id.ts';
import { toApiError } from '#shared/contract/unhandled-error.ts';
import type { Entry } from '../core/key-cache.ts';
import { type Question, questionAbout } from '../core/question.ts';
import type { Rechecker } from '../core/rechecker.ts';
import { routeOf, type Verdict } from '../core/verdict.ts';
import { clientQuestion } from '../http/authz.ts';
import { mayHoldKey, withoutKey } from '../http/credentials.ts';
import {
  ANSWERS,
  type AuthzOutcome,
  asReadByServers,
  authzAnswer,
  type HeaderLine,
  identityHeaders,
  isIdentityHeader,
  sendAnswer,
} from '../http/gateway-answer.ts';
import { identify } from '../http/respond.ts';
import type { Handler, RequestEvents } from '../http/server.ts';
import type { Call } from '../lane/head.ts';
import type { LaneConnection } from '../lane/lane.ts';
import { gatewayReplies, Output } from '../lane/reply.ts';
import { forwardedFor, isForwarding } from './forwarded-for.ts';
import { endToEndHeaders, isOfConnection } from './headers.ts';
import type { ProxyOptions } from './proxy-options.ts';
import { type Downstream, RawResponse } from './raw-response.ts';
import { writtenByTracer } from './tracer.ts';
import { type Body, bodyOf, type UpstreamPool } from './upstream.ts';
import { UpstreamError, type UpstreamFault } from './upstream-handler.ts';

/** A request from Node's server or from the fast lane. */
interface ForwardRequest {
  readonly question: Question | undefined;
  /** The entry of the request's key; undefined = a request without a key, such as a preflight. */
  readonly entry: Entry | undefined;
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

/** Passes on the requests that a key allows. */
export class Forwarder {
  readonly #upstream: UpstreamPool;
  readonly #rechecker: Rechecker;
  readonly #options: ProxyOptions;
  readonly #isSecure: boolean;
  readonly #byTracer = writtenByTracer();

  constructor(upstream: UpstreamPool, rechecker: Rechecker, options: ProxyOptions) {
    this.#upstream = upstream;
    this.#rechecker = rechecker;
    this.#options = options;
    this.#isSecure = options.certificate !== undefined;
  }

  /** @param identity headers that say whose key it is */
  async send(
    outgoing: ForwardRequest,
    identity: readonly HeaderLine[],
    response: Downstream,
    body: Body,
    events: RequestEvents,
  ): Promise<void> {
    const { authz, clock, config } = this.#options;
    const { question, entry, method, target, requestId, tunnelIdleMs } = outgoing;
    const isTrusted = config.TRUSTED_PROXIES.has(outgoing.address);
    const drop = isTrusted ? this.#drop : this.#dropForwarding;
    const headers = endToEndHeaders(outgoing.rawHeaders, outgoing.connection, drop);
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
    try {
      await this.#upstream.send(response, {
        method,
        body,
        target: withoutKey(target, authz.sources),
        headers,
        events,
        requestId,
        rawHeaders: outgoing.rawHeaders,
        responseHeaders: ['Server-Timing', `keyfence;dur=${checkedMs}`],
        tunnelIdleMs,
        // Requests without a key share one holder.
        keyId: entry?.keyId ?? '',
      });
    } catch (error) {
      throw error instanceof UpstreamError ? gatewayError(error) : error;
    } finally {
      if (place !== undefined) this.#rechecker.end(place);
    }
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
      mayHoldKey(name, value, this.#options.authz.sources) ||
      (name !== spelling && (isOfConnection(name) || isForwarding(name)))
    );
  };

  /** Returns true also for headers that only a trusted proxy may send. */
  readonly #dropForwarding = (spelling: string, value: string) =>
    isForwarding(asReadByServers(spelling)) || this.#drop(spelling, value);
}

/** Returns true if `X-Forwarded-Proto` is among the headers. */
const saysProtocol = (headers: readonly string[]): boolean =>
  headers.some((name, i) => i % 2 === 0 && name.toLowerCase() === 'x-forwarded-proto');

/** Returns the handler of requests from Node's server. */
export function handler(
  forwarder: Forwarder,
  { verifier, refusals, authz, config, clock }: ProxyOptions,
): Handler {
  const routeQuestion = { apiId: config.PROXY_API_ID || undefined, requirements: config.PROXY_PERMISSIONS };
  return (request, response, requestId, events) => {
    const startedAtMs = clock.monotonicMs();
    const { method = '', url: target = '', rawHeaders, headers } = request;
    // Reads the address now, because a socket loses it when its client has gone.
    const { remoteAddress: address } = request.socket;
    checkRequest(request);
    const clientIp = authz.clientIps?.behind(address, headers['x-forwarded-for']?.toString());
    const about = { ...routeQuestion, clientIp };
    const question = clientQuestion({ method, target }, request.headersDistinct, about, authz);
    // Not async: an immediate refusal is sent before more of the request is read.
    const proceed = (outcome: AuthzOutcome): Promise<void> | undefined => {
      const answer = authzAnswer(outcome, requestId, authz.withMeta);
      if (answer.status !== 200) {
        identify(response, requestId);
        return void sendAnswer(response, answer);
      }
      const outgoing: ForwardRequest = {
        question: 'key' in question ? question : undefined,
        entry: 'entry' in outcome ? outcome.entry : undefined,
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
      return forwarder.send(outgoing, answer.headers, response, bodyOf(request, response), events);
    };
    if ('code' in question) return proceed(question);
    const conclude = (verdict: Verdict) => {
      refusals?.note(verdict, { requestId, clientIp, route: routeOf(method, target) });
      return proceed(verdict);
    };
    const verdict = verifier.decide(question);
    return verdict === undefined ? verifier.lookUp(question).then(conclude) : conclude(verdict);
  };
}

/** Returns the handler of requests from the fast lane. */
export function laneHandler(
  forwarder: Forwarder,
  { verifier, refusals, authz, config, clock, log }: ProxyOptions,
): (call: Call, connection: LaneConnection) => void {
  const routeQuestion = { apiId: config.PROXY_API_ID || undefined, requirements: config.PROXY_PERMISSIONS };
  const replies = gatewayReplies(ANSWERS, authz.withMeta);
  return (call, connection) => {
    const startedAtMs = clock.monotonicMs();
    const { remoteAddress: address } = connection.socket;
    const requestId = call.requestId || newRequestId();
    const clientIp = authz.clientIps?.behind(address, call.forwardedFor);
    const question = questionAbout(call.key, { ...routeQuestion, clientIp });
    const response = new RawResponse(connection, call.method === 'HEAD');
    const refuse = (verdict: Verdict): void => {
      refusals?.note(verdict, { requestId, clientIp, route: routeOf(call.method, call.target) });
      const output = new Output();
      replies.addVerdict(output, verdict, requestId, connection.keepAliveS);
      response.answer(output.text);
    };
    const proceed = (verdict: Verdict): Promise<void> | undefined => {
      if (verdict.code !== 'VALID') return void refuse(verdict);
      const outgoing = {
        ...call,
        question,
        entry: verdict.entry,
        address,
        requestId,
        startedAtMs,
      };
      return forwarder.send(
        outgoing,
        identityHeaders(verdict.entry, authz.withMeta),
        response,
        call.body,
        connection,
      );
    };
    const fail = (error: unknown) => {
      const apiError = toApiError(error, log, { requestId, traceId: traceIdIn(call.rawHeaders) });
      if (response.headersSent || response.destroyed) return;
      response.answer(replies.refusal(apiError, requestId, connection.keepAliveS));
    };
    try {
      const verdict = verifier.decide(question);
      const sending = verdict === undefined ? verifier.lookUp(question).then(proceed) : proceed(verdict);
      sending?.catch(fail);
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
