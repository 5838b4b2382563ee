import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { fileURLToPath } from 'node:url';
import type {
  ConnectionInjector,
  ServerInterceptor,
  ServerUnaryCall,
  ServerWritableStream,
  ServiceDefinition,
  sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { asset } from '#shared/assets.ts';
import { listening } from '#shared/process/listening.ts';
import { list, port, type Setting } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { RETRY_AFTER_SECONDS, toApiError, UNHANDLED } from '#shared/rules/errors.ts';
import { requestIdFrom } from '#shared/rules/request-id.ts';
import type { RefusalLog } from '../../core/ports.ts';
import { answerOn, routeOf, type VerdictSource } from '../../core/verdict.ts';
import type { AuthzSettings } from '../http/authz.ts';
import { keyHeaders } from '../http/credentials.ts';
import {
  type AuthzAnswer,
  type AuthzOutcome,
  authzAnswer,
  type HeaderLine,
  readableByPage,
} from '../http/gateway-answer.ts';
import { LINGER_MS, problemBody } from '../http/respond.ts';
import type { HttpLimits } from '../http/server.ts';
import { type Certificate, useCertificate } from '../http/tls.ts';
import {
  type CheckRequest,
  type CheckResponse,
  checkQuestion,
  checkRequestId,
  checkResponse,
  checkTraceId,
  dynamicMetadata,
  GRPC_INTERNAL,
  type Struct,
} from './check.ts';

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
  "Fields of a key's `meta` that Envoy's other filters and its access log can read, as `meta` in the dynamic metadata of ext_authz over gRPC: numbers, booleans, and strings of at most 256 characters",
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
    includeDirs: [fileURLToPath(asset('verifier/doors/grpc'))],
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
  const holdsKey = keyHeaders(authz.sources);
  const answerTo = async (
    request: CheckRequest,
    requestId: string,
  ): Promise<readonly [AuthzAnswer, Struct]> => {
    try {
      const question = checkQuestion(request, authz);
      const answerOf = (outcome: AuthzOutcome) => {
        const answer = authzAnswer(outcome, requestId, authz);
        return [
          readableByPage(answer, outcome, question.presenter.origin, authz.allowPreflight),
          dynamicMetadata(outcome, metaFields),
        ] as const;
      };
      if ('code' in question) return answerOf(question);
      const { method, path } = request.attributes?.request?.http ?? {};
      return await answerOn(verifier, question, (verdict) => {
        refusals?.note(verdict, question, { requestId, route: routeOf(method, path) });
        return answerOf(verdict);
      });
    } catch (error) {
      authz.wrongQuestions?.note(error);
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
      .then(([answer, metadata]) =>
        reply(null, checkResponse(answer, metadata, request, authz.sources, holdsKey)),
      )
      .catch((err: unknown) => {
        // The error makes Envoy refuse. No caller handles a rejection here, so a rejection would end the
        // process.
        log.error({ err }, UNHANDLED);
        reply({ code: GRPC_INTERNAL });
      });
}

/**
 * The shortest beginning of a client: the preface of HTTP/2, 24 bytes, and the header of its SETTINGS frame,
 * 9.
 */
const BEGINNING_BYTES = 33;

/**
 * The connections of a gRPC server, accepted here, and with TLS also decrypted here. gRPC's own listener sets
 * no limit to their number, keeps silent connections for ever, and waits two minutes for a handshake.
 */
class Connections {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #closed: Promise<void> | undefined;

  constructor(
    grpc: Pick<ConnectionInjector, 'injectConnection'>,
    limits: Pick<HttpLimits, 'CONNECTIONS_MAX' | 'HEADERS_TIMEOUT_MS'>,
    log: Pick<Logger, 'error'>,
    certificate: Certificate | undefined,
  ) {
    const accept = (socket: Socket) => {
      this.#open.add(socket);
      // After the beginning, gRPC's limit for idle sessions applies.
      const beginning = setTimeout(() => {
        if (socket.bytesRead < BEGINNING_BYTES) socket.destroy();
      }, limits.HEADERS_TIMEOUT_MS).unref();
      socket
        .on('error', () => socket.destroy())
        .once('close', () => {
          clearTimeout(beginning);
          this.#open.delete(socket);
        });
      grpc.injectConnection(socket);
    };
    const handshakeTimeout = limits.HEADERS_TIMEOUT_MS;
    const tls =
      certificate &&
      createTlsServer(
        { noDelay: true, handshakeTimeout, ALPNProtocols: ['h2'], requestCert: certificate.asksClients },
        accept,
      );
    if (tls) {
      useCertificate(tls, certificate);
      // Node does not close the socket after a failed or late handshake.
      tls.on('tlsClientError', (_error, socket) => socket.destroy());
      // Connections that are still in the handshake must be cut, too.
      tls.on('connection', (socket: Socket) => {
        this.#open.add(socket);
        socket.on('error', () => socket.destroy()).once('close', () => this.#open.delete(socket));
      });
    }
    this.#server = tls ?? createServer({ noDelay: true }, accept);
    this.#server.maxConnections = limits.CONNECTIONS_MAX;
    this.#server.on(
      'error',
      (err) => this.#server.listening && log.error({ err }, 'a connection was not accepted'),
    );
  }

  /** Resolves with the address in use, as `host:port`. */
  listen(host: string, port: number, isShared: boolean): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port, reusePort: isShared }, () => {
        this.#server.off('error', reject);
        const address = this.#server.address() as AddressInfo;
        resolve(`${host.includes(':') ? `[${host}]` : host}:${address.port}`);
      });
    });
  }

  /** Accepts no more connections. Resolves when all are closed. */
  stopListening(): Promise<void> {
    this.#closed ??= new Promise((resolve) => this.#server.close(() => resolve()));
    return this.#closed;
  }

  /** Accepts no more connections, ends those that have sent nothing, and resolves when all are closed. */
  close(): Promise<void> {
    for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy();
    return this.stopListening();
  }

  /** Cuts all open connections, or only the one from `peer`, as `host:port`. */
  cut(peer?: string): void {
    for (const socket of this.#open) {
      if (peer === undefined || peer === `${socket.remoteAddress}:${socket.remotePort}`) socket.destroy();
    }
  }
}

