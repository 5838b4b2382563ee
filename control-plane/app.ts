import { createAdminServer, listenAdmin } from '#shared/admin.ts';
import { type Clock, pause } from '#shared/clock.ts';
import { ApiError } from '#shared/errors.ts';
import { listening } from '#shared/process/listening.ts';
import type { createLogger } from '#shared/process/log.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys } from '#shared/redis/redis-keys.ts';
import type { Config } from './config.ts';
import { Fence } from './core/fence.ts';
import { Propagator } from './core/propagation.ts';
import { Sweep } from './core/sweep.ts';
import { Connections } from './http/connections.ts';
import { serveDashboard } from './http/dashboard.ts';
import { protect } from './http/load-shedding.ts';
import { documentRoutes } from './http/openapi.ts';
import { limitRates } from './http/rate-limits.ts';
import { apiRoutes } from './http/routes/apis.ts';
import { auditRoutes } from './http/routes/audit.ts';
import { recordCalls } from './http/routes/audit-hooks.ts';
import { creditRoutes } from './http/routes/credits.ts';
import { fleetRoutes } from './http/routes/fleet.ts';
import { identityRoutes } from './http/routes/identities.ts';
import { importRoutes } from './http/routes/import.ts';
import { keyPermissionRoutes } from './http/routes/key-permissions.ts';
import { keyRoleRoutes } from './http/routes/key-roles.ts';
import { keyRoutes } from './http/routes/keys.ts';
import { manyKeysRoutes } from './http/routes/many-keys.ts';
import { permissionRoutes } from './http/routes/permissions.ts';
import { rerollRoutes } from './http/routes/reroll.ts';
import { roleRoutes } from './http/routes/roles.ts';
import { rootKeyRoutes } from './http/routes/root-keys.ts';
import { refuseSecrets } from './http/secrets.ts';
import { createServer } from './http/server.ts';
import { takeTurns } from './http/turns.ts';
import { Metrics } from './metrics.ts';
import { Apis } from './redis/apis.ts';
import { Audit } from './redis/audit.ts';
import { BootstrapKeys, BootstrapWatch } from './redis/bootstrap-keys.ts';
import { BATCH_LIMITS, RedisChangeLog } from './redis/change-log.ts';
import { Credits } from './redis/credits.ts';
import { DurabilityCheck } from './redis/durability.ts';
import { DurableWriter } from './redis/durable-writer.ts';
import { FleetView } from './redis/fleet.ts';
import { KeyImport } from './redis/key-import.ts';
import { KeyView } from './redis/key-view.ts';
import { Keys } from './redis/keys.ts';
import { RootKeys } from './redis/root-keys.ts';
import { Successors } from './redis/successors.ts';
import { RedisSweepStore } from './redis/sweep-store.ts';
import { UsageView } from './redis/usage.ts';
import { Identities } from './redis/workspace/identities.ts';
import { Catalogue } from './redis/workspace/permissions.ts';
import { Roles } from './redis/workspace/roles.ts';

/** A control plane process, from its start until `stop`. */
export interface ControlPlane {
  /** Its address, as `http://host:port`. */
  readonly address: string;
  readonly adminAddress: string;
  /**
   * Goes on answering for `drainMs`, not ready any more and closing each connection after its answer; then answers
   * held calls with `pending`, finishes requests in flight and closes everything.
   */
  stop(drainMs?: number): Promise<void>;
}

