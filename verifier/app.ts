import { createAdminServer, listenAdmin } from '#shared/admin.ts';
import { type Clock, pause } from '#shared/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import { uniqueTexts } from '#shared/request-id.ts';
import type { Config } from './config.ts';
import { Verifier } from './core/verifier.ts';
import { followerLog } from './follower-log.ts';
import { type Addresses, openListeners } from './listeners.ts';
import { Metrics } from './metrics.ts';
import { RedisDirectory } from './redis/api-session.ts';
import { StatusReport } from './redis/status-report.ts';
import { Usage } from './redis/usage-report.ts';
import { watchState } from './state-metrics.ts';
import { watchUpstreams } from './upstream-metrics.ts';

/** A verifier process, from its start until `stop`. */
export interface RunningVerifier extends Addresses {
  readonly adminAddress: string;
  /**
   * Goes on answering for `drainMs`, not ready any more and closing each connection after its answer; then finishes
   * requests in flight, and leaves every API so that no change waits for this process.
   */
  stop(drainMs?: number): Promise<void>;
}

const READY_POLL_MS = 10;

/** A verifier that listens. Redis need not be there yet: until it is, the process is not ready and answers 503. */
export async function startVerifier(config: Config, clock: Clock, log: Logger): Promise<RunningVerifier> {
  const nodes = new RedisNodes(config, clock, log);
  const metrics = new Metrics();
  const apiIds = config.POD_API_IDS.length > 0 ? config.POD_API_IDS : config.API_IDS;
  const usage =
    config.USAGE_PERIOD_MS === 0
      ? undefined
      : new Usage({
          nodes,
          clock,
          log,
          periodMs: config.USAGE_PERIOD_MS,
          keysMax: config.USAGE_KEYS_MAX,
        });
  const verifier = new Verifier({
    directory: new RedisDirectory(nodes, config.REDIS_REPLICAS, clock),
    clock,
    newNonce: uniqueTexts(),
    limits: {
      syncPeriodMs: config.SYNC_PERIOD_MS,
      syncDeadlineMs: config.SYNC_DEADLINE_MS,
      cacheKeysMax: config.CACHE_KEYS_MAX,
      unknownKeysMax: config.UNKNOWN_KEYS_MAX,
      unknownTtlMs: config.UNKNOWN_KEY_TTL_MS,
      lookupsInFlightMax: config.LOOKUPS_IN_FLIGHT_MAX,
      lookupsQueuedMax: config.LOOKUPS_QUEUED_MAX,
      lookupWaitMs: config.LOOKUP_WAIT_MS,
      apisMax: config.APIS_MAX,
      apiIdleMs: config.API_IDLE_MS,
    },
    apiIds,
    foreignKeys: config.FOREIGN_KEYS,
    usage,
    events: (apiId) => metrics.followerEvents(followerLog(apiId, log)),
  });
  const status = new StatusReport({
    nodes,
    verifier,
    verdicts: () => metrics.verdictsGiven,
    clock,
    log,
    periodMs: config.STATUS_PERIOD_MS,
    settings: { foreignKeys: config.FOREIGN_KEYS, syncPeriodMs: config.SYNC_PERIOD_MS },
  });
  const answers = metrics.count(verifier, clock);

  let missing: string | undefined = 'Redis has not answered yet';
  const stopping = new AbortController();
  const becomeReady = async () => {
    while (missing !== undefined && !stopping.signal.aborted) {
      missing = await whatIsMissing(verifier, nodes, apiIds);
      if (missing !== undefined) await pause(clock, READY_POLL_MS, stopping.signal);
    }
    if (missing !== undefined) return;
    listeners.ready();
    log.info('ready');
  };

  const admin = createAdminServer({
    metrics: metrics.registry,
    notReady: () => (stopping.signal.aborted ? 'stopping' : missing),
  });
  const adminAddress = await listenAdmin(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  const listeners = await openListeners({
    id: status.id,
    answers,
    config,
    clock,
    log,
    crowded: metrics.crowded,
  });
  watchState(metrics.registry, verifier, apiIds, listeners, usage);
  watchUpstreams(metrics.registry, listeners.relays);
  const { address, proxyAddress, grpcAddress } = listeners;
  verifier.start();
  void becomeReady();
  void status.run();
  usage?.run();
  log.info({ address, adminAddress, proxyAddress, grpcAddress, apiIds }, 'verifier listening');
  return {
    address,
    adminAddress,
    proxyAddress,
    grpcAddress,
    async stop(drainMs = 0) {
      stopping.abort();
      listeners.drain();
      await pause(clock, drainMs);
      await listeners.close(config.SHUTDOWN_GRACE_MS / 2);
      await Promise.all([verifier.stop(), status.stop(), usage?.stop()]);
      admin.close();
      admin.closeAllConnections();
      await nodes.close();
    },
  };
}

/**
 * Returns what is still missing before traffic may come. A later loss of Redis does not make the verifier unready
 * again.
 */
async function whatIsMissing(
  verifier: Verifier,
  nodes: RedisNodes,
  apiIds: readonly string[],
): Promise<string | undefined> {
  if (apiIds.length === 0) {
    const reached = Promise.resolve(nodes.connection('')).then(
      () => true,
      () => false,
    );
    if (await reached) return undefined;
    return `Redis has not answered yet${nodes.trouble ? `: ${nodes.trouble}` : ''}`;
  }
  const live = new Set(verifier.followers.filter(({ live }) => live).map(({ apiId }) => apiId));
  const behind = apiIds.filter((apiId) => !live.has(apiId));
  return behind.length === 0
    ? undefined
    : `not yet in sync: ${behind.join(', ')}${nodes.trouble ? `; ${nodes.trouble}` : ''}`;
}
