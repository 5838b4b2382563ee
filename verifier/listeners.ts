import type { Clock } from '#shared/lang/clock.ts';
import { listening, tryListening } from '#shared/process/listening.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Config } from './config.ts';
import type { VerdictSource } from './core/verdict/verdict.ts';
import type { AuthzSettings } from './endpoints/authz.ts';
import { SOURCES } from './endpoints/credentials.ts';
import { listenGrpc } from './endpoints/envoy-grpc.ts';
import type { LaneCounts } from './fast-lane/lane.ts';
import { followCertificate } from './http/tls.ts';
import { createControlPlaneProxy, notForwarded } from './proxy/control-plane-proxy.ts';
import { createProxy } from './proxy/proxy.ts';
import type { UpstreamStats } from './proxy/upstream.ts';
import { createVerifierServer } from './verifier-server.ts';

/** The addresses of a verifier. */
export interface Addresses {
  /** As `http://host:port`, or `https:`. */
  readonly address: string;
  /** In front of the API, in proxy mode; likewise. */
  readonly proxyAddress: string | undefined;
  /** For Envoy, as `host:port`. */
  readonly grpcAddress: string | undefined;
}

/** Everything that a verifier is asked at. */
export interface Listeners extends Addresses {
  /** Being received or looked up; what is passed on in proxy mode is in `relays`. */
  readonly requestsInFlight: number;
  /** Counts of all fast lanes together. */
  readonly lane: Readonly<LaneCounts>;
  /** Requests passed on, by the name of their server. */
  readonly relays: Readonly<Record<string, UpstreamStats>>;
  /** Tells health checks that traffic may come. */
  ready(): void;
  /** From now on every answer says `Connection: close`, and health checks are told to turn away. */
  drain(): void;
  /** Answers what has arrived and closes; what is still open after `graceMs` is cut. */
  close(graceMs: number): Promise<void>;
}

/**
 * Listens at all that the configuration names. Each way of asking gets the same `verifier`.
 * @param options.id of this process, as the fleet's list names it
 * @param options.crowded called for each request refused because of REQUESTS_IN_FLIGHT_MAX
 */
export async function openListeners(options: {
  id: string;
  verifier: VerdictSource;
  config: Config;
  clock: Clock;
  log: Logger;
  crowded: () => void;
}): Promise<Listeners> {
  const { id, verifier, config, clock, log, crowded } = options;
  const { CONTROL_PLANE_URL, EXT_AUTHZ_GRPC_PORT, HOST, LISTEN_UNIX, PORT, UPSTREAM_URL } = config;
  const authz: AuthzSettings = {
    sources: SOURCES.filter((source) => config.CREDENTIAL_SOURCES.includes(source)),
    withMeta: config.AUTHZ_META,
    allowPreflight: config.CORS_PREFLIGHT === 'allow',
  };
  const certificate = followCertificate(config, clock, log);
  const forward =
    CONTROL_PLANE_URL && (await createControlPlaneProxy(CONTROL_PLANE_URL, { id, config, clock, log }));
  const routes = { below: forward?.below ?? notForwarded };
  const contract = { id, verifier, limits: config, log, crowded, authz, routes };

  const server = createVerifierServer({ ...contract, certificate });
  const address = await listening('PORT', `${HOST}:${PORT}`, server.listen(HOST, PORT));
  const local = LISTEN_UNIX ? createVerifierServer(contract) : undefined;
  if (local) await listening('LISTEN_UNIX', LISTEN_UNIX, local.listenUnix(LISTEN_UNIX));
  const gateway = { verifier, authz, log, crowded, certificate };
  const proxy =
    UPSTREAM_URL && (await createProxy(UPSTREAM_URL, { ...gateway, config, limits: config, clock }));
  const { PROXY_HOST, PROXY_PORT } = config;
  const proxyAddress =
    proxy &&
    (await listening('PROXY_PORT', `${PROXY_HOST}:${PROXY_PORT}`, proxy.listen(PROXY_HOST, PROXY_PORT)));
  const place = { host: HOST, port: EXT_AUTHZ_GRPC_PORT ?? 0, limits: config };
  if (EXT_AUTHZ_GRPC_PORT !== undefined)
    await listening('EXT_AUTHZ_GRPC_PORT', `${HOST}:${place.port}`, tryListening(HOST, place.port));
  const grpc = EXT_AUTHZ_GRPC_PORT === undefined ? undefined : await listenGrpc({ ...gateway, ...place });

  return {
    address,
    proxyAddress,
    grpcAddress: grpc?.address,
    get requestsInFlight() {
      return server.requestsInFlight + (local?.requestsInFlight ?? 0);
    },
    lane: sumOf([server, local, proxy].flatMap((each) => (each ? [each.lane] : []))),
    relays: { control_plane: forward ? forward.stats : NO_RELAY, api: proxy ? proxy.stats : NO_RELAY },
    ready() {
      if (grpc) grpc.serving = true;
    },
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

/** Counts of several lanes together, as they are whenever somebody reads them. */
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

/** Counts of an upstream that is not configured, so that its series exist all the same. */
const NO_RELAY: UpstreamStats = {
  inFlight: 0,
  faults: { busy: 0, unreachable: 0, late: 0, cut: 0, invalid: 0 },
};
