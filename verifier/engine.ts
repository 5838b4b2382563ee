import { randomBytes } from 'node:crypto';
import { RedisExchanges } from '#shared/metering/redis-exchanges.ts';
import type { Clock } from '#shared/process/clock.ts';
import { type ConfigOf, flag, integer, list, secret, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import type { FollowerEvents } from '#shared/protocol/follower/follower.ts';
import { RedisNearby } from '#shared/protocol/follower/nearby.ts';
import { RedisDirectory } from '#shared/protocol/follower/session.ts';
import { necessaryCommands } from '#shared/protocol/follower/verifier-commands.ts';
import type { VerifierStatus } from '#shared/protocol/records/verifier-status.ts';
import { type RedisMeasures, RedisNodes } from '#shared/redis/redis.ts';
import { parseAddresses, type RedisAddress, type RedisConfig } from '#shared/redis/redis-settings.ts';
import { Refusals } from '#shared/reports/refusals-report.ts';
import { StatusReport } from '#shared/reports/status-report.ts';
import { Usage } from '#shared/reports/usage-report.ts';
import { WatchedApis } from '#shared/reports/watched-apis.ts';
import { digestNames, foreignDigests } from '#shared/rules/foreign-digests.ts';
import { uniqueTexts } from '#shared/rules/request-id.ts';
import { Verifier, type VerifierLimits } from './core/verifier.ts';
import { type Metering, metered } from './metering/metering.ts';

/** The part that decides on keys with one Redis. A verifier process and the library use the same engine. */
export interface Engine {
  /** Id of this verifier in the fleet's list. */
  readonly id: string;
  readonly verifier: Verifier<Metering>;
  /** Measures of Redis, as they were last taken. */
  readonly redis: RedisMeasures;
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
  /** Returns when the first certificate of the listeners ends, Unix milliseconds; undefined = there is none. */
  certificateEnds?: () => number | undefined;
  /** Called if Redis cannot be used as it is configured. */
  onUnfit?: ((reason: string) => void) | undefined;
}): Engine {
  const {
    config,
    apiIds,
    clock,
    log,
    events,
    verdicts,
    certificateEnds = () => undefined,
    onUnfit,
  } = options;
  const commands = necessaryCommands(apiIds, config);
  const nodes = new RedisNodes(config, clock, log, { commands, onUnfit });
  const watched = new WatchedApis(nodes, clock);
  const usage =
    config.USAGE_PERIOD_MS === 0 ? undefined : usageReport(config, { nodes, clock, log, watched });
  const nearby = config.REDIS_READ_URL.length > 0 ? new RedisNearby(config, clock, log) : undefined;
  const digests = foreignDigests.filter((kind) => config.FOREIGN_DIGESTS.includes(kind));
  const verifier = new Verifier({
    ...metered({
      exchanges: new RedisExchanges(nodes, config.REDIS_REPLICAS),
      sliceMs: config.CREDITS_SLICE_MS,
    }),
    directory: new RedisDirectory(nodes, config.REDIS_REPLICAS, clock, nearby),
    clock,
    newNonce: uniqueTexts(),
    limits: verifierLimits(config),
    apiIds,
    region: config.REGION,
    foreignKeys: config.FOREIGN_KEYS,
    ...(digests.length > 0 ? { digestNames: digestNames(digests, config.FOREIGN_PEPPER) } : {}),
    usage,
    events,
  });
  const status = new StatusReport({
    nodes,
    verifier,
    verdicts,
    clock,
    log,
    usage,
    certificateEnds,
    region: config.REGION,
    periodMs: config.STATUS_PERIOD_MS,
    settings: {
      ...{ foreignKeys: config.FOREIGN_KEYS, foreignDigests: digests, syncPeriodMs: config.SYNC_PERIOD_MS },
    },
  });
  const periodMs = config.USAGE_PERIOD_MS;
  const refusals =
    periodMs === 0 ? undefined : new Refusals({ nodes, clock, log, periodMs, watched, verifier: status.id });
  return {
    id: status.id,
    verifier,
    redis: {
      get clockOffMs() {
        return status.clockOffMs;
      },
      get lastTripMs() {
        return nodes.lastTripMs;
      },
    },
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
      await Promise.all([verifier.stop(), usage?.stop(), refusals?.stop()]);
      await status.stop();
    },
    async close() {
      await Promise.all([nodes.close(), nearby?.close()]);
    },
  };
}