interface HealthRequest {
  readonly service?: string;
}
interface HealthResponse {
  readonly status: number;
}

const [SERVING, NOT_SERVING, SERVICE_UNKNOWN] = [1, 2, 3];
const NOT_FOUND: status.NOT_FOUND = 5;

/** The service grpc.health.v1 of a process that is ready or not as a whole. */
class GrpcHealth {
  readonly #services: ReadonlySet<string>;
  readonly #watchers = new Set<ServerWritableStream<HealthRequest, HealthResponse>>();
  #serving = false;

  /** @param services names that clients may ask for, besides '' for the whole process */
  constructor(services: readonly string[]) {
    this.#services = new Set(['', ...services]);
  }

  /** Notifies all watchers of a change. */
  set serving(serving: boolean) {
    if (serving === this.#serving) return;
    this.#serving = serving;
    for (const call of this.#watchers) this.#tell(call);
  }

  /** The methods of the service. */
  readonly methods = {
    Check: (call: ServerUnaryCall<HealthRequest, HealthResponse>, reply: sendUnaryData<HealthResponse>) => {
      if (this.#services.has(call.request.service ?? '')) reply(null, { status: this.#status });
      else reply({ code: NOT_FOUND, details: 'no such service' });
    },
    Watch: (call: ServerWritableStream<HealthRequest, HealthResponse>) => {
      if (!this.#services.has(call.request.service ?? ''))
        return void call.write({ status: SERVICE_UNKNOWN });
      this.#watchers.add(call);
      call.once('cancelled', () => this.#watchers.delete(call));
      this.#tell(call);
    },
  };

  /** Ends the streams of all watchers. */
  close(): void {
    this.serving = false;
    for (const call of this.#watchers) call.end();
  }

  get #status(): number {
    return this.#serving ? SERVING : NOT_SERVING;
  }

  #tell(call: ServerWritableStream<HealthRequest, HealthResponse>): void {
    call.write({ status: this.#status });
  }
}
