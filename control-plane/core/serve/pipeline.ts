import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { rootKeyFrom } from '#shared/protocol/records/root-keys-record.ts';
import { unavailable } from '#shared/rules/errors.ts';
import { traceIdOf } from '#shared/rules/request-id.ts';
import type { BootstrapKeys } from '../callers/bootstrap-keys.ts';
import type { RootKeys } from '../callers/root-keys.ts';
import type { Sessions } from '../callers/sessions.ts';
import type { AuditKind } from '../schema/audit-event.ts';
import { type Admission, admitted } from './admission.ts';
import { authorize, MaskedNotFound } from './authorization.ts';
import { callerOfSession, hasSession, tokenOf } from './browser-session.ts';
import { type Arrived, type Authenticated, type Call, callerIdOf, callOf, recordOf } from './call.ts';
import { namesOf } from './errors.ts';
import type { LoadShedding } from './load-shedding.ts';
import type { Once } from './once.ts';
import { routeSchema } from './openapi.ts';
import { isGet, isStop, type Operation, pathOf } from './operation.ts';
import type { ApiIndex, CallMetrics, CallRecorder, KeyIndex } from './ports.ts';
import { Excess } from './rate-limits.ts';
import { refuseSecrets } from './secrets.ts';
import { type App, noSuchPath } from './server.ts';
import { checkStrings } from './strings.ts';
import type { Turns } from './turns.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The call of an operation, as far as it has come; undefined on every other path. Only the pipeline sets it. */
    call: Arrived | Authenticated | Call | undefined;
  }
  interface FastifyContextConfig {
    /** The operation that the route serves. */
    operation?: Operation;
    /** Refuses a request to a path of no operation before its body is read. */
    admit?: (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
  }
}

/**
 * Headers of every response. Strict-Transport-Security is a promise for a whole domain, so it is left to the
 * proxy that terminates TLS.
 */
const HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none';base-uri 'none';form-action 'none';frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'origin-agent-cluster': '?1',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-dns-prefetch-control': 'off',
  'x-download-options': 'noopen',
  'x-frame-options': 'DENY',
  'x-permitted-cross-domain-policies': 'none',
  'x-xss-protection': '0',
} as const;

/** Paths that the metric of requests leaves out: pages and their files, and reports of leaks, which have their own. */
const UNMEASURED = /^\/(docs|dashboard)(?!\/(session|handover))\b|^\/v1\/leaks\./;

/** The parts that steps use. */
interface PipelineParts {
  /** Paths that an error for a misspelt path may name. */
  readonly paths: readonly string[];
  readonly clock: Clock;
  readonly keys: KeyIndex;
  readonly apis: ApiIndex;
  readonly audit: CallRecorder;
  readonly rootKeys: RootKeys;
  readonly sessions: Sessions;
  readonly admission: Admission;
  readonly shedding: LoadShedding;
  readonly bootstrapKeys: BootstrapKeys;
  /**
   * The calls of each root key that run at the same time. A call counts until it is answered, or has written and
   * only waits for verifiers. Redis does one thing at a time, so more concurrent calls would speed up no caller and
   * slow down others. Calls that stop something have turns of their own, so that they wait for no others.
   */
  readonly turns: Turns;
  readonly once: Once;
  readonly metrics: CallMetrics;
  readonly log: Logger;
  readonly isStopping: () => boolean;
}

/**
 * The steps of every request, in their order: `admit` before the body is read, `check` before the schema is applied,
 * `begin` after it, and `conclude`. A step throws its refusal, or returns what the call has become by it.
 * Fastify only routes, parses, validates and serialises. Add the pipeline before all routes.
 */
export function addPipeline(app: App, parts: PipelineParts): void {
  app.decorateRequest('call', undefined);
  app.decorateRequest('traceId', undefined);
  app.addHook('onRequest', (request, reply) => admit(request, reply, parts));
  app.addHook('preValidation', (request) => check(request, parts));
  app.addHook('onSend', async (request, reply, payload) => {
    await conclude(request, reply, parts);
    return payload;
  });
  app.addHook('onResponse', async (request, reply) => report(request, reply, parts));
  // For a folder of files that has no such file.
  app.setNotFoundHandler((request, reply) => refusePath(request, reply, parts));
}