/** The reason why it is not ready before the first answer of Redis. */
function notAnswered({ trouble }: RedisNodes): string {
  return `Redis has not answered yet${trouble ? `: ${trouble}` : ''}`;
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
  const durability = new DurabilityCheck(nodes, replicas, clock, log);
  const fence = new Fence(changes, clock, deposedMs, metrics.fenceEvents(log));
  const limits = {
    fenceWaitMs: config.FENCE_WAIT_MS,
    pending: { changesMax: config.FENCES_PENDING_MAX, refusalsMax: config.REFUSALS_PENDING_MAX },
    replicated: replicas > 0,
    batch: BATCH_LIMITS,
  };
  const propagator = new Propagator({
    log: changes,
    fence,
    clock,
    limits,
    durable: (apiId) => durability.keeps(apiKeys(apiId).head),
    events: metrics.propagationEvents(log),
  });
  const keyLimits = { leaseMs: config.LEASE_MS, apiAutoCreate: config.API_AUTO_CREATE };
  const keys = new Keys({
    nodes,
    writer,
    log: changes,
    clock,
    limits: keyLimits,
  });
  const keyImport = new KeyImport({ writer, keys, clock, limits: keyLimits });
  const apis = new Apis(nodes, writer, clock, config.LEASE_MS);
  const bootstrapKeys = new BootstrapKeys(config.ROOT_KEY);
  const bootstrapWatch = new BootstrapWatch(nodes, bootstrapKeys, clock, log);
  const rootKeys = new RootKeys(nodes, writer, bootstrapKeys);
  const sweep = new Sweep({
    store: new RedisSweepStore(nodes, writer, apis, keys, () => clock.wallMs()),
    log: changes,
    fence,
    clock,
    logger: log,
    leaseMs: config.LEASE_MS,
    deposedMs,
  });
  const audit = new Audit({
    nodes,
    writer,
    clock,
    limits: {
      kept: { done: config.AUDIT_EVENTS_MAX, refused: config.AUDIT_REFUSED_MAX },
      waitingMax: config.AUDIT_WAITING_MAX,
    },
    counted: (kind, result, events) => metrics.audit.inc({ kind, result }, events),
    log,
  });
  const app = createServer(config, log);
  const connections = new Connections(config, (bound) => metrics.connectionsClosed.inc({ bound }));
  connections.watch(app.server);
  metrics.watch({ fence, durability, audit, bootstrapWatch, connections });
  recordCalls(app, audit, apis, clock);
  await protect(app, { delayMsMax: config.EVENT_LOOP_DELAY_MS_MAX, clock, shed: () => metrics.shed.inc() });
  const rates = await limitRates(app, {
    nodes,
    callsMax: config.ROOT_KEY_CALLS_PER_MINUTE,
    failuresMax: config.FAILURES_PER_MINUTE,
    clock,
    counted: (limit) => metrics.rates.inc({ limit }),
  });
  await documentRoutes(app);
  await serveDashboard(app);
  app.decorateRequest('caller', undefined);
  app.addHook('onRequest', async (request, reply) => {
    // Judge by the route: in the URL that was sent any letter may be escaped.
    if (request.is404 || !request.routeOptions.url?.startsWith('/v1/')) return;
    try {
      request.caller = await rootKeys.authenticate(request.headers.authorization);
    } catch (error) {
      if (error instanceof ApiError && error.code === 'UNAUTHORIZED') {
        connections.judged(request.raw.socket, false);
        await rates.failed(request, reply);
      }
      throw error;
    }
    connections.judged(request.raw.socket, true);
    await rates.called(request, reply);
  });
  refuseSecrets(app, { bootstrapKeys, keys });
  takeTurns(
    app,
    { atOnce: config.ROOT_KEY_CALLS_AT_ONCE, waitingMax: config.ROOT_KEY_CALLS_WAITING_MAX },
    () => metrics.rates.inc({ limit: 'waiting' }),
  );
  let stopping = false;
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (stopping) reply.header('connection', 'close');
    done(null, payload);
  });
  app.addHook('onResponse', (request, reply, done) => {
    const operation = request.routeOptions.url ?? 'unknown';
    metrics.requests.observe({ operation, status: reply.statusCode }, reply.elapsedTime / 1000);
    done();
  });
  const view = new KeyView(nodes);
  const parts = { nodes, writer, log: changes, clock, leaseMs: config.LEASE_MS };
  const roles = new Roles({ ...parts, view });
  const identities = new Identities({ ...parts, view, apis, propagator });
  keyRoutes(app, { keys, view, apis, roles, identities, propagator, usage: new UsageView(nodes), clock });
  manyKeysRoutes(app, {
    ...{ keys, view, apis, roles, propagator, holdMs: config.FENCE_WAIT_MS },
    monotonicMs: () => clock.monotonicMs(),
  });
  keyPermissionRoutes(app, { keys, propagator });
  roleRoutes(app, { roles, propagator });
  permissionRoutes(app, { catalogue: new Catalogue({ ...parts, view }), roles, propagator });
  keyRoleRoutes(app, { keys, roles, propagator });
  creditRoutes(app, { keys, credits: new Credits(writer, clock), propagator });
  rerollRoutes(app, { keys, successors: new Successors(nodes, keys, clock), propagator, clock });
  importRoutes(app, { keyImport, roles });
  identityRoutes(app, { identities, propagator });
  apiRoutes(app, { apis, propagator });
  rootKeyRoutes(app, { rootKeys, clock });
  auditRoutes(app, { audit });
  fleetRoutes(app, { fleet: new FleetView(nodes) });

  const admin = createAdminServer({
    metrics: metrics.registry,
    notReady: () => (stopping ? 'stopping' : durability.reached ? undefined : notAnswered(nodes)),
  });
  const { HOST: host, PORT: port } = config;
  const address = await listening('PORT', `${host}:${port}`, app.listen({ host, port }));
  const adminAddress = await listenAdmin(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  void durability.run();
  void sweep.run();
  void bootstrapWatch.run();
  log.info({ address, adminAddress }, 'control plane listening');
  return {
    address,
    adminAddress,
    async stop(drainMs = 0) {
      stopping = true;
      await pause(clock, drainMs);
      sweep.stop();
      bootstrapWatch.stop();
      durability.stop();
      propagator.stop();
      await app.close();
      await audit.stop();
      admin.close();
      admin.closeAllConnections();
      await nodes.close();
    },
  };
}
