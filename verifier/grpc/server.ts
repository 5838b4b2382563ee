import { fileURLToPath } from 'node:url';
import type { ServerInterceptor, ServerUnaryCall, ServiceDefinition, sendUnaryData } from '@grpc/grpc-js';
import { RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { requestIdFrom } from '#shared/contract/request-id.ts';
import { toApiError, UNHANDLED } from '#shared/contract/unhandled-error.ts';
import { listening } from '#shared/process/listening.ts';
import { list, port, type Setting } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { asset } from '../assets.ts';
import { type RefusalLog, routeOf, type VerdictSource } from '../core/verdict.ts';
import type { AuthzSettings } from '../http/authz.ts';
import { type AuthzAnswer, authzAnswer, type HeaderLine } from '../http/gateway-answer.ts';
import { LINGER_MS, problemBody } from '../http/respond.ts';
import type { HttpLimits } from '../http/server.ts';
import type { Certificate } from '../http/tls.ts';
import {
  type CheckRequest,
  type CheckResponse,
  checkQuestion,
  checkRequestId,
  checkResponse,
  checkTraceId,
  GRPC_INTERNAL,
} from './check.ts';
import { Connections } from './connections.ts';
import { dynamicMetadata, type Struct } from './envoy-metadata.ts';
import { GrpcHealth } from './health.ts';

const anyPort = port(0).help(
  "Port at HOST for Envoy's ext_authz over gRPC, which also serves `grpc.health.v1`. If empty, there is no such port",
);
const grpcPort: Setting<number | undefined> = {
  ...anyPort,
  default: '',
  parse: (value) => (value === '' ? undefined : anyPort.parse(value)),
};

const META_FIELDS_MAX = 16;
const namedFields = list(
  /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/,
  `at most ${META_FIELDS_MAX} names of fields, comma-separated`,
).help(
  "Fields of a key's `meta` that Envoy's other filters and its access log can read, as `meta` in the dynamic metadata of ext_authz over gRPC. A field that a key lacks, or that is neither a number, a boolean nor a string of at most 256 characters, is left out",
);
const metaFields: Setting<readonly string[]> = {
  ...namedFields,
  parse(value) {
    const names = namedFields.parse(value);
    if (names.length > META_FIELDS_MAX) throw new Error('has too many names');
    return names;
  },
};

export const grpcSettings = { EXT_AUTHZ_GRPC_PORT: grpcPort, METADATA_FIELDS: metaFields };

/** The listener for Envoy's gRPC. */
export interface GrpcListener {
  /** Address in use, as `host:port`. */
  readonly address: string;
  /** The answer to health checks; false at the start. */
  serving: boolean;
  /** Accepts no more connections. */
  stopListening(): Promise<void>;
  /** Answers the calls that have arrived. Cuts connections that are still open after `graceMs`. */
  close(graceMs: number): Promise<void>;
}

const SERVICE = 'envoy.service.auth.v3.Authorization';
const HEALTH = 'grpc.health.v1.Health';
/** A request contains the client's headers, and the client's body if Envoy is configured to send it. */
const MESSAGE_BYTES_MAX = 1_048_576;

/** Listens for `Check` and health checks. Loads gRPC only when called, because loading takes 140 ms. */
export async function listenGrpc(options: {
  verifier: VerdictSource;
  authz: AuthzSettings;
  /** Names of the fields of `meta` in the dynamic metadata. */
  metaFields: readonly string[];
  log: Pick<Logger, 'error'>;
  certificate?: Certificate | undefined;
  host: string;
  port: number;
  /** True if other processes may listen at the same port. */
  isShared?: boolean;
  limits: Pick<
    HttpLimits,
    | 'CONNECTIONS_MAX'
    | 'HEADERS_TIMEOUT_MS'
    | 'KEEP_ALIVE_TIMEOUT_MS'
    | 'REQUEST_TIMEOUT_MS'
    | 'REQUESTS_IN_FLIGHT_MAX'
  >;
}): Promise<GrpcListener> {
  const [{ default: grpc }, { default: loader }] = await Promise.all([
    import('@grpc/grpc-js'),
    import('@grpc/proto-loader'),
  ]);
  const protos = await loader.load(['ext-authz.proto', 'health.proto'], {
    includeDirs: [fileURLToPath(asset('grpc'))],
    keepCase: true,
  });
  const timely = timelyCalls(grpc, options.limits.REQUEST_TIMEOUT_MS, (peer) => connections.cut(peer));
  const server = new grpc.Server({
    interceptors: [timely],
    'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
    'grpc.max_concurrent_streams': options.limits.REQUESTS_IN_FLIGHT_MAX,
    'grpc.max_connection_idle_ms': options.limits.KEEP_ALIVE_TIMEOUT_MS,
  });
  const health = new GrpcHealth([SERVICE]);
  server.addService(protos[SERVICE] as ServiceDefinition, { Check: checkMethod(options) });
  server.addService(protos[HEALTH] as ServiceDefinition, health.methods);
  const { certificate, log } = options;
  // The injected connections are already decrypted.
  const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure());
  const connections = new Connections(injector, options.limits, log, certificate);
  const { host, port, isShared = false } = options;
  const opening = connections.listen(host, port, isShared);
  const address = await listening('EXT_AUTHZ_GRPC_PORT', `${host}:${port}`, opening);
  return {
    address,
    set serving(serving: boolean) {
      health.serving = serving;
    },
    stopListening: () => connections.stopListening(),
    async close(graceMs) {
      health.close();
      const closed = connections.close();
      const timer = setTimeout(() => {
        server.forceShutdown();
        connections.cut();
      }, graceMs);
      await new Promise((resolve) => server.tryShutdown(resolve));
      await closed;
      clearTimeout(timer);
    },
  };
}

