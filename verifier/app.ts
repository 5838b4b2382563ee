import { createAdminServer, listenAdmin } from '#shared/process/admin.ts';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { processMetrics } from '#shared/process/process-metrics.ts';
import { type Config, servedApis } from './config.ts';
import { followCertificate } from './doors/http/tls.ts';
import { createEngine, type Engine, followerLog } from './engine.ts';
import { type Addresses, openListeners } from './listeners.ts';
import { Metrics, watchServer, watchState, watchUpstreams } from './metrics/metrics.ts';

/** A verifier process, from its start until `stop`. */
export interface RunningVerifier extends Addresses {
  readonly adminAddress: string;
  readonly verdictsGiven: number;
  /**
   * Reports not ready, goes on answering for `drainMs`, and closes each connection after its next answer. Then begins no
   * holds, and waits up to `holdsMs` for those that are open. Then finishes the requests in flight, and leaves every API so
   * that no change waits for this process.
   */
  stop(drainMs?: number, holdsMs?: number): Promise<void>;
}

const READY_POLL_MS = 2;
/**
 * Time for which a process that shares its ports waits for Redis before it takes connections, which the others answer
 * meanwhile. Any other process waits as long as its first caller would.
 */
const SHARED_READY_MS_MAX = 5000;

/**
 * Starts a verifier that listens. Redis may still be out of reach: until Redis answers, the process is not
 * ready and answers 503.
 * @param onUnfit called if Redis cannot be used as it is configured
 */
export async function startVerifier(
  config: Config,
  clock: Clock,
  log: Logger,
  onUnfit?: (reason: string) => void,
): Promise<RunningVerifier> {
  const metrics = new Metrics();
  const { crowded } = metrics;
  processMetrics(metrics.registry);
  const apiIds = servedApis(config);
  const certificate = followCertificate(config, clock, log);
  const engine = createEngine({
    ...{ config, apiIds, clock, log, onUnfit },
    events: (apiId) => metrics.followerEvents(followerLog(apiId, log)),
    verdicts: () => metrics.verdictTotals,
    certificateEnds: () => certificate?.endsMs,
  });
  const { verifier } = engine;
  const counter = metrics.count(verifier, clock);

  const stopping = new AbortController();
  const start = new Start();
  const notReady = () => (stopping.signal.aborted ? 'stopping' : start.missing);
  const admin = createAdminServer({ metrics: metrics.registry, notReady });
  const adminAddress = await listenAdmin(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  const ready = start.begin(engine, clock, stopping.signal);
  await Promise.race([ready, pause(clock, config.REUSE_PORT ? SHARED_READY_MS_MAX : config.LOOKUP_WAIT_MS)]);
  const listeners = await openListeners({
    ...{ engine, config, clock, log },
    verifier: counter,
    certificate,
    crowded,
  }).catch(async (error) => {
    // Otherwise changes would wait for this process.
    await engine.stop();
    await engine.close();
    throw error;
  });
  watchState(metrics.registry, verifier, apiIds, engine);
  watchServer(metrics.registry, listeners, certificate);
  for (const extra of listeners.extras) extra.watch(metrics.registry);
  watchUpstreams(metrics.registry, listeners.relays, listeners.costFaults);
  const { address, proxyAddress, grpcAddress } = listeners;
  void ready.then((isDone) => {
    if (!isDone) return;
    listeners.ready();
    log.info('ready');
  });
  log.info({ address, adminAddress, proxyAddress, grpcAddress, apiIds }, 'verifier listening');
  return {
    ...{ address, adminAddress, proxyAddress, grpcAddress },
    get verdictsGiven() {
      const { memory, redis } = metrics.verdictTotals.verdicts;
      return memory + redis;
    },
    async stop(drainMs = 0, holdsMs = 0) {
      stopping.abort();
      if (config.REUSE_PORT) listeners.stopListening();
      listeners.drain();
      await pause(clock, drainMs);
      await engine.verifier.meter.holds.end(holdsMs);
      await listeners.close(config.SHUTDOWN_GRACE_MS / 2);
      await engine.verifier.meter.holds.released();
      await engine.stop();
      admin.close();
      admin.closeAllConnections();
      await engine.close();
    },
  };
}

/** The start of the process, which waits for Redis. */
class Start {
  /** The reason why the verifier is not ready; undefined = it is ready. */
  missing: string | undefined = 'Redis has not answered yet';

  /** Resolves with true when nothing is missing any more, or with false if `stopping` aborts first. */
  async begin(engine: Engine, clock: Clock, stopping: AbortSignal): Promise<boolean> {
    engine.start();
    while (this.missing !== undefined && !stopping.aborted) {
      this.missing = await engine.missing();
      if (this.missing !== undefined) await pause(clock, READY_POLL_MS, stopping);
    }
    return this.missing === undefined;
  }
}
