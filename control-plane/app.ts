import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createAdminServer, listenAdmin } from '#shared/process/admin.ts';
import { type Clock, pause } from '#shared/process/clock.ts';
import { listening } from '#shared/process/listening.ts';
import type { createLogger } from '#shared/process/log.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { TokenKeys } from '#shared/tokens/token-keys.ts';
import type { Config } from './config.ts';
import { Connections } from './core/serve/connections.ts';
import { LoadShedding } from './core/serve/load-shedding.ts';
import { documentRoutes } from './core/serve/openapi.ts';
import { type NeedsOf, pathOf } from './core/serve/operation.ts';
import { serveDashboard } from './core/serve/pages/dashboard.ts';
import { serveDeclaredSchema } from './core/serve/pages/reference.ts';
import { addPipeline, serveOperations } from './core/serve/pipeline.ts';
import { RateLimits } from './core/serve/rate-limits.ts';
import { isOurs } from './core/serve/secrets.ts';
import { createServer } from './core/serve/server.ts';
import { Turns } from './core/serve/turns.ts';
import { Metrics } from './metrics.ts';
import { operations } from './operations.ts';
import { makeParts } from './parts.ts';
import { LEAKS_PATH, receiveLeakReports } from './subjects/leaks/leaks.ts';
import { REVOKE_PATH, receiveRevocations } from './subjects/leaks/self-revocation.ts';
import { serveHandovers } from './subjects/sign-in/handover-routes.ts';
import { Handovers } from './subjects/sign-in/handovers.ts';
import { serveOidc } from './subjects/sign-in/oidc.ts';
import { serveSessions } from './subjects/sign-in/session-routes.ts';
import { serveJwks } from './subjects/tokens/jwks.ts';
import { eventSchemas, webhookSection } from './subjects/webhooks/webhook-document.ts';
import { operationsV2 } from './unkey-v2/index.ts';

const CLIENTS = join(import.meta.dirname, 'clients');
const textOf = (file: string) => readFileSync(join(CLIENTS, file), 'utf8');

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
  const { nodes, durability, historyWatch, bootstrapKeys, bootstrapWatch, sweep, webhookSender } = parts;
  const { provider, pendingSignIns, sessions, audit, changeWriter, publishedRootKeys, certificateWatch } =
    parts;
  const app = createServer(
    config,
    log,
    (text) => isOurs(text, bootstrapKeys),
    textOf('dashboard/assets/app.css'),
  );
  const connections = new Connections(config, (bound) => metrics.connectionsClosed.inc({ bound }));
  connections.watch(app.server);
  metrics.watch({ ...parts, connections });
  const shedding = new LoadShedding(config.EVENT_LOOP_DELAY_MS_MAX, clock);
  const limits = { calls: config.ROOT_KEY_CALLS_PER_MINUTE, failures: config.FAILURES_PER_MINUTE };
  const rates = new RateLimits(nodes, clock, limits, () => void metrics.rates.inc({ limit: 'unchecked' }));
  const admission = { connections, rates };
  let stopping = false;
  const served = [...operations, ...operationsV2];
  const pipeline = {
    ...{ ...parts, admission, log, metrics, shedding },
    paths: [...served.map(pathOf), REVOKE_PATH, ...(config.LEAKS === 'off' ? [] : [LEAKS_PATH])],
    turns: new Turns({
      atOnce: config.ROOT_KEY_CALLS_AT_ONCE,
      waitingMax: config.ROOT_KEY_CALLS_WAITING_MAX,
    }),
    isStopping: () => stopping,
  };
  addPipeline(app, pipeline);
  await documentRoutes(app, { schemas: eventSchemas(), section: webhookSection(operations) });
  serveDashboard(app, join(CLIENTS, 'dashboard/assets'));
  serveDeclaredSchema(app, textOf('cli/declared.schema.json'));
  const hasTls = config.PUBLIC_URL?.protocol === 'https:';
  serveSessions(app, { sessions, provider, hasTls, ...admission });
  if (provider) serveOidc(app, { provider, pendingSignIns, sessions, ...admission });
  serveHandovers(app, { sessions, handovers: new Handovers(nodes), ...admission });
  await receiveLeakReports(app, {
    ...{ ...parts, config, log, rates },
    onReport: (result) => metrics.leakReports.inc({ result }),
    onSecrets: (kind, count) => metrics.leaks.inc({ kind }, count),
  });
  if (config.TOKEN_KEY.length > 0) serveJwks(app, new TokenKeys(config, clock));
  await receiveRevocations(app, { ...parts, rates, onRevoked: () => metrics.selfRevoked.inc() });
  serveOperations<NeedsOf<typeof served>>(app, served, parts, pipeline);

  const admin = createAdminServer({
    metrics: metrics.registry,
    notReady: () => (stopping ? 'stopping' : durability.reached ? undefined : notAnswered(nodes)),
  });
  const { HOST: host, PORT: port } = config;
  const address = await listening('PORT', `${host}:${port}`, app.listen({ host, port }));
  const adminAddress = await listenAdmin(admin, config.ADMIN_HOST, config.ADMIN_PORT);
  const watches = [historyWatch, bootstrapWatch, publishedRootKeys, certificateWatch];
  for (const part of [durability, ...watches, sweep, webhookSender]) void part.run();
  log.info({ address, adminAddress }, 'control plane listening');
  return {
    address,
    adminAddress,
    async stop(drainMs = 0) {
      stopping = true;
      await pause(clock, drainMs);
      for (const part of [...watches, sweep, durability, changeWriter]) part.stop();
      await app.close();
      shedding.stop();
      await audit.stop();
      await webhookSender.stop();
      admin.close();
      admin.closeAllConnections();
      await nodes.close();
    },
  };
}
