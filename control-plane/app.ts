import { createAdminServer, listen } from '#shared/admin.ts';
import { type Clock, pause } from '#shared/clock.ts';
import type { createLogger } from '#shared/log.ts';
import { RedisNodes } from '#shared/redis.ts';
import { Apis } from './apis.ts';
import type { Config } from './config.ts';
import { Fence } from './fence.ts';
import { Keys } from './keys.ts';
import { Metrics } from './metrics.ts';
import { Propagator } from './propagation.ts';
import { DurableWriter, RedisChangeLog } from './redis-change-log.ts';
import { RedisPromises } from './redis-promises.ts';
import { RedisUpkeep } from './redis-upkeep.ts';
import { RootKeys } from './root-keys.ts';
import { apiRoutes } from './routes/apis.ts';
import { keyRoutes } from './routes/keys.ts';
import { rootKeyRoutes } from './routes/root-keys.ts';
import { createServer } from './server.ts';
import { Sweep } from './sweep.ts';

/** A control plane process, from its start until `stop`. */
export interface ControlPlane {
  /** Where it listens, as `http://host:port`. */
  readonly address: string;
  readonly adminAddress: string;
  /**
   * Goes on answering for `drainMs`, not ready any more and closing each connection after its answer; then answers
   * held calls with `pending`, finishes requests in flight and closes everything.
   */
  stop(drainMs?: number): Promise<void>;
}

/** A control plane that listens. Redis need not be there yet: until it is, requests get 503. */
export async function startControlPlane(
  config: Config,
  clock: Clock,
  log: ReturnType<typeof createLogger>,
): Promise<ControlPlane> {
  const replicas = config.REDIS_REPLICAS;
  // A deposed primary goes on until its own lag check notices; 2 s cover that check's period.
  const deposedMs = replicas > 0 ? (config.REDIS_MIN_REPLICAS_MAX_LAG_S + 2) * 1000 : 0;
  const metrics = new Metrics();
  const nodes = new RedisNodes(config, clock, log);
  const writer = new DurableWriter(nodes, replicas, metrics.wrote);
  const changes = new RedisChangeLog(nodes, writer, replicas, () => clock.wallMs());
  const promises = new RedisPromises(nodes, replicas, clock, log);
  const fence = new Fence(changes, clock, deposedMs, metrics.fenceEvents(log));
  const limits = {
    fenceWaitMs: config.FENCE_WAIT_MS,
    fencesPendingMax: config.FENCES_PENDING_MAX,
    replicated: replicas > 0,
  };
  const propagator = new Propagator({
    log: changes,
    fence,
    clock,
    limits,
    durable: () => promises.durable,
    events: metrics.propagationEvents(log),
  });
  const keys = new Keys({
    nodes,
    writer,
    log: changes,
    clock,
    limits: { leaseMs: config.LEASE_MS, apiAutoCreate: config.API_AUTO_CREATE },
  });
  const apis = new Apis(nodes, writer, clock, config.LEASE_MS);
  const rootKeys = new RootKeys(nodes, writer, config.ROOT_KEY);
  const sweep = new Sweep({
    upkeep: new RedisUpkeep(nodes, writer, apis, keys),
    log: changes,
    fence,
    clock,
    logger: log,
    leaseMs: config.LEASE_MS,
    deposedMs,
  });
  metrics.watch(fence, promises);

  const app = createServer(config, log);
  app.decorateRequest('caller', undefined);
  app.addHook('onRequest', async (request) => {
    if (!request.is404 && request.url.startsWith('/v1/')) {
      request.caller = await rootKeys.authenticate(request.headers.authorization);
    }
  });
  let stopping = false;
  app.addHook('onSend', async (_request, reply) => {
    if (stopping) reply.header('connection', 'close');
  });
  app.addHook('onResponse', async (request, reply) => {
    const operation = request.routeOptions.url ?? 'unknown';
    metrics.requests.observe({ operation, status: reply.statusCode }, reply.elapsedTime / 1000);
  });
  keyRoutes(app, { keys, apis, propagator, clock });
  apiRoutes(app, { apis, propagator });
  rootKeyRoutes(app, { rootKeys, clock });

  const admin = createAdminServer({
    metrics: metrics.registry,
    notReady: () => (stopping ? 'stopping' : promises.reached ? undefined : 'Redis has not answered yet'),
  });
  const address = await app.listen({ host: config.HOST, port: config.PORT });
  const adminAddress = await listen(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  void promises.run();
  void sweep.run();
  log.info({ address, adminAddress }, 'control plane listening');
  return {
    address,
    adminAddress,
    async stop(drainMs = 0) {
      stopping = true;
      await pause(clock, drainMs);
      sweep.stop();
      promises.stop();
      propagator.stop();
      await app.close();
      admin.close();
      admin.closeAllConnections();
      await nodes.close();
    },
  };
}
