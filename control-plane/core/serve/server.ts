import { isUtf8 } from 'node:buffer';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { ApiError, ERROR_DOCS_PATH, ERRORS, errorBody, errorSections } from '#shared/rules/errors.ts';
import { BYTE_ORDER_MARK, MARKED, parseExactly } from '#shared/rules/json.ts';
import { isWellFormed } from '#shared/rules/key-format.ts';
import { newRequestId, requestIdFrom } from '#shared/rules/request-id.ts';
import { answerBrokenRequest, answerError, answerRaw, JSON_TYPE } from './errors.ts';
import type { HttpLimits } from './limits.ts';
import { nearest } from './nearest.ts';
import { PAGE_HEADERS, pageHtml, pageStyle, STYLE_PATH } from './pages/page.ts';
import { serializerAtFirstCall, validatorAtFirstCall } from './schema-compilers.ts';

/** The Fastify instance with our defaults, to which routes are added. */
export type App = ReturnType<typeof createApp>;

/**
 * Creates a Fastify server with the contract's rules: strict validation, one shape of errors on every path, a
 * request id on every response.
 * @param isSecret tells whether a request id that a client sent is a secret and must not be logged
 * @param dashboardStyle the style of the dashboard, whose colours and fonts other pages have
 */
export function createServer(
  config: HttpLimits,
  log: FastifyBaseLogger,
  isSecret: (text: string) => boolean = isWellFormed,
  dashboardStyle = '',
): App {
  const app = createApp(config, log, isSecret);
  app.setValidatorCompiler(validatorAtFirstCall).setSerializerCompiler(serializerAtFirstCall);
  app.decorateRequest('failure', undefined);
  app.removeContentTypeParser('text/plain');
  readJson(app);
  answerWithoutRequest(app, log);
  app.setErrorHandler((error: FastifyError, request, reply) => answerError(error, request, reply));
  servePages(app, pageStyle(dashboardStyle));
  return app;
}

/** Serves the page about errors, and the style of all pages outside the dashboard. */
function servePages(app: App, style: string): void {
  const errors = pageHtml('Errors', errorSections(), ERROR_DOCS_PATH);
  app.get(ERROR_DOCS_PATH, { schema: { hide: true } }, async (_request, reply) => {
    reply.headers(PAGE_HEADERS);
    return errors;
  });
  app.get(STYLE_PATH, { schema: { hide: true } }, async (_request, reply) => {
    reply.type('text/css; charset=utf-8').header('cache-control', 'no-cache');
    return style;
  });
}

function createApp(config: HttpLimits, log: FastifyBaseLogger, isSecret: (text: string) => boolean) {
  return fastify({
    loggerInstance: log,
    logController: new fastify.LogController({ disableRequestLogging: true }),
    requestIdHeader: false,
    genReqId: ({ headers }) => {
      const requestId = requestIdFrom(headers['x-request-id']);
      return isSecret(requestId) ? newRequestId() : requestId;
    },
    trustProxy: config.TRUSTED_PROXIES.length > 0 ? [...config.TRUSTED_PROXIES] : false,
    bodyLimit: config.BODY_BYTES_MAX,
    requestTimeout: config.REQUEST_TIMEOUT_MS,
    keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    exposeHeadRoutes: false,
    http: {
      maxHeaderSize: config.HEADER_BYTES_MAX,
      // Node takes the longer of the two for the whole request, has a separate 60 s default for the head, and
      // checks only every 30 s.
      headersTimeout: config.REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: 1000,
    },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => answerError(error, request, reply),
  }).withTypeProvider<TypeBoxTypeProvider>();
}

/**
 * Parses bodies as JSON, and refuses what could not be stored as it was sent. Bytes that are not UTF-8, and
 * unpaired surrogates, which the pipeline refuses, would become U+FFFD, so that two external ids could become the
 * same. Names that change an object's prototype are refused too.
 */