/** Adds the routes of the operations, which get what they need. */
export function serveOperations<Needs>(
  app: App,
  operations: readonly Operation<string, TSchema, TSchema, Needs>[],
  needs: Needs,
  parts: PipelineParts,
): void {
  for (const operation of operations) {
    const { bodyBytesMax } = operation;
    app.route({
      ...(bodyBytesMax === undefined ? {} : { bodyLimit: bodyBytesMax }),
      config: { operation },
      method: isGet(operation) ? 'GET' : 'POST',
      url: pathOf(operation),
      schema: routeSchema(operation),
      handler: async (request) => {
        const call = await begin(operation, request, parts);
        const secret = secretOf(request);
        return parts.once.make(operation, { request, secret }, call, (call) => operation.handle(call, needs));
      },
    });
  }
}

async function admit(request: FastifyRequest, reply: FastifyReply, parts: PipelineParts): Promise<void> {
  const { operation, admit: admitOther } = request.routeOptions.config;
  request.traceId = traceIdOf(request.headers.traceparent);
  reply.headers(HEADERS).header('x-request-id', request.id);
  if (operation && !request.is404) request.call = arrive(operation, request, parts);
  shed(operation, parts);
  if (request.is404) refusePath(request, reply, parts);
  await admitOther?.(request, reply);
  if (operation && request.call) request.call = await authenticate(operation, request.call, request, parts);
}

async function check(request: FastifyRequest, parts: PipelineParts): Promise<void> {
  const { operation } = request.routeOptions.config;
  if (!operation?.checksStrings) checkStrings(request.body);
  if (!operation) return;
  request.call = await spare(operation, authenticated(request), request, parts);
  await refuseSecrets(requestOf(request), parts.bootstrapKeys, parts.keys);
}

async function begin(operation: Operation, request: FastifyRequest, parts: PipelineParts): Promise<Call> {
  const call = await takeTurn(operation, authenticated(request), request, parts);
  request.call = call;
  return operation.authorizesItself ? call : authorize(operation, call, parts.keys);
}

/** Waits for the audit log before the call is answered, so that a caller with an answer finds the call listed. */
async function conclude(request: FastifyRequest, reply: FastifyReply, parts: PipelineParts): Promise<void> {
  const { call, failure } = request;
  if (call) await recordEnd(call, request, parts);
  // Not in `report`, which does not run for a client that has gone.
  if (call && hasTurn(call)) call.giveTurnBack();
  if (failure instanceof Excess) parts.metrics.rates.inc({ limit: failure.limit });
  if (parts.isStopping()) reply.header('connection', 'close');
}

function report(request: FastifyRequest, reply: FastifyReply, { log, metrics }: PipelineParts): void {
  const { call, method } = request;
  const { statusCode: status, elapsedTime: ms } = reply;
  const path = request.routeOptions.url ?? 'unknown';
  const caller = call && 'caller' in call ? callerIdOf(call.caller) : {};
  log.info({ ...namesOf(request), method, path, status, ms: Math.round(ms * 10) / 10, ...caller }, 'request');
  if (!UNMEASURED.test(path)) metrics.requests.observe({ operation: path, status }, ms / 1000);
}

/** The request of an operation: the body or the query. */
const requestOf = ({ body, query }: FastifyRequest): unknown => body ?? query;

/** The secret by which the caller was identified. */
const secretOf = (request: FastifyRequest): string =>
  hasSession(request) ? (tokenOf(request) ?? '') : rootKeyFrom(request.headers.authorization);

/** Tells whether a call has its turn: from then on an outage leaves its outcome unknown. */
const hasTurn = (call: Arrived | Call): call is Call => 'giveTurnBack' in call;

function authenticated({ call }: FastifyRequest): Authenticated {
  if (!call || !('caller' in call)) throw new Error('a call was not behind authentication');
  return call;
}

function arrive(
  { name, idNames = {} }: Operation,
  request: FastifyRequest,
  { clock }: PipelineParts,
): Arrived {
  const address = request.ip ?? 'unknown';
  const arrival = { time: clock.wallMs(), ...namesOf(request), operation: name, address };
  return { arrival, idNames, log: request.log };
}

