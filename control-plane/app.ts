import { type Clock, pause } from '#shared/lang/clock.ts';
import { createAdminServer, listenAdmin } from '#shared/process/admin.ts';
import { listening } from '#shared/process/listening.ts';
import type { createLogger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import type { Config } from './config.ts';
import { recordCalls } from './http/audit-hooks.ts';
import { serveDashboard } from './http/dashboard/dashboard.ts';
import { serveHandovers } from './http/dashboard/handover-routes.ts';
import { authenticate } from './http/guards/authentication.ts';
import { takeTurns } from './http/guards/call-turns.ts';
import { Connections } from './http/guards/connections.ts';
import { protect } from './http/guards/load-shedding.ts';
import { limitRates } from './http/guards/rate-limits.ts';
import { isOurs, refuseSecrets } from './http/guards/secrets.ts';
import { receiveLeakReports } from './http/leaks/leak-reports.ts';
import { documentRoutes } from './http/openapi.ts';
import { operations } from './http/operations/index.ts';
import { register } from './http/register.ts';
import { type App, createServer } from './http/server.ts';
import { serveOidc } from './http/sign-in/oidc-routes.ts';
import { serveSessions } from './http/sign-in/session-routes.ts';
import { Metrics } from './metrics.ts';
import { makeParts } from './parts.ts';
import { Handovers } from './redis/callers/handovers.ts';
import { operationsV2 } from './unkey-v2/index.ts';

/** A control plane process, from its start until `stop`. */
export interface ControlPlane {
  /** Address of the server, as `http://host:port`. */
  readonly address: string;
  readonly adminAddress: string;
  /**
   * Becomes not ready, keeps answering for `drainMs` while it closes each connection after its response, then
   * answers waiting calls with `pending`, finishes the requests in flight and closes everything.
   */
  stop(drainMs?: number): Promise<void>;
}

/** Returns the reason why the process is not ready before Redis first answers. */
function notAnswered({ trouble }: RedisNodes): string {
  return `Redis has not answered yet${trouble ? `: ${trouble}` : ''}`;
}

/**
 * Starts a control plane. Redis need not be available yet: until it is, requests get 503.
 * @param onUnfit called if Redis cannot be used as it is configured
 */
export async function startControlPlane(
  config: Config,
  clock: Clock,
  log: ReturnType<typeof createLogger>,
  onUnfit?: (reason: string) => void,
): Promise<ControlPlane> {
  const metrics = new Metrics();
  const parts = makeParts({ config, clock, log, metrics, onUnfit });
  const { nodes, fence, durability, bootstrapWatch, sweep, webhookSender, services } = parts;
  const { audit, propagator, publishedRootKeys } = services;
  const app = createServer(config, log, (text) => isOurs(text, parts.bootstrapKeys));
  const connections = new Connections(config, (bound) => metrics.connectionsClosed.inc({ bound }));
  connections.watch(app.server);
  metrics.watch({ fence, durability, audit, bootstrapWatch, connections, webhookSender });
  await addHooks(app, { config, clock, log, metrics, connections, ...parts });
  let stopping = false;
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (stopping) reply.header('connection', 'close');
    done(null, payload);
  });
  register(app, operations, services);
  register(app, operationsV2, services);

  const admin = createAdminServer({
    metrics: metrics.registry,
    notReady: () => (stopping ? 'stopping' : durability.reached ? undefined : notAnswered(nodes)),
  });
  const { HOST: host, PORT: port } = config;
  const address = await listening('PORT', `${host}:${port}`, app.listen({ host, port }));
  const adminAddress = await listenAdmin(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  for (const part of [durability, sweep, bootstrapWatch, publishedRootKeys, webhookSender]) void part.run();
  log.info({ address, adminAddress }, 'control plane listening');
  return {
    address,
    adminAddress,
    async stop(drainMs = 0) {
      stopping = true;
      await pause(clock, drainMs);
      for (const part of [sweep, bootstrapWatch, publishedRootKeys, durability, propagator]) part.stop();
      await app.close();
      await audit.stop();
      await webhookSender.stop();
      admin.close();
      admin.closeAllConnections();
      await nodes.close();
    },
  };
}

/** Adds the hooks between a request and its operation, in the order in which a request passes them. */
async function addHooks(
  app: App,
  parts: ReturnType<typeof makeParts> & {
    readonly config: Config;
    readonly clock: Clock;
    readonly metrics: Metrics;
    readonly connections: Connections;
    readonly log: ReturnType<typeof createLogger>;
  },
): Promise<void> {
  const { config, clock, metrics, connections, nodes, bootstrapKeys, services } = parts;
  const { audit, apis, keys, rootKeys, sessions } = services;
  recordCalls(app, audit, apis, clock);
  protect(app, { delayMsMax: config.EVENT_LOOP_DELAY_MS_MAX, clock, onShed: () => metrics.shed.inc() });
  const rates = limitRates(app, {
    nodes,
    callsMax: config.ROOT_KEY_CALLS_PER_MINUTE,
    failuresMax: config.FAILURES_PER_MINUTE,
    clock,
    onLimit: (limit) => metrics.rates.inc({ limit }),
  });
  await documentRoutes(app);
  await serveDashboard(app);
  const { provider, pendingSignIns } = parts;
  const hasTls = config.PUBLIC_URL?.protocol === 'https:';
  serveSessions(app, { sessions, provider, hasTls, connections, rates });
  if (provider) serveOidc(app, { provider, pendingSignIns, sessions, connections, rates });
  serveHandovers(app, { sessions, handovers: new Handovers(nodes), connections, rates });
  authenticate(app, { rootKeys, sessions, connections, rates });
  refuseSecrets(app, { bootstrapKeys, keys });
  takeTurns(
    app,
    { atOnce: config.ROOT_KEY_CALLS_AT_ONCE, waitingMax: config.ROOT_KEY_CALLS_WAITING_MAX },
    () => metrics.rates.inc({ limit: 'waiting' }),
  );
  await receiveLeakReports(app, {
    ...parts,
    rates,
    onReport: (result) => metrics.leakReports.inc({ result }),
    onSecrets: (kind, count) => metrics.leaks.inc({ kind }, count),
  });
  app.addHook('onResponse', (request, reply, done) => {
    const operation = request.routeOptions.url ?? 'unknown';
    metrics.requests.observe({ operation, status: reply.statusCode }, reply.elapsedTime / 1000);
    done();
  });
}
