import type { Clock } from '#shared/process/clock.ts';
import { listening } from '#shared/process/listening.ts';
import type { Logger } from '#shared/process/log.ts';
import { type Config, servedApis } from './config.ts';
import type { Stamp } from './core/ports.ts';
import { StampedVerdicts } from './core/stamped.ts';
import type { VerdictSource } from './core/verdict.ts';
import { listenGrpc } from './doors/grpc/server.ts';
import { AnonymousLimit } from './doors/http/anonymous-limit.ts';
import { type AuthzSettings, WrongQuestions } from './doors/http/authz.ts';
import { ClientIps } from './doors/http/credentials.ts';
import type { Certificate } from './doors/http/tls.ts';
import type { LaneCounts } from './doors/lane/lane.ts';
import type { Engine } from './engine.ts';
import type { Extra } from './extra.ts';
import { createControlPlaneProxy, notForwarded } from './proxy/control-plane-proxy.ts';
import { type CostFaults, createProxy } from './proxy/proxy.ts';
import type { UpstreamStats } from './proxy/upstream.ts';
import { tokens } from './tokens/plug.ts';
import { createVerifierServer } from './verifier-server.ts';

/** The addresses of a verifier. */
export interface Addresses {
  /** `http://host:port`, or `https:`. */
  readonly address: string;
  /** Address of proxy mode, in front of the API, in the same form. */
  readonly proxyAddress: string | undefined;
  /** Address for Envoy's gRPC, as `host:port`. */
  readonly grpcAddress: string | undefined;
}

/** All listeners of a verifier process. */
interface Listeners extends Addresses {
  /** Requests that are being received or looked up. Requests that proxy mode passes on are in `relays`. */
  readonly requestsInFlight: number;
  /** Sums over all fast lanes. */
  readonly lane: Readonly<LaneCounts>;
  /** Statistics of the requests passed on, keyed by the name of the upstream server. */
  readonly relays: Readonly<Record<string, UpstreamStats>>;
  readonly costFaults: CostFaults;
  readonly extras: readonly Extra[];
  /** Makes health checks report that traffic may come. */
  ready(): void;
  /** Accepts no more connections, which other processes on the same ports take. */
  stopListening(): void;
  /** From now on every answer says `Connection: close`, and health checks report not ready. */
  drain(): void;
  /**
   * Answers the requests that have arrived, then closes. Cuts connections that are still open after
   * `graceMs`.
   */
  close(graceMs: number): Promise<void>;
}

/**
 * Opens every listener that the configuration names. All of them use the same `verifier`.
 * @param options.verifier counts the verdicts of `engine`
 * @param options.crowded called for each request refused because of REQUESTS_IN_FLIGHT_MAX
 */