function usageReport(
  config: EngineConfig,
  dependencies: { nodes: RedisNodes; clock: Clock; log: Logger; watched: WatchedApis },
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

/** Settings of the engine. A verifier process has them under these names, the library in camel case. */
export const engineSettings = {
  CACHE_KEYS_MAX: integer(1, 16_000_000, 'keys', 100_000).help(
    'Maximum number of keys in memory; the least recently used are dropped. A key without `meta` takes about 450 bytes',
  ),
  LOOKUP_WAIT_MS: integer(1, 10_000, 'ms', 1000).help(
    'Maximum time that a request waits for a look-up. After that it gets 503. The first question about an API takes about 8 round trips to Redis, later ones one',
  ),
  REDIS_READ_URL: secret('', 'redis:// or rediss:// URLs, comma-separated', parseReadAddresses).help(
    'Replicas of Redis that are nearer than the primary. The verifier looks keys up there first, and asks the primary only for what a replica cannot tell. Without a user of its own, the URL uses that of REDIS_URL',
  ),
  REGION: text('', /^[a-z0-9-]{0,32}$/, 'at most 32 of a-z, 0-9 and -').help(
    'Where the verifier runs. `keyfence fleet` tells it, and the name of a verifier for which a change waits',
  ),
  SYNC_PERIOD_MS: integer(50, 60_000, 'ms', 1000).help(
    'Period (±10 %) after which the verifier asks Redis for the changes of each API that it follows. If messages are lost, changes arrive this much later. Set it well below LEASE_MS of the control plane',
  ),
  CREDITS_SLICE_MS: integer(0, 60_000, 'ms', 2000).help(
    'For a key that is used often, the verifier takes credits and uses of rate limits from Redis in advance, for about this time. If it crashes, they are lost. With 0 it asks Redis each time',
  ),
  FOREIGN_KEYS: flag(false).help(
    "If true, the verifier also looks up keys without Keyfence's own format, such as imported keys. If false, it refuses them",
  ),
  FOREIGN_DIGESTS: list(
    new RegExp(`^(${foreignDigests.join('|')})$`),
    `comma-separated: ${foreignDigests.join(', ')}`,
  ).help(
    'Digests besides SHA-256 by which the verifier looks up keys of a foreign format, if they were imported by these. Needs FOREIGN_KEYS',
  ),
  FOREIGN_PEPPER: secret('', 'text').help('Key of the HMAC, for `hmacSha256`. Prefer FOREIGN_PEPPER_FILE'),
  STOP_WAIT_MS: integer(0, 300_000, 'ms', 10_000).help(
    'How long the verifier waits at its stop for open [holds](metering/holds.md), after DRAIN_MS. It begins no more, and charges what is then open what was said last, or what was reserved',
  ),
  USAGE_PERIOD_MS: integer(0, 3_600_000, 'ms', 60_000).help(
    'Period after which the verifier reports its counts of verdicts to Redis. The time `lastUsedAt` of a key is that of a report, so it can be later than the use by this period and the duration of a report. With 0 the verifier counts no usage',
  ),
};

/** Returns the addresses of a text that may be empty. */
function parseReadAddresses(text: string): readonly RedisAddress[] {
  return text === '' ? [] : parseAddresses(text);
}

/** Returns the faults of these settings that do not fit together. */
export function engineFaults({
  FOREIGN_KEYS,
  FOREIGN_DIGESTS,
  FOREIGN_PEPPER,
  REDIS_READ_URL,
  REDIS_URL,
}: Pick<
  EngineConfig,
  `FOREIGN_${'KEYS' | 'DIGESTS' | 'PEPPER'}` | 'REDIS_READ_URL' | 'REDIS_URL'
>): string[] {
  const hasOtherDatabase = REDIS_READ_URL.some(({ database }) => database !== REDIS_URL[0]?.database);
  const hasHmac = FOREIGN_DIGESTS.includes('hmacSha256');
  return [
    ...(FOREIGN_DIGESTS.length > 0 && !FOREIGN_KEYS ? ['FOREIGN_DIGESTS: needs FOREIGN_KEYS=true'] : []),
    ...(hasOtherDatabase ? ['REDIS_READ_URL: must name the same database as REDIS_URL'] : []),
    ...(hasHmac && !FOREIGN_PEPPER ? ['FOREIGN_PEPPER: required for hmacSha256 in FOREIGN_DIGESTS'] : []),
    ...(FOREIGN_PEPPER && !hasHmac ? ['FOREIGN_PEPPER: needs hmacSha256 in FOREIGN_DIGESTS'] : []),
  ];
}

/** Limits that suit everybody. Only tests replace them. */
export const engineLimits = {
  /**
   * Most unknown keys that the verifier remembers as unknown, apart from the known ones; about 50 bytes each,
   * allocated at the start.
   */
  UNKNOWN_KEYS_MAX: 10_000,
  /**
   * Time for which the verifier remembers that a key is unknown. If somebody asks for a secret before its key
   * exists, the new key can be refused for this time, or for LOOKUP_WAIT_MS if that is longer.
   */
  UNKNOWN_KEY_TTL_MS: 1000,
  /** Most look-ups at Redis at once. */
  LOOKUPS_IN_FLIGHT_MAX: 64,
  /** Most look-ups that wait for a running one to end; requests for further ones get 503. */
  LOOKUPS_QUEUED_MAX: 1000,
  /** Longest wait for a reply to a synchronisation; then the connection to Redis is cut. */
  SYNC_DEADLINE_MS: 800,
  /** Most APIs that the verifier follows at once; questions about keys of further APIs get 503. */
  APIS_MAX: 1000,
  /** Time without a question after which the verifier stops following an API, unless it is one of API_IDS. */
  API_IDLE_MS: 600_000,
  /**
   * Period after which this verifier reports itself for fleet.listVerifiers. After three missed reports it is
   * no longer listed.
   */
  STATUS_PERIOD_MS: 10_000,
  /**
   * Most keys that the verifier counts between two reports of usage; it does not count verdicts on further
   * keys. About 150 bytes each.
   */
  USAGE_KEYS_MAX: 100_000,
  /**
   * Most tags of an API and day that are counted apart, the first ones; verdicts with further tags are
   * counted together as `other`. Up to 700 bytes of Redis each, for a month.
   */
  USAGE_TAGS_MAX: 1000,
  /**
   * Most tags, of all APIs, whose counts wait in memory between two reports; verdicts with others are counted
   * as `other`. Up to 700 bytes each.
   */
  USAGE_TAGS_HELD_MAX: 10_000,
};

/**
 * Creates the log of a follower's events. Of consecutive failures only the first is a warning, so that an
 * outage is one line per API.
 */
export function followerLog(apiId: string, log: Logger): FollowerEvents {
  let failing = false;
  return {
    live(position, leaseMs) {
      failing = false;
      log.info({ apiId, position, leaseMs }, 'following');
    },
    dropped(reason, position) {
      log.warn({ apiId, reason, position }, 'out of sync: forgot everything, registering anew');
    },
    disconnected(reason, position) {
      const say = failing ? log.debug.bind(log) : log.warn.bind(log);
      say(
        { apiId, position, err: reason },
        'no session with Redis; answering from memory while the lease holds',
      );
      failing = true;
    },
    resumed(position) {
      failing = false;
      log.info({ apiId, position }, 'in touch with Redis again');
    },
    gap(position, sequence) {
      log.debug({ apiId, position, received: sequence }, 'a message was missed; synchronising');
    },
    applied({ sequence, keyId }, source) {
      log.debug({ apiId, sequence, keyId, source }, 'change applied');
    },
  };
}
