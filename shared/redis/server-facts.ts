import type { Redis } from 'ioredis';
import { ApiError } from '../rules/errors.ts';
import type { RedisNodes } from './redis.ts';
import { infoLine } from './redis-fault.ts';

/** State and settings of one Redis server. */
export interface RedisFacts {
  /** An id that changes whenever the server starts. */
  readonly runId: string;
  readonly version: string;
  /** Settings on which durability depends; empty if the server does not show them. */
  readonly settings: ReadonlyMap<string, string>;
  /** The server's error message if it does not show its settings; undefined = it shows them. */
  readonly refusal: string | undefined;
  /** True if the server is rewriting its append-only file, is about to, or failed the last time. */
  readonly rewriting: boolean;
  /** True if the append-only file was rewritten at least once. */
  readonly rewritten: boolean;
  /** Memory limit, bytes; 0 = none. */
  readonly memoryMax: number;
  readonly memoryPolicy: string;
  /** Number of keys evicted since the server started. */
  readonly evicted: number;
  /** Number of replicas that follow the server and have all its data. */
  readonly replicas: number;
}

const SETTINGS = [
  'appendonly',
  'appendfsync',
  'no-appendfsync-on-rewrite',
  'min-replicas-to-write',
  'min-replicas-max-lag',
  'cluster-require-full-coverage',
] as const;

/** Reads the facts of one server. Rejects with SERVICE_UNAVAILABLE. */
export async function readFacts(nodes: RedisNodes, redis: Redis): Promise<RedisFacts> {
  // Keep this order: a setting takes effect gradually, and only a later INFO shows that it did.
  const [{ settings, refusal }, info] = await Promise.all([
    settingsOf(nodes, redis),
    nodes.within(redis, redis.info('server', 'memory', 'stats', 'persistence', 'replication')),
  ]);
  return {
    runId: infoLine(info, 'run_id') ?? '',
    version: infoLine(info, 'redis_version') ?? '0',
    settings,
    refusal,
    rewriting:
      infoLine(info, 'aof_rewrite_in_progress') === '1' ||
      infoLine(info, 'aof_rewrite_scheduled') === '1' ||
      infoLine(info, 'aof_last_bgrewrite_status') === 'err',
    rewritten: Number(infoLine(info, 'aof_base_size') ?? 0) > 0,
    memoryMax: Number(infoLine(info, 'maxmemory') ?? 0),
    memoryPolicy: infoLine(info, 'maxmemory_policy') ?? 'noeviction',
    evicted: Number(infoLine(info, 'evicted_keys') ?? 0),
    replicas: info.match(/^slave\d+:.*\bstate=online\b/gm)?.length ?? 0,
  };
}

/** Reads the settings. A refusal by the server is a result; an outage is an error. */
async function settingsOf(
  nodes: RedisNodes,
  redis: Redis,
): Promise<Pick<RedisFacts, 'settings' | 'refusal'>> {
  try {
    const flat = await nodes.within(redis, redis.config('GET', ...SETTINGS) as Promise<string[]>);
    return { settings: new Map(pairs(flat)), refusal: undefined };
  } catch (error) {
    const cause = error instanceof ApiError ? error.cause : error;
    if (!(cause instanceof Error) || cause.name !== 'ReplyError') throw error;
    return { settings: new Map(), refusal: cause.message };
  }
}

/** Reasons why a crash or power cut of this server could lose an acknowledged write, each with the setting to change. */
export function crashFaults(
  { settings, refusal, rewriting, rewritten }: RedisFacts,
  /** True if the append-only file was seen off, and has not been seen complete since. */
  wasOff = false,
): string[] {
  if (refusal !== undefined)
    return [
      `Redis does not show whether acknowledged writes survive a crash (CONFIG GET: ${refusal}): permit +config|get`,
    ];
  const faults: string[] = [];
  if (settings.get('appendonly') !== 'yes' || settings.get('appendfsync') !== 'always')
    faults.push(
      `a crash can lose acknowledged writes (appendonly ${settings.get('appendonly')}, appendfsync ${settings.get('appendfsync')}): set \`appendonly yes\` and \`appendfsync always\``,
    );
  if (settings.get('no-appendfsync-on-rewrite') === 'yes')
    faults.push(
      'a crash while the append-only file is rewritten can lose acknowledged writes: set `no-appendfsync-on-rewrite no`',
    );
  // If it is turned on while Redis runs, Redis first writes a complete file; until then a restart reads no
  // data.
  if (settings.get('appendonly') === 'yes' && rewriting && (wasOff || !rewritten))
    faults.push(
      'a crash can lose everything until Redis has written the first append-only file after `appendonly yes`: wait, and check the log of Redis if this persists',
    );
  return faults;
}

/**
 * The reason why a failover could lose an acknowledged write.
 * @param required number of replicas that each write waits for
 */
export function failoverFaults({ replicas }: RedisFacts, required: number): string[] {
  return replicas > required
    ? [
        `a failover can lose acknowledged writes, which wait for ${required} of ${replicas} replicas: set REDIS_REPLICAS=${replicas}`,
      ]
    : [];
}

/** Reasons why Redis could lose writes by itself: evicted keys. */
export function evictionFaults({ memoryMax, memoryPolicy, evicted }: RedisFacts): string[] {
  const faults: string[] = [];
  if (memoryMax > 0 && memoryPolicy !== 'noeviction')
    faults.push(
      `Redis evicts keys when its memory is full (maxmemory-policy ${memoryPolicy}): set \`maxmemory-policy noeviction\``,
    );
  if (evicted > 0)
    faults.push(
      `Redis has evicted ${evicted} keys since it started, and acknowledged writes with them: restore what was lost, then run CONFIG RESETSTAT`,
    );
  return faults;
}

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let i = 0; i + 1 < flat.length; i += 2) yield [flat[i] ?? '', flat[i + 1] ?? ''];
}
