import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifySchemaValidationError,
} from 'fastify';
import {
  ApiError,
  ERROR_DOCS_PATH,
  ERRORS,
  type ErrorCode,
  errorBody,
  errorDocsHtml,
  RETRY_AFTER_SECONDS,
} from '#shared/errors.ts';
import { newRequestId, requestIdFrom } from '#shared/request-id.ts';
import { traceIdOf } from '#shared/trace-id.ts';
import { UNHANDLED } from '#shared/unhandled-error.ts';
import { LINGER_MS } from './connections.ts';
import { readJson } from './json-body.ts';
import type { HttpLimits } from './limits.ts';
import { serializerAtFirstCall, validatorAtFirstCall } from './schema-compilers.ts';

/** The Fastify instance with our defaults, which routes are added to. */
export type App = ReturnType<typeof createServer>;

/** Fastify with the contract's rules: strict validation, one error shape on every path, a request id on all. */
export function createServer(config: HttpLimits, log: FastifyBaseLogger) {
  const app = fastify({
    loggerInstance: log,
    logController: new fastify.LogController({ disableRequestLogging: true }),
    requestIdHeader: false,
    genReqId: (request) => requestIdFrom(request.headers['x-request-id']),
    trustProxy: config.TRUSTED_PROXIES.length > 0 ? [...config.TRUSTED_PROXIES] : false,
    bodyLimit: config.BODY_BYTES_MAX,
    requestTimeout: config.REQUEST_TIMEOUT_MS,
    keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    exposeHeadRoutes: false,
    http: {
      maxHeaderSize: config.HEADER_BYTES_MAX,
      // Node takes the longer of the two for the whole request, and has 60 s for the head by itself; and it looks every 30 s.
      headersTimeout: config.REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: 1000,
    },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => answerError(error, request, reply),
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.setValidatorCompiler(validatorAtFirstCall).setSerializerCompiler(serializerAtFirstCall);
  app.decorateRequest('failure', undefined);
  app.decorateRequest('traceId', undefined);
  app.removeContentTypeParser('text/plain');
  readJson(app);
  // Emitted for a connection that could not be accepted, as when there are too many open files. Without a listener the process
  // would end.
  app.server.on(
    'error',
    (err) => app.server.listening && log.error({ err }, 'a connection was not accepted'),
  );
  app.server.on('checkExpectation', (_request, response) => {
    const requestId = newRequestId();
    const body = JSON.stringify(
      errorBody('EXPECTATION_FAILED', 'Expect: only 100-continue is understood', requestId),
    );
    const head = { 'content-type': JSON_TYPE, 'x-request-id': requestId, connection: 'close' };
    response.writeHead(ERRORS.EXPECTATION_FAILED[0], head).end(body);
  });

  app.server.on('connect', (_request, socket) => {
    // Node has let go of it: an error that nobody listens to would end the process.
    socket.on('error', () => socket.destroy());
    answerRaw(socket, 'NOT_FOUND', 'no such path');
  });

  const methods = new Map<string, string>();
  app.addHook('onRoute', ({ url, method }) => void methods.set(url, String(method)));
  app.addHook('onRequest', (request, reply, done) => {
    request.traceId = traceIdOf(request.headers.traceparent);
    reply.header('x-request-id', request.id).header('cache-control', 'no-store');
    done();
  });
  app.addHook('preParsing', (request, reply, payload, done) => {
    // The body sent to a path that does not exist plays no part in the answer.
    if (request.is404) done(noSuchPath(request, reply));
    else done(null, payload);
  });
  app.addHook('onResponse', (request, reply, done) => {
    log.info(
      {
        ...namesOf(request),
        method: request.method,
        path: request.routeOptions.url ?? 'unknown',
        status: reply.statusCode,
        ms: Math.round(reply.elapsedTime * 10) / 10,
        ...(request.caller ? { rootKeyId: request.caller.rootKeyId } : {}),
      },
      'request',
    );
    done();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => answerError(error, request, reply));
  const noSuchPath = (request: FastifyRequest, reply: FastifyReply) => {
    const allowed = methods.get(request.url.split('?')[0] ?? '');
    if (allowed === undefined) return new ApiError('NOT_FOUND', 'no such path');
    reply.header('allow', allowed);
    return new ApiError('METHOD_NOT_ALLOWED', `this path takes ${allowed} only`);
  };
  app.setNotFoundHandler((request, reply) => answerError(noSuchPath(request, reply), request, reply));
  app.get(ERROR_DOCS_PATH, async (_request, reply) => {
    reply.type('text/html; charset=utf-8');
    return errorDocsHtml();
  });
  return app;
}

/** The error that refused a request; an ApiError where one was thrown. */
interface Failure {
  readonly code: ErrorCode;
  readonly message: string;
}

declare module 'fastify' {
  interface FastifyRequest {
    failure: Failure | undefined;
    /** Of the caller's trace, where it says that it is in one (W3C Trace Context). */
    traceId: string | undefined;
  }
}

const JSON_TYPE = 'application/json; charset=utf-8';

/** Our codes for Fastify's own refusals. */
const FASTIFY_CODES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ['UNSUPPORTED_MEDIA_TYPE', 'Content-Type: must be application/json'],
  FST_ERR_CTP_BODY_TOO_LARGE: ['PAYLOAD_TOO_LARGE', 'body: over the limit'],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['BAD_REQUEST', 'body: required, a JSON object'],
  FST_ERR_CTP_INVALID_JSON_BODY: ['BAD_REQUEST', 'body: is not JSON'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ['BAD_REQUEST', 'body: is not as long as Content-Length says'],
  FST_ERR_BAD_URL: ['BAD_REQUEST', 'path: is not a valid URL'],
  FST_ERR_MAX_PARAM_LENGTH: ['URI_TOO_LONG', 'path: over the limit'],
};

/** The ids by which logs and the audit log name a request. */
export function namesOf({ id, traceId }: FastifyRequest): { requestId: string; traceId?: string } {
  return { requestId: id, ...(traceId === undefined ? {} : { traceId }) };
}

function answerError(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  request.failure = meaningOf(error, request);
  const { code, message } = request.failure;
  if (code === 'INTERNAL_SERVER_ERROR') request.log.error({ ...namesOf(request), err: error }, UNHANDLED);
  if (code === 'SERVICE_UNAVAILABLE') {
    request.log.warn({ ...namesOf(request), err: error.cause ?? error }, message);
    reply.header('retry-after', String(RETRY_AFTER_SECONDS));
  }
  if (code === 'UNAUTHORIZED') reply.header('www-authenticate', 'Bearer');
  return reply
    .code(ERRORS[code][0])
    .header('x-request-id', request.id)
    .type(JSON_TYPE)
    .send(JSON.stringify(errorBody(code, message, request.id)));
}

function meaningOf(error: FastifyError | ApiError, request: FastifyRequest): Failure {
  if (error instanceof ApiError) return error;
  if (error.validation) return { code: 'BAD_REQUEST', message: explain(error, request) };
  const known = FASTIFY_CODES[error.code];
  if (known) return { code: known[0], message: known[1] };
  // secure-json-parse and body parsers refuse with a status of their own
  if (error.statusCode === 400) return { code: 'BAD_REQUEST', message: 'body: is not acceptable JSON' };
  // So does what serves files: a path out of its folder, a range or a condition that cannot be met.
  if (error.statusCode === 403 || error.statusCode === 404)
    return { code: 'NOT_FOUND', message: 'no such path' };
  if (error.statusCode !== undefined && error.statusCode > 400 && error.statusCode < 500) {
    return { code: 'BAD_REQUEST', message: `headers: ${STATUS_CODES[error.statusCode] ?? 'not acceptable'}` };
  }
  return { code: 'INTERNAL_SERVER_ERROR', message: 'something went wrong on our side' };
}

/** `field: rule` of the first thing that is wrong. */
function explain(error: FastifyError, request: FastifyRequest): string {
  const where = error.validationContext === 'querystring' ? 'query' : (error.validationContext ?? 'body');
  const faults = request.routeOptions.schema ? error.validation : undefined;
  return faultText(faults, where, where === 'query' ? 'query parameter' : 'field');
}

type Fault = Pick<FastifySchemaValidationError, 'keyword' | 'instancePath' | 'params' | 'message'>;

/** The first fault of a validation as `field: rule`. Never the value, which might be a secret. */
export function faultText(faults: readonly Fault[] | null | undefined, whole: string, part: string): string {
  const fault = faults?.[0];
  if (!faults || !fault) return `${whole}: is wrong`;
  const path = fault.instancePath.slice(1).replaceAll('/', '.');
  const field = (name: unknown) => (path ? `${path}.${String(name)}` : String(name));
  if (fault.keyword === 'required') return `${field(fault.params['missingProperty'])}: required`;
  if (fault.keyword === 'additionalProperties') {
    return `${field(fault.params['additionalProperty'])}: unknown ${part}`;
  }
  if (fault.keyword === 'const') return `${path || whole}: must be ${allowed(faults, fault)}`;
  return `${path || whole}: ${fault.message ?? 'is wrong'}`;
}

/** The values that may stand where a fault is; each that was tried is a fault of its own. */
function allowed(faults: readonly Fault[], { instancePath }: Fault): string {
  return faults
    .filter((fault) => fault.keyword === 'const' && fault.instancePath === instancePath)
    .map(({ params }) => JSON.stringify(params['allowedValue']))
    .join(' or ');
}

/** A request that HTTP itself refuses still gets JSON of our shape. */
function answerBrokenRequest(
  this: FastifyInstance,
  error: NodeJS.ErrnoException,
  socket: import('node:net').Socket,
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

/** Answers where there is no request to answer, and closes: within LINGER_MS, whatever the client does. */
function answerRaw(socket: Duplex, code: ErrorCode, message: string): void {
  const requestId = newRequestId();
  const body = JSON.stringify(errorBody(code, message, requestId));
  const [status] = ERRORS[code];
  socket.end(
    `HTTP/1.1 ${status} ${code}\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${requestId}\r\nConnection: close\r\n\r\n${body}`,
  );
  // Nothing else would end a connection whose client keeps its side open.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
