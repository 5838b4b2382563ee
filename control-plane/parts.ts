import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import { createLogger, type Logger } from '#shared/process/log.ts';
import { NameResolver, type Resolve } from '#shared/process/name-resolver.ts';
import { HistoryWatch } from '#shared/protocol/history/history-watch.ts';
import { BATCH_LIMITS, RedisChangeLog } from '#shared/protocol/log/change-log.ts';
import { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { necessaryCommands } from '#shared/protocol/writer/control-plane-commands.ts';
import { DurabilityCheck } from '#shared/protocol/writer/durability.ts';
import { Fence } from '#shared/protocol/writer/fence.ts';
import { Sweep } from '#shared/protocol/writer/sweep.ts';
import { RedisSweepStore } from '#shared/protocol/writer/sweep-store.ts';
import { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import type { Config } from './config.ts';
import { Apis } from './core/apis/apis.ts';
import { BootstrapKeys, BootstrapWatch } from './core/callers/bootstrap-keys.ts';
import { PersonSessions } from './core/callers/person-sessions.ts';
import { RootKeys } from './core/callers/root-keys.ts';
import { SESSION_IDLE_MS, Sessions } from './core/callers/sessions.ts';
import { KeyImport } from './core/keys/key-import.ts';
import { Keys } from './core/keys/keys.ts';
import { Successors } from './core/keys/successors.ts';
import { KeyView } from './core/records/key-view.ts';
import { OrderedKeys } from './core/records/ordered-keys.ts';
import { REFUSE_HISTORY } from './core/schema/event-types.ts';
import { Once } from './core/serve/once.ts';
import type { Operation } from './core/serve/operation.ts';
import { CostlyReads, Turns } from './core/serve/turns.ts';
import type { Metrics } from './metrics.ts';
import { operations } from './operations.ts';
import { Audit } from './subjects/audit/audit.ts';
import { OwedCredits } from './subjects/credits/owed-credits.ts';
import { DueKeys, DueWatch } from './subjects/duties/expiries.ts';
import { FleetWatch, WatchedFleet } from './subjects/duties/fleet-watch.ts';
import { KeyRules } from './subjects/duties/key-rules.ts';
import {
  examineBootstrapKeys,
  examineCertificates,
  examineEndpoints,
  examineFleet,
  examineHistories,
  examineServers,
} from './subjects/examine/examination.ts';
import { RefusalView } from './subjects/examine/refusals.ts';
import { CertificateWatch } from './subjects/fleet/certificate-watch.ts';
import { FleetView } from './subjects/fleet/fleet.ts';
import { Identities } from './subjects/identities/identities.ts';
import { HandledReports } from './subjects/leaks/handled-reports.ts';
import { LimitView } from './subjects/rate-limits/limit-view.ts';
import { RateLimitOverrides } from './subjects/rate-limits/rate-limit-overrides.ts';
import { Catalogue } from './subjects/roles/permissions.ts';
import { Roles } from './subjects/roles/roles.ts';
import { PublishedRootKeys } from './subjects/root-keys/published-root-keys.ts';
import { OidcProvider, oidcOptions } from './subjects/sign-in/oidc.ts';
import { PendingSignIns } from './subjects/sign-in/pending-sign-ins.ts';
import { UsageView } from './subjects/usage/usage.ts';
import { WebhookEndpoints } from './subjects/webhooks/endpoints.ts';
import { AddressRules, EventPoster, sendTestEvent, urlFault } from './subjects/webhooks/event-poster.ts';
import { Notices } from './subjects/webhooks/notices.ts';
import { Deliveries } from './subjects/webhooks/outbox.ts';
import { WebhookSender } from './subjects/webhooks/webhook-sender.ts';

/** Time that a call may take besides its wait for verifiers: each of its commands ends within seconds. */
const ONCE_SPARE_MS = 30_000;

/** The parts on which all others depend. */
interface Base {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly onUnfit?: ((reason: string) => void) | undefined;
}

/**
 * Time for which a deposed primary may go on: until its own lag check notices; 2 s cover that check's period.
 */
export const deposedMsOf = ({
  REDIS_REPLICAS,
  REDIS_MIN_REPLICAS_MAX_LAG_S,
}: Pick<Config, 'REDIS_REPLICAS' | 'REDIS_MIN_REPLICAS_MAX_LAG_S'>) =>
  REDIS_REPLICAS > 0 ? (REDIS_MIN_REPLICAS_MAX_LAG_S + 2) * 1000 : 0;

/**
 * Creates the working parts of a control plane, each by the name by which operations and others ask for it. Background
 * work, such as the sweep, begins only when it is run.
 */
export function makeParts(base: Base) {
  const { config, clock, log, metrics } = base;
  const writing = makeWriter(base);
  const { nodes, writer, changes, durability, fence, changeWriter } = writing;
  const bootstrapKeys = new BootstrapKeys(config.ROOT_KEY);
  const bootstrapWatch = new BootstrapWatch(nodes, bootstrapKeys, clock, log);
  const hasTls = config.REDIS_URL[0]?.hasTls === true;
  const openQuietly = () => new RedisNodes(config, clock, createLogger('control-plane', 'silent'));
  const certificateWatch = new CertificateWatch(hasTls ? openQuietly : undefined, clock);
  const rootKeys = new RootKeys(nodes, writer, bootstrapKeys);
  const limits = { leaseMs: config.LEASE_MS, apiAutoCreate: config.API_AUTO_CREATE };
  const keys = new Keys({ nodes, writer, log: changes, clock, limits });
  const apis = new Apis(nodes, writer, clock, config.LEASE_MS, config.TOKEN_KEY.length > 0);
  const view = new KeyView(nodes);
  const costlyReads = new CostlyReads();
  const shared = { nodes, writer, log: changes, clock, leaseMs: config.LEASE_MS, view, apis, changeWriter };
  const fleet = new FleetView(nodes);
  const { resolve } = new NameResolver(clock);
  const audit = new Audit({
    nodes,
    writer,
    clock,
    limits: {
      eventsMax: { done: config.AUDIT_EVENTS_MAX, refused: config.AUDIT_REFUSED_MAX },
      waitingMax: config.AUDIT_WAITING_MAX,
    },
    onCount: (kind, result, events) => metrics.audit.inc({ kind, result }, events),
    log,
  });
  return {
    ...writing,
    apis,
    audit,
    bootstrapKeys,
    bootstrapWatch,
    catalogue: new Catalogue(shared),
    certificateWatch,
    clock,
    costlyReads,
    debts: new OwedCredits(writer, clock),
    examine: async () => [
      ...(await examineServers(nodes, config, clock, "the control plane's")),
      ...examineCertificates(certificateWatch.ends, clock.wallMs()),
      ...(await examineFleet(nodes, clock)),
      ...(await examineHistories(nodes)),
      ...(await examineBootstrapKeys(nodes)),
      ...(await examineEndpoints(nodes)),
    ],
    fleet,
    handledReports: new HandledReports(nodes, writer),
    historyWatch: new HistoryWatch({
      ...{ nodes, writer, durability, clock, log },
      ...{ replicas: config.REDIS_REPLICAS, file: config.HISTORY_FILE },
      onRefused: ({ apiId, ...after }) =>
        audit.record('done', {
          ...{ time: clock.wallMs(), requestId: randomUUID(), operation: REFUSE_HISTORY, outcome: 'OK' },
          ...{ by: { address: 'keyfence' }, on: { apiId }, after },
        }),
      onLost: () => metrics.historiesLost.inc(),
    }),
    /** Maximum duration of a call of many steps, milliseconds. */
    holdMs: config.FENCE_WAIT_MS,
    identities: new Identities(shared),
    keyImport: new KeyImport({ writer, keys, clock, limits }),
    keys,
    limits: new LimitView(nodes),
    listTurns: new Turns({ atOnce: 1, waitingMax: 1000 }),
    once: new Once(writer, clock, config.FENCE_WAIT_MS + ONCE_SPARE_MS, () => metrics.repeated.inc()),
    orderedKeys: new OrderedKeys(nodes, view, costlyReads),
    overrides: new RateLimitOverrides(shared),
    publishedRootKeys: new PublishedRootKeys({
      ...{ ...shared, bootstrapKeys, bootstrapWatch, rootKeys },
      logger: log,
    }),
    refusals: new RefusalView(nodes),
    roles: new Roles(shared),
    rootKeys,
    successors: new Successors(nodes, keys, clock),
    sweep: new Sweep({
      store: new RedisSweepStore(nodes, writer, keys, () => clock.wallMs()),
      log: changes,
      fence,
      clock,
      logger: log,
      leaseMs: config.LEASE_MS,
      deposedMs: deposedMsOf(config),
    }),
    usage: new UsageView(nodes),
    view,
    ...makeSignIn(base, nodes, rootKeys, resolve),
    ...makeWebhooks(base, { nodes, writer, changeWriter, apis, audit, fleet, resolve }),
  };
}

/** Creates the parts that write changes and wait until they are complete. */
function makeWriter({ config, clock, log, metrics, onUnfit }: Base) {
  const replicas = config.REDIS_REPLICAS;
  const nodes = new RedisNodes(config, clock, log, { commands: necessaryCommands(config), onUnfit });
  const writer = new DurableWriter(nodes, replicas, metrics.wrote);
  const changes = new RedisChangeLog(nodes, writer, replicas, () => clock.wallMs());
  const durability = new DurabilityCheck(nodes, replicas, clock, log);
  const fence = new Fence(changes, clock, deposedMsOf(config), metrics.fenceEvents(log));
  const changeWriter = new ChangeWriter({
    log: changes,
    fence,
    clock,
    limits: {
      fenceWaitMs: config.FENCE_WAIT_MS,
      pending: { changesMax: config.FENCES_PENDING_MAX, stopsMax: config.STOPS_PENDING_MAX },
      replicated: replicas > 0,
      batch: BATCH_LIMITS,
    },
    durable: durability.keeps,
    present: (apiId, keyId, letters) => changes.present(apiId, keyId, letters),
    events: metrics.writerEvents(log),
  });
  return { nodes, writer, changes, durability, fence, changeWriter };
}

/** Creates the parts by which root keys and persons sign in to the dashboard. */
function makeSignIn({ config, clock, log }: Base, nodes: RedisNodes, rootKeys: RootKeys, resolve: Resolve) {
  const options = oidcOptions(config);
  const provider = options && new OidcProvider(options, resolve, log);
  const persons =
    provider &&
    new PersonSessions({
      ...{ nodes, clock, issuer: options.issuer.href, rules: options.rules, idleMs: SESSION_IDLE_MS },
      refresh: (tokens, person) => provider.refresh(tokens, person),
    });
  const sessions = new Sessions(nodes, rootKeys, clock, persons);
  return { provider, pendingSignIns: new PendingSignIns(nodes), sessions };
}

/** Creates the parts that keep endpoints and send webhooks to them. */
function makeWebhooks(
  { config, clock, log, metrics }: Base,
  {
    nodes,
    writer,
    changeWriter,
    apis,
    audit,
    fleet,
    resolve,
  }: Pick<ReturnType<typeof makeWriter>, 'nodes' | 'writer' | 'changeWriter'> & {
    readonly apis: Apis;
    readonly audit: Audit;
    readonly fleet: FleetView;
    readonly resolve: Resolve;
  },
) {
  const rules = new AddressRules(config.WEBHOOK_NETWORKS);
  const poster = new EventPoster({ rules, clock, resolve });
  const endpoints = new WebhookEndpoints(nodes, writer, clock);
  const notices = new Notices(nodes);
  const watched = new WatchedFleet(nodes, fleet);
  const list: readonly Operation[] = operations;
  const events = new Map(list.map(({ name, event }) => [name, event]));
  return {
    deliveries: new Deliveries(nodes, config.WEBHOOK_QUEUE_MAX, clock),
    endpoints,
    notices,
    testEndpoint: (endpointId: string) => sendTestEvent({ endpoints, poster, clock }, endpointId),
    urlFault: (url: string) => urlFault(rules, url),
    webhookSender: new WebhookSender({
      ...{ nodes, endpoints, audit, poster, changeWriter, clock, log, events: metrics.webhookEvents },
      declared: (operation) => events.get(operation),
      duties: [
        new DueWatch({
          ...{ apis, notices, clock, log, leads: config.WEBHOOK_EXPIRING_DAYS },
          dueKeys: new DueKeys(nodes),
          rules: new KeyRules({
            ...{ nodes, writer, audit, notices, fleet: watched, clock, log },
            onDisabled: metrics.onUnusedDisabled,
          }),
        }),
        new FleetWatch({ fleet: watched, notices, clock, log }),
      ],
      queueMax: config.WEBHOOK_QUEUE_MAX,
      commandMsMax: config.REDIS_COMMAND_TIMEOUT_MS,
    }),
  };
}
