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
  /** Memory that counts towards the limit, bytes. */
  readonly memoryUsed: number;
  /** Memory of the machine, bytes; 0 = not told. */
  readonly machineMemory: number;
  /** Writes to its disk that failed the last time the server tried, by the names of INFO. */
  readonly unwritten: readonly string[];
  /** The server's clock, Unix milliseconds; 0 = not told. */
  readonly timeMs: number;
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

/** Lines of INFO that say `err` after a write to the disk has failed. */
const DISK_STATUSES = ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'];

/** Reads the facts of one server. Rejects with SERVICE_UNAVAILABLE. */
export async function readFacts(nodes: RedisNodes, redis: Redis): Promise<RedisFacts> {
  // Keep this order: a setting takes effect gradually, and only a later INFO shows that it did.
  const [{ settings, refusal }, info] = await Promise.all([
    settingsOf(nodes, redis),
    nodes.within(redis, redis.info('server', 'memory', 'stats', 'persistence', 'replication')),
  ]);
  const number = (name: string) => Number(infoLine(info, name) ?? 0);
  return {
    runId: infoLine(info, 'run_id') ?? '',
    version: infoLine(info, 'redis_version') ?? '0',
    settings,
    refusal,
    rewriting:
      infoLine(info, 'aof_rewrite_in_progress') === '1' ||
      infoLine(info, 'aof_rewrite_scheduled') === '1' ||
      infoLine(info, 'aof_last_bgrewrite_status') === 'err',
    rewritten: number('aof_base_size') > 0,
    memoryMax: number('maxmemory'),
    memoryPolicy: infoLine(info, 'maxmemory_policy') ?? 'noeviction',
    memoryUsed: number('used_memory') - number('mem_not_counted_for_evict'),
    machineMemory: number('total_system_memory'),
    unwritten: DISK_STATUSES.filter((name) => infoLine(info, name) === 'err'),
    timeMs: number('server_time_usec') / 1000,
    evicted: number('evicted_keys'),
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

/** Share of the memory limit above which a person must act. */
const FULL_SHARE = 0.8;
const MIB = 2 ** 20;

/** Reasons why Redis may soon refuse writes, or be killed, for want of memory. */
export function memoryFaults({ memoryMax, memoryUsed, machineMemory }: RedisFacts): string[] {
  const setTo = (bytes: number) =>
    `\`CONFIG SET maxmemory ${Math.ceil(bytes / MIB)}mb\` on every server, and the same in its configuration`;
  if (memoryMax === 0)
    return [
      `there is no limit, so Redis is killed when the machine is full: set three fifths of what Redis may use, such as ${setTo(0.6 * machineMemory)}`,
    ];
  if (memoryUsed < FULL_SHARE * memoryMax) return [];
  return [
    `when Redis is full, no key can be created: delete keys, or give the machine more memory and run ${setTo(memoryMax * 1.5)}`,
  ];
}

/** Reasons why Redis may soon stop for want of disk: it does not tell how full its disk is, only what failed. */
export function diskFaults({ unwritten }: RedisFacts): string[] {
  if (unwritten.length === 0) return [];
  return [
    `Redis could not write its files (${unwritten.join(', ')}), and stops when it cannot write at all: make room on its disk, then run \`BGREWRITEAOF\``,
  ];
}

/** Greatest difference of two clocks that is no fault, milliseconds. */
export const CLOCK_OFF_MS_MAX = 2000;
/** A question that took longer, as where this process was paused, tells nothing about clocks. */
const CLOCK_TRIP_MS_MAX = 1000;

/**
 * Returns how far this process's clock is ahead of a server's, milliseconds; undefined = that cannot be told.
 * @param askedAt time of the question, on this process's clock
 * @param tripMs time from question to answer
 * @param timeMs the server's time in the answer; 0 = not told
 */
export const clockOffMs = (askedAt: number, tripMs: number, timeMs: number): number | undefined =>
  timeMs === 0 || tripMs > CLOCK_TRIP_MS_MAX ? undefined : Math.round(askedAt + tripMs / 2 - timeMs);

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let i = 0; i + 1 < flat.length; i += 2) yield [flat[i] ?? '', flat[i + 1] ?? ''];
}
