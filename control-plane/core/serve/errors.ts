import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  ApiError,
  ERRORS,
  type ErrorCode,
  errorBody,
  errorBodyV2,
  RETRY_AFTER_SECONDS,
  UNHANDLED,
} from '#shared/rules/errors.ts';
import { newRequestId } from '#shared/rules/request-id.ts';
import { LINGER_MS } from './connections.ts';
import { faultTexts } from './faults.ts';
import { PAGE_HEADERS, pageHtml } from './pages/page.ts';
import { Excess } from './rate-limits.ts';

/** The error that refused a request; an ApiError if one was thrown. */
interface Failure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs?: number;
}
const RETRYABLE: ReadonlySet<string> = new Set<ErrorCode>(['SERVICE_UNAVAILABLE', 'RATE_LIMITED']);

declare module 'fastify' {
  interface FastifyRequest {
    failure: Failure | undefined;
    /** Trace id of the caller, if the request has one (W3C Trace Context). */
    traceId: string | undefined;
  }
}

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Error codes for refusals by Fastify itself. */
const FASTIFY_CODES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    'UNSUPPORTED_MEDIA_TYPE',
    'Content-Type: must be application/json; send the body as JSON, with the header Content-Type: application/json',
  ],
  FST_ERR_CTP_BODY_TOO_LARGE: ['PAYLOAD_TOO_LARGE', 'body: over the limit'],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['BAD_REQUEST', 'body: required, a JSON object'],
  FST_ERR_CTP_INVALID_JSON_BODY: ['BAD_REQUEST', 'body: is not JSON'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ['BAD_REQUEST', 'body: must be as long as Content-Length says'],
  FST_ERR_BAD_URL: ['BAD_REQUEST', 'path: is not a valid URL'],
  FST_ERR_MAX_PARAM_LENGTH: ['URI_TOO_LONG', 'path: over the limit'],
};

/** Returns the ids by which logs and the audit log identify a request. */
export function namesOf({ id, traceId }: FastifyRequest): { requestId: string; traceId?: string } {
  return { requestId: id, ...(traceId === undefined ? {} : { traceId }) };
}

/** Answers a request with one of our errors, whatever was thrown. */
export function answerError(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { code, message } = beginErrorAnswer(error, request, reply);
  if (code === 'NOT_FOUND' && request.is404 && isBrowser(request))
    return reply
      .headers(PAGE_HEADERS)
      .send(
        pageHtml(
          'No such page',
          `<p>${message.replace('no', 'No')}.</p><p><a href="/dashboard/">Open the dashboard</a></p>`,
        ),
      );
  const body = isV2(request) ? errorBodyV2 : errorBody;
  return reply.type(JSON_TYPE).send(JSON.stringify(body(code, message, request.id, baseOf(request))));
}

/** Answers a person who signs in with a page that says what went wrong, and leads back to the dashboard. */
export function answerPage(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { message } = beginErrorAnswer(error, request, reply);
  const text = message.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const content = `<p>${text}.</p><p>Request ${request.id}</p><p><a href="../../">Back to the dashboard</a></p>`;
  return reply.headers(PAGE_HEADERS).send(pageHtml('Not signed in', content));
}

/** Logs an error, and sets the status and the headers of its answer. */
function beginErrorAnswer(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
): Failure {
  request.failure = meaningOf(refusalOf(request, error), request);
  const { code } = request.failure;
  const message = advised(request.failure.message);
  if (code === 'INTERNAL_SERVER_ERROR') request.log.error({ ...namesOf(request), err: error }, UNHANDLED);
  if (code === 'SERVICE_UNAVAILABLE')
    request.log.warn({ ...namesOf(request), err: error.cause ?? error }, message);
  const { retryAfterMs: waitMs = RETRYABLE.has(code) ? 0 : undefined } = request.failure;
  if (waitMs !== undefined)
    reply.header('retry-after', String(Math.max(RETRY_AFTER_SECONDS, Math.ceil(waitMs / 1000))));
  if (code === 'UNAUTHORIZED') reply.header('www-authenticate', 'Bearer');
  reply.code(ERRORS[code][0]).header('x-request-id', request.id);
  return { code, message };
}