export async function openListeners(options: {
  engine: Pick<Engine, 'id' | 'verifier' | 'refusals'>;
  verifier: VerdictSource;
  config: Config;
  /** undefined = the listeners speak plain HTTP. */
  certificate: Certificate | undefined;
  clock: Clock;
  log: Logger;
  crowded: () => void;
}): Promise<Listeners> {
  const { engine, verifier, config, certificate, clock, log, crowded } = options;
  const { id, refusals } = engine;
  const { callers, meter } = engine.verifier;
  const { holds, rateLimits } = meter;
  const { CONTROL_PLANE_URL, EXT_AUTHZ_GRPC_PORT, HOST, LISTEN_UNIX, PORT, REUSE_PORT, UPSTREAM_URL } =
    config;
  const extras = [tokens(config, clock)];
  const stamps = extras.flatMap(({ stamp = [] }) => stamp);
  const authz = authzSettings(config, stamps, clock, log);
  const forward =
    CONTROL_PLANE_URL && (await createControlPlaneProxy(CONTROL_PLANE_URL, { id, config, clock, log }));
  const routes = { below: forward?.below ?? notForwarded };
  const forGateways = stamps.length > 0 ? new StampedVerdicts(verifier, stamps) : verifier;
  const needsRootKey = config.VERIFY_ROOT_KEYS === 'required';
  if (needsRootKey) callers.prepare();
  const contract = {
    ...{ id, verifier, holds, rateLimits, refusals, limits: config, log, authz, routes, crowded },
    ...{ extras, forGateways },
    ...(needsRootKey ? { callers } : {}),
  };

  const server = createVerifierServer({ ...contract, certificate });
  const address = await listening('PORT', `${HOST}:${PORT}`, server.listen(HOST, PORT, REUSE_PORT));
  const local = LISTEN_UNIX ? createVerifierServer(contract) : undefined;
  if (local) await listening('LISTEN_UNIX', LISTEN_UNIX, local.listenUnix(LISTEN_UNIX));
  const metaFields = config.METADATA_FIELDS;
  const gateway = { verifier: forGateways, refusals, authz, log, crowded, certificate, metaFields };
  const front =
    UPSTREAM_URL &&
    (await openProxy(UPSTREAM_URL, REUSE_PORT, { ...gateway, holds, config, limits: config, clock }));
  const proxy = front ? front.proxy : undefined;
  const grpc =
    EXT_AUTHZ_GRPC_PORT === undefined ? undefined : await openGrpc(EXT_AUTHZ_GRPC_PORT, config, gateway);

  return {
    address,
    proxyAddress: front ? front.address : undefined,
    grpcAddress: grpc?.address,
    get requestsInFlight() {
      return server.requestsInFlight + (local?.requestsInFlight ?? 0);
    },
    lane: sumOf([server, local, proxy].flatMap((each) => (each ? [each.lane] : []))),
    relays: { control_plane: forward ? forward.stats : NO_RELAY, api: proxy ? proxy.stats : NO_RELAY },
    extras,
    costFaults: proxy?.costFaults ?? { invalid: 0, missing: 0, short: 0 },
    ready() {
      if (grpc) grpc.serving = true;
    },
    stopListening: () => [server, proxy, grpc].forEach((each) => void each?.stopListening()),
    drain() {
      for (const each of [server, local, proxy]) each?.drain();
      if (grpc) grpc.serving = false;
    },
    async close(graceMs) {
      await Promise.all([server, local, proxy, grpc].map((each) => each?.close(graceMs)));
      certificate?.close();
      await forward?.close();
    },
  };
}

async function openProxy(url: URL, isShared: boolean, options: Parameters<typeof createProxy>[1]) {
  // The clients of the API come here: they need no certificate.
  const certificate = options.certificate && { ...options.certificate, asksClients: false };
  const proxy = await createProxy(url, { ...options, certificate });
  const { PROXY_HOST: host, PROXY_PORT: port } = options.config;
  return {
    proxy,
    address: await listening('PROXY_PORT', `${host}:${port}`, proxy.listen(host, port, isShared)),
  };
}

type GrpcOptions = Parameters<typeof listenGrpc>[0];

function openGrpc(
  port: number,
  config: Config,
  gateway: Omit<GrpcOptions, 'host' | 'port' | 'isShared' | 'limits'>,
) {
  const { HOST: host, REUSE_PORT: isShared } = config;
  return listenGrpc({ ...gateway, host, port, isShared, limits: config });
}

const authzSettings = (
  config: Config,
  stamps: readonly Stamp[],
  clock: Clock,
  log: Pick<Logger, 'error'>,
): AuthzSettings => ({
  needsApi: servedApis(config).length === 0,
  wrongQuestions: new WrongQuestions(log, clock),
  sources: config.CREDENTIAL_SOURCES,
  withMeta: config.AUTHZ_META,
  stamps: stamps.map(({ header }) => header),
  resourceMetadata: config.RESOURCE_METADATA_URL?.href,
  allowPreflight: config.CORS_PREFLIGHT === 'allow',
  clientIps: new ClientIps(config.CLIENT_IP_HEADER, config.TRUSTED_PROXIES),
  anonymousLimit: config.ANONYMOUS_LIMIT && new AnonymousLimit(config.ANONYMOUS_LIMIT, clock),
});

/** Returns the sums of the counts of several lanes, computed at each read. */
function sumOf(lanes: readonly Readonly<LaneCounts>[]): Readonly<LaneCounts> {
  const sum = (count: keyof LaneCounts) => lanes.reduce((total, lane) => total + lane[count], 0);
  return {
    get answered() {
      return sum('answered');
    },
    get delegated() {
      return sum('delegated');
    },
    get handedOver() {
      return sum('handedOver');
    },
  };
}

/** Statistics of an upstream that is not configured, so that its metric series exist all the same. */
const NO_RELAY: UpstreamStats = {
  inFlight: 0,
  faults: { busy: 0, unreachable: 0, late: 0, cut: 0, invalid: 0 },
};