/** Refuses new requests while the event loop lags, before they cost anything. */
function shed(operation: Operation | undefined, { shedding, metrics }: PipelineParts): void {
  if (operation?.neverShed || !shedding.isDue()) return;
  metrics.shed.inc();
  throw unavailable('the control plane is overloaded; try again');
}

function refusePath(request: FastifyRequest, reply: FastifyReply, parts: PipelineParts): never {
  throw noSuchPath(request, reply, parts.paths);
}

/** Identifies the caller, and counts the call. */
async function authenticate(
  operation: Operation,
  call: Arrived,
  request: FastifyRequest,
  { admission, sessions, rootKeys }: PipelineParts,
): Promise<Authenticated> {
  // A call of a known root key is counted while the key is read, so that it waits for Redis once.
  let counting: Promise<Excess | undefined> | undefined;
  const count = (callerId: string) => {
    counting ??= admission.rates.excess(callerId, operation.kind === 'change' ? 'POST' : 'GET');
    return counting;
  };
  const caller = await admitted(
    admission,
    request,
    hasSession(request)
      ? callerOfSession(request, sessions)
      : rootKeys.authenticate(request.headers.authorization, (callerId) => void count(callerId)),
  );
  const excess = await count(caller.id);
  if (excess && operation.stops === undefined) throw excess;
  return { ...call, caller, ...(excess && { excess }) };
}

/** Lets a call over its caller's limit pass if it stops something; these calls have a limit of their own. */
async function spare(
  operation: Operation,
  { excess, ...call }: Authenticated,
  { body }: FastifyRequest,
  { admission }: PipelineParts,
): Promise<Authenticated> {
  const refusal =
    excess && isStop(operation, body) ? await admission.rates.excess(call.caller.id, 'STOP') : excess;
  if (refusal) throw refusal;
  return call;
}

/** Waits until it is the call's turn among those of its root key. */
async function takeTurn(
  operation: Operation,
  call: Authenticated,
  fastifyRequest: FastifyRequest,
  { turns, ...parts }: PipelineParts,
): Promise<Call> {
  const request = requestOf(fastifyRequest);
  const { id } = call.caller;
  const turn = turns.take(isStop(operation, request) ? `${id} stops` : id);
  if (!turn) throw new Excess('waiting', `more than ${turns.waitingMax} calls of this root key are waiting`);
  return callOf(call, request, await turn, parts);
}

/**
 * Records how a call ended. Recorded are changes, attempted changes, calls refused for lack of a permission, and
 * calls whose NOT_FOUND may hide such a refusal. Not recorded are permitted reads, calls over a rate limit, and calls
 * that an outage ended before they did anything. A call that wrote something and then failed is recorded twice.
 */
async function recordEnd(
  call: NonNullable<FastifyRequest['call']>,
  request: FastifyRequest,
  parts: PipelineParts,
): Promise<void> {
  if ('isRepetition' in call) return;
  const { failure } = request;
  const outcome = failure instanceof MaskedNotFound ? failure.outcome : (failure?.code ?? 'OK');
  const kind = kindOf(request, hasTurn(call));
  if (kind === undefined) return;
  const record = hasTurn(call) ? call : recordOf(call, requestOf(request), parts);
  await record.recordEnd(kind, outcome);
}

/** Returns the kind of event for a request; undefined = do not record it. */
function kindOf({ failure, routeOptions }: FastifyRequest, mayHaveWritten: boolean): AuditKind | undefined {
  const { operation } = routeOptions.config;
  const changes = operation?.kind === 'change';
  if (failure instanceof MaskedNotFound) return 'refused';
  switch (failure?.code) {
    case undefined:
      return changes ? 'done' : undefined;
    case 'RATE_LIMITED':
      return undefined;
    case 'SERVICE_UNAVAILABLE':
    case 'INTERNAL_SERVER_ERROR':
      return changes && mayHaveWritten ? 'done' : undefined;
    case 'UNAUTHORIZED':
    case 'INSUFFICIENT_PERMISSIONS':
      return 'refused';
    default:
      return changes ? 'refused' : undefined;
  }
}