/**
 * Ends a call whose message does not arrive within `limitMs`, and soon the connection, too. gRPC itself would
 * wait for ever.
 * @param cut cuts the connection from this peer
 */
function timelyCalls(
  grpc: typeof import('@grpc/grpc-js'),
  limitMs: number,
  cut: (peer: string) => void,
): ServerInterceptor {
  return (_method, call) => {
    let timer: NodeJS.Timeout;
    const end = () => {
      call.sendStatus({
        code: grpc.status.DEADLINE_EXCEEDED,
        details: 'the request did not arrive in time',
      });
      setTimeout(() => cut(call.getPeer()), LINGER_MS).unref();
    };
    return new grpc.ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata(metadata, proceed) {
            timer = setTimeout(end, limitMs).unref();
            proceed(metadata);
          },
          onReceiveHalfClose(proceed) {
            clearTimeout(timer);
            proceed();
          },
          onCancel: () => clearTimeout(timer),
        }),
    });
  };
}

/**
 * Creates the Check method. An outage is a denial with 503, because Envoy would turn a gRPC error into 403,
 * or let the request pass.
 */
function checkMethod({
  verifier,
  refusals,
  authz,
  metaFields,
  log,
}: {
  verifier: VerdictSource;
  refusals?: RefusalLog | undefined;
  authz: AuthzSettings;
  metaFields: readonly string[];
  log: Pick<Logger, 'error'>;
}) {
  const answerTo = async (
    request: CheckRequest,
    requestId: string,
  ): Promise<readonly [AuthzAnswer, Struct]> => {
    try {
      const question = checkQuestion(request, authz);
      if ('code' in question)
        return [authzAnswer(question, requestId, authz.withMeta), dynamicMetadata(question, metaFields)];
      const outcome = verifier.decide(question) ?? (await verifier.lookUp(question));
      const { method, path } = request.attributes?.request?.http ?? {};
      refusals?.note(outcome, { requestId, clientIp: question.clientIp, route: routeOf(method, path) });
      return [authzAnswer(outcome, requestId, authz.withMeta), dynamicMetadata(outcome, metaFields)];
    } catch (error) {
      const { status, code } = toApiError(error, log, { requestId, traceId: checkTraceId(request) });
      const body = problemBody({ status, code, requestId });
      const headers: HeaderLine[] = status === 503 ? [['Retry-After', String(RETRY_AFTER_SECONDS)]] : [];
      return [{ status, body, headers }, dynamicMetadata({ code }, metaFields)];
    }
  };
  return (
    { request }: ServerUnaryCall<CheckRequest, CheckResponse>,
    reply: sendUnaryData<CheckResponse>,
  ): Promise<void> =>
    answerTo(request, requestIdFrom(checkRequestId(request)))
      .then(([answer, metadata]) => reply(null, checkResponse(answer, metadata, request, authz)))
      .catch((err: unknown) => {
        // The error makes Envoy refuse. No caller handles a rejection here, so a rejection would end the
        // process.
        log.error({ err }, UNHANDLED);
        reply({ code: GRPC_INTERNAL });
      });
}