/**
 * Returns the message of an error with advice where the id of a key was sent in place of an API's, or the reverse. It
 * looks only at the message, so that what does not exist and what the caller may not see are told alike.
 */
function advised(message: string): string {
  if (/^api key_\w+ not found$/.test(message))
    return `${message}; this is the id of a key: send the id of its API`;
  if (/^key (?!key_)\S+ not found$/.test(message))
    return `${message}; ids of keys begin with key_, as createKey returned them`;
  return message;
}

/** The error, or the refusal of a call over its limit if nobody has seen whether it stops something. */
const refusalOf = ({ call }: FastifyRequest, error: FastifyError | ApiError): FastifyError | ApiError =>
  error instanceof Excess || !call || !('excess' in call) ? error : (call.excess ?? error);

/** Tells whether a person opened the address: programs that call the API ask for JSON or for anything. */
const isBrowser = ({ headers }: FastifyRequest) => headers.accept?.includes('text/html') ?? false;

/** The form of a host and port; a client may send anything else. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/** Returns the address at which the caller reached this server; '' = it sent no usable one. */
const baseOf = ({ protocol, host }: FastifyRequest) => (HOST.test(host) ? `${protocol}://${host}` : '');

/** Tells whether a request is for version 2 of the interface, whose errors have another shape. */
const isV2 = ({ url }: FastifyRequest) => url.startsWith('/v2/');

function meaningOf(error: FastifyError | ApiError, request: FastifyRequest): Failure {
  if (error instanceof ApiError) return error;
  if (error.validation) return { code: 'BAD_REQUEST', message: explain(error, request) };
  const fastifyCode = FASTIFY_CODES[error.code];
  if (fastifyCode) return { code: fastifyCode[0], message: fastifyCode[1] };
  // secure-json-parse and body parsers set their own status
  if (error.statusCode === 400) return { code: 'BAD_REQUEST', message: 'body: is not acceptable JSON' };
  // So does the file server: a path outside its folder, or a range or condition that cannot be met.
  if (error.statusCode === 403 || error.statusCode === 404)
    return { code: 'NOT_FOUND', message: 'no such path' };
  if (error.statusCode !== undefined && error.statusCode > 400 && error.statusCode < 500) {
    return { code: 'BAD_REQUEST', message: `headers: ${STATUS_CODES[error.statusCode] ?? 'not acceptable'}` };
  }
  return { code: 'INTERNAL_SERVER_ERROR', message: 'something went wrong on our side' };
}

/** Returns `field: rule` for each fault, one a line. */
function explain(error: FastifyError, request: FastifyRequest): string {
  const part = error.validationContext === 'querystring' ? 'query' : (error.validationContext ?? 'body');
  const faults = request.routeOptions.schema ? error.validation : undefined;
  const isQuery = part === 'query';
  return faultTexts(faults, {
    whole: part,
    part: isQuery ? 'query parameter' : 'field',
    schema: isQuery ? request.routeOptions.schema?.querystring : request.routeOptions.schema?.body,
    value: isQuery ? request.query : request.body,
  }).join('\n');
}

/** Answers a request that violates HTTP, with JSON in the usual shape. */
export function answerBrokenRequest(
  this: FastifyInstance,
  error: NodeJS.ErrnoException,
  socket: Socket,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [code, message]: [ErrorCode, string] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? ['HEADERS_TOO_LARGE', 'headers: over the limit']
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? ['REQUEST_TIMEOUT', 'the request did not arrive in time']
        : ['BAD_REQUEST', 'the request is not valid HTTP'];
  answerRaw(socket, code, message);
}

/** Answers on a bare socket and closes it within LINGER_MS, whatever the client does. */
export function answerRaw(socket: Duplex, code: ErrorCode, message: string): void {
  const requestId = newRequestId();
  const body = JSON.stringify(errorBody(code, message, requestId));
  const [status] = ERRORS[code];
  socket.end(
    `HTTP/1.1 ${status} ${code}\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${requestId}\r\nConnection: close\r\n\r\n${body}`,
  );
  // Otherwise a client that keeps its side open would keep the connection.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
