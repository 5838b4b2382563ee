import type { Redis } from 'ioredis';
import { ApiError } from '#shared/contract/errors.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { infoLine } from '#shared/redis/redis-fault.ts';

/** State and settings of one Redis server. */
export interface RedisFacts {
  /** Changes at each start of the server. */
  readonly runId: string;
  readonly version: string;
  /** Settings that decide what it keeps; empty where it does not show them. */
  readonly settings: ReadonlyMap<string, string>;
  /** Its reason not to show them, in its own words; undefined = it shows them. */
  readonly refusal: string | undefined;
  /** True if it rewrites its append-only file, is about to, or failed to the last time. */
  readonly rewriting: boolean;
  /** True if that file was rewritten at least once. */
  readonly rewritten: boolean;
  /** Memory limit, bytes; 0 = none. */
  readonly memoryMax: number;
  readonly memoryPolicy: string;
  /** Keys that it evicted since it started. */
  readonly evicted: number;
}

const SETTINGS = [
  'appendonly',
  'appendfsync',
  'no-appendfsync-on-rewrite',
  'min-replicas-to-write',
  'min-replicas-max-lag',
  'cluster-require-full-coverage',
] as const;

/** Asks one server. Rejects with SERVICE_UNAVAILABLE. */
export async function readFacts(nodes: RedisNodes, redis: Redis): Promise<RedisFacts> {
  // In this order: a setting takes effect over time, and only the later look shows that it did.
  const [{ settings, refusal }, info] = await Promise.all([
    settingsOf(nodes, redis),
    nodes.within(redis, redis.info('server', 'memory', 'stats', 'persistence')),
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
  };
}

/** A refusal is the server's answer; an outage is none. */
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

/** Reasons why this server could lose an acknowledged write that no replica has, each with the setting to change. */
export function crashFaults(
  { settings, refusal, rewriting, rewritten }: RedisFacts,
  /** True if the append-only file was seen to be off, and not seen to be complete since. */
  wasOff = false,
): string[] {
  if (refusal !== undefined)
    return [
      `Redis does not show whether it keeps what it acknowledges (CONFIG GET: ${refusal}): permit +config|get`,
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
  // Turned on while it runs, Redis writes a file first that has all that there is; until then a restart reads none.
  if (settings.get('appendonly') === 'yes' && rewriting && (wasOff || !rewritten))
    faults.push(
      'a crash can lose everything until the append-only file is complete, which it is not while Redis writes the first one after `appendonly yes`: wait, and look into the log of Redis if this goes on',
    );
  return faults;
}

/** Reasons why replicas could lose it too: keys that are evicted. */
export function evictionFaults({ memoryMax, memoryPolicy, evicted }: RedisFacts): string[] {
  const faults: string[] = [];
  if (memoryMax > 0 && memoryPolicy !== 'noeviction')
    faults.push(
      `Redis throws keys away when its memory is full (maxmemory-policy ${memoryPolicy}): set \`maxmemory-policy noeviction\``,
    );
  if (evicted > 0)
    faults.push(
      `Redis has thrown ${evicted} keys away since it started, and acknowledged writes with them: restore what is lost, then CONFIG RESETSTAT`,
    );
  return faults;
}

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let i = 0; i + 1 < flat.length; i += 2) yield [flat[i] ?? '', flat[i + 1] ?? ''];
}