function readJson(app: App): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (!isUtf8(body)) return done(new ApiError('BAD_REQUEST', 'body: must be UTF-8'));
    const text = body.toString('utf8');
    if (text.startsWith(BYTE_ORDER_MARK)) return done(new ApiError('BAD_REQUEST', MARKED));
    void parse(request, text, (error) => {
      if (error) return done(isJson(text) ? prototypeNamed() : error);
      // A whole number that would be rounded becomes infinite, which no field takes.
      done(
        null,
        parseExactly(text, () => Number.POSITIVE_INFINITY),
      );
    });
  });
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // the parser's own error says so
  }
}

function prototypeNamed(): ApiError {
  return new ApiError('BAD_REQUEST', 'body: must have no __proto__, and no constructor with a prototype');
}

/** Answers requests that the server receives but that never reach Fastify's routes. */
function answerWithoutRequest({ server }: App, log: FastifyBaseLogger): void {
  // Emitted if a connection could not be accepted, for example because too many files are open. Without a
  // listener the process would end.
  server.on('error', (err) => server.listening && log.error({ err }, 'a connection was not accepted'));
  server.on('checkExpectation', (_request, response) => {
    const requestId = newRequestId();
    const body = JSON.stringify(
      errorBody('EXPECTATION_FAILED', 'Expect: only 100-continue is supported', requestId),
    );
    const head = { 'content-type': JSON_TYPE, 'x-request-id': requestId, connection: 'close' };
    response.writeHead(ERRORS.EXPECTATION_FAILED[0], head).end(body);
  });
  server.on('connect', (_request, socket) => {
    // Node no longer handles this socket's errors: an error without a listener would end the process.
    socket.on('error', () => socket.destroy());
    answerRaw(socket, 'NOT_FOUND', 'no such path');
  });
}

/** The methods of our paths. */
const METHODS = ['HEAD', 'POST', 'GET', 'DELETE'] as const;

/**
 * Returns the refusal of a request to a path that does not exist, or that takes another method.
 * @param paths those that the error may name
 */
export function noSuchPath(
  { url, server }: FastifyRequest,
  reply: FastifyReply,
  paths: readonly string[],
): ApiError {
  const path = url.split('?')[0] ?? '';
  const methodNames = METHODS.filter((method) => server.hasRoute({ url: path, method })).join(', ');
  if (methodNames === '') return new ApiError('NOT_FOUND', whyNoPath(url, paths));
  reply.header('allow', methodNames);
  return new ApiError('METHOD_NOT_ALLOWED', `this path accepts only ${methodNames}${howToSend(methodNames)}`);
}

/** Groups of operations of the hosted service that concern its hosting. */
const HOSTING =
  /^\/v2\/(apps|deployments?|deploy|domains|environments|gateway|github|internal|portal|projects)\./;

/** Returns the advice for a call with GET in place of POST, or the reverse. */
const howToSend = (methodNames: string) =>
  methodNames === 'POST'
    ? '; send POST, with the fields as JSON in the body'
    : methodNames === 'GET'
      ? '; send GET, with the fields in the query'
      : '';

function whyNoPath(url: string, paths: readonly string[]): string {
  if (HOSTING.test(url))
    return 'no such path: this operation belongs to a hosting product; Keyfence manages and verifies keys';
  if (url.startsWith('/v2/analytics.'))
    return 'no such path: only verifications are counted; ask analytics.getVerifications';
  if (/^\/v[12]\/keys\.verifyKey\b/.test(url))
    return 'no such path: send keys.verifyKey to a verifier; the verifiers have addresses of their own, and fleet.listVerifiers lists those that run';
  if (/^\/v2\/ratelimit\.(limit|multiLimit)\b/.test(url))
    return 'no such path: send ratelimit.limit and ratelimit.multiLimit to a verifier';
  const [, below, name = ''] = /^(\/v[12]\/)([^?]*)/.exec(url) ?? [];
  if (below === undefined) return 'no such path';
  const names = paths.filter((path) => path.startsWith(below)).map((path) => path.slice(below.length));
  const near = nearest(name, names);
  return near === undefined ? 'no such path' : `no such path; did you mean ${below}${near}?`;
}
