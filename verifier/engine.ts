import { randomBytes } from 'node:crypto';
import { uniqueTexts } from '#shared/contract/request-id.ts';
import type { VerifierStatus } from '#shared/contract/verifier-status.ts';
import type { Clock } from '#shared/lang/clock.ts';
import type { ConfigOf } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import type { RedisConfig } from '#shared/redis/redis-settings.ts';
import type { FollowerEvents } from './core/follower-events.ts';
import { Verifier, type VerifierLimits } from './core/verifier.ts';
import type { engineLimits, engineSettings } from './engine-settings.ts';
import { RedisDirectory } from './redis/api-session.ts';
import { Refusals } from './redis/refusals-report.ts';
import { necessaryCommands } from './redis/rights.ts';
import { StatusReport } from './redis/status-report.ts';
import { Usage } from './redis/usage-report.ts';

/** The part that decides on keys with one Redis. A verifier process and the library use the same engine. */
export interface Engine {
  /** Id of this verifier in the fleet's list. */
  readonly id: string;
  readonly verifier: Verifier;
  /** undefined = the engine counts no usage. */
  readonly usage: Usage | undefined;
  /** undefined = the engine counts no usage, and remembers no refusals either. */
  readonly refusals: Refusals | undefined;
  /** Starts to follow APIs, and to report. */
  start(): void;
  /**
   * Returns the reason why the engine is not ready; undefined = ready. The engine waits for Redis only at the
   * start: a later loss of Redis does not make it unready again.
   */
  missing(): Promise<string | undefined>;
  /** Leaves every API, so that no change waits for this member. */
  stop(): Promise<void>;
  /** Closes the connections to Redis; call it after `stop`. */
  close(): Promise<void>;
}

type EngineConfig = ConfigOf<typeof engineSettings> & typeof engineLimits & RedisConfig;

/** @param options.verdicts returns the counts that are reported to the fleet's list */
export function createEngine(options: {
  config: EngineConfig;
  /** Empty = all. */
  apiIds: readonly string[];
  clock: Clock;
  log: Logger;
  events: (apiId: string) => FollowerEvents;
  verdicts: () => Pick<VerifierStatus, 'verdicts' | 'codes'>;
  /** Called if Redis cannot be used as it is configured. */
  onUnfit?: ((reason: string) => void) | undefined;
}): Engine {
  const { config, apiIds, clock, log, events, verdicts, onUnfit } = options;
  const commands = necessaryCommands(apiIds, config);
  const nodes = new RedisNodes(config, clock, log, { commands, onUnfit });
  const usage = config.USAGE_PERIOD_MS === 0 ? undefined : usageReport(config, { nodes, clock, log });
  const verifier = new Verifier({
    directory: new RedisDirectory(nodes, config.REDIS_REPLICAS, clock),
    clock,
    newNonce: uniqueTexts(),
    limits: verifierLimits(config),
    apiIds,
    foreignKeys: config.FOREIGN_KEYS,
    usage,
    events,
  });
  const status = new StatusReport({
    nodes,
    verifier,
    verdicts,
    clock,
    log,
    periodMs: config.STATUS_PERIOD_MS,
    settings: { foreignKeys: config.FOREIGN_KEYS, syncPeriodMs: config.SYNC_PERIOD_MS },
  });
  const periodMs = config.USAGE_PERIOD_MS;
  const refusals =
    periodMs === 0 ? undefined : new Refusals({ nodes, clock, log, periodMs, verifier: status.id });
  return {
    id: status.id,
    verifier,
    usage,
    refusals,
    start() {
      verifier.start();
      void status.run();
      usage?.run();
      refusals?.run();
    },
    missing: () => missingPart(verifier, nodes, apiIds),
    async stop() {
      await Promise.all([verifier.stop(), status.stop(), usage?.stop(), refusals?.stop()]);
    },
    close: () => nodes.close(),
  };
}

function usageReport(
  config: EngineConfig,
  dependencies: { nodes: RedisNodes; clock: Clock; log: Logger },
): Usage {
  return new Usage({
    ...dependencies,
    periodMs: config.USAGE_PERIOD_MS,
    keysMax: config.USAGE_KEYS_MAX,
    tagsMax: config.USAGE_TAGS_MAX,
    tagsHeldMax: config.USAGE_TAGS_HELD_MAX,
    reporter: randomBytes(9).toString('base64url'),
  });
}

function verifierLimits(config: EngineConfig): VerifierLimits {
  return {
    syncPeriodMs: config.SYNC_PERIOD_MS,
    syncDeadlineMs: config.SYNC_DEADLINE_MS,
    creditsSliceMs: config.CREDITS_SLICE_MS,
    cacheKeysMax: config.CACHE_KEYS_MAX,
    unknownKeysMax: config.UNKNOWN_KEYS_MAX,
    unknownTtlMs: config.UNKNOWN_KEY_TTL_MS,
    lookupsInFlightMax: config.LOOKUPS_IN_FLIGHT_MAX,
    lookupsQueuedMax: config.LOOKUPS_QUEUED_MAX,
    lookupWaitMs: config.LOOKUP_WAIT_MS,
    apisMax: config.APIS_MAX,
    apiIdleMs: config.API_IDLE_MS,
  };
}

async function missingPart(
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
