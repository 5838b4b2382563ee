import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { systemClock } from '#shared/lang/clock.ts';
import { loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import { troubleOf } from '#shared/redis/redis-fault.ts';
import { apiList } from '#shared/redis/redis-keys.ts';
import { type RedisConfig, redisFaults, redisSettings } from '#shared/redis/redis-settings.ts';
import { Script } from '#shared/redis/script.ts';
import { settings } from '../../config.ts';
import { crashFaults, evictionFaults, type RedisFacts, readFacts } from '../../redis/server-facts.ts';
import { examineFleet } from './examine-fleet.ts';
import type { Finding } from './finding.ts';

const permissionsScript = new Script(new URL('../../redis/lua/check-rights.lua', import.meta.url));

const K = 'kf:{!doctor}:x';
/** Every command of the control plane, in the form in which it is run. */
const NECESSARY = `
  hello 3, info server, time, config get x, cluster slots, wait 0 0, eval x 0, evalsha x 0, publish kf:{doctor}:chg x,
  get ${K}, mget ${K}, set ${K} v, del ${K}, exists ${K}, incr ${K}, pexpire ${K} 1, pttl ${K},
  hget ${K} f, hmget ${K} f, hgetall ${K}, hset ${K} f v, hdel ${K} f, hexists ${K} f, hlen ${K}, hvals ${K},
  zadd ${K} 0 m, zrem ${K} m, zcard ${K}, zcount ${K} 0 1, zscore ${K} m, zrange ${K} 0 1,
  zrangebyscore ${K} 0 1, zrevrangebyscore ${K} 1 0, zrangebylex ${K} - +,
  xadd ${K} * f v, xrange ${K} - +, xrevrange ${K} + -`
  .trim()
  .split(/,\s+/);
/** Commands that no Keyfence process uses. */
const NEEDLESS = ['get other', 'flushall', 'config set x y', 'keys *', 'acl list', 'shutdown'];

const { REDIS_MIN_REPLICAS_MAX_LAG_S } = settings;
type Config = RedisConfig & { readonly REDIS_MIN_REPLICAS_MAX_LAG_S: number };

/**
 * Examines Redis as the control plane reaches it, with the control plane's settings.
 * @param startedUrl URL of the Redis that `npm start` runs on this machine, the default for REDIS_URL
 * @param verifierId id of the verifier that answered
 */
export async function examineRedis(
  startedUrl: string | undefined,
  verifierId: string | undefined,
): Promise<Finding[]> {
  const REDIS_URL = { ...redisSettings.REDIS_URL, default: startedUrl ?? redisSettings.REDIS_URL.default };
  const config = loadConfigOrExit({ ...redisSettings, REDIS_URL, REDIS_MIN_REPLICAS_MAX_LAG_S }, redisFaults);
  const nodes = connect(config);
  try {
    const servers = await nodes.primaries();
    const primaryFacts = await Promise.all(servers.map((redis) => readFacts(nodes, redis)));
    const [facts] = primaryFacts;
    if (facts === undefined) throw unavailable('the Cluster has no node that owns a slot');
    return [
      { check: 'Redis', found: `version ${facts.version}, ${config.REDIS_MODE}${numberOf(primaryFacts)}` },
      persistenceOf(primaryFacts),
      memoryOf(primaryFacts),
      await replicationOf(nodes, facts, config),
      ...(config.REDIS_MODE === 'cluster' && facts.refusal === undefined ? [coverageOf(primaryFacts)] : []),
      await commandsCheck(nodes, config),
      ...(await strangers(config)),
      ...(await examineFleet(nodes, verifierId)),
    ];
  } catch (error) {
    const change = 'set REDIS_URL, REDIS_MODE and REDIS_PASSWORD_FILE to the values of the control plane';
    return [{ check: 'Redis', found: reason(error), change }];
  } finally {
    await nodes.close();
  }
}

const connect = (config: RedisConfig) =>
  new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));

const numberOf = (primaries: readonly RedisFacts[]) =>
  primaries.length > 1 ? `, ${primaries.length} primaries` : '';

/** Describes an outage or a refusal, in the words of Redis or the system. Rethrows any other error. */
function reason(error: unknown): string {
  if (error instanceof ApiError)
    return error.cause ? `${error.message}: ${troubleOf(error.cause)}` : error.message;
  if (error instanceof Error && error.name === 'ReplyError') return `Redis refused: ${error.message}`;
  throw error;
}

/** The faults of all servers without duplicates. */
function faultsOf(
  primaries: readonly RedisFacts[],
  of: (facts: RedisFacts) => readonly string[],
): { change?: string } {
  const faults = [...new Set(primaries.flatMap(of))];
  return faults.length === 0 ? {} : { change: faults.join('; ') };
}

/** The values of a setting on all servers; more than one if they differ. */
const valuesOf = (primaries: readonly RedisFacts[], of: (facts: RedisFacts) => string | undefined) =>
  [...new Set(primaries.map(of))].join(' and ');

function persistenceOf(primaries: readonly RedisFacts[]): Finding {
  const check = 'persistence';
  const value = (name: string) => `${name} ${valuesOf(primaries, ({ settings }) => settings.get(name))}`;
  const refusalText = primaries.find(({ refusal }) => refusal !== undefined)?.refusal;
  const result =
    refusalText === undefined
      ? ['appendonly', 'appendfsync', 'no-appendfsync-on-rewrite'].map(value).join(', ')
      : `not known: CONFIG GET is refused (${refusalText})`;
  return { check, found: result, ...faultsOf(primaries, crashFaults) };
}

function memoryOf(primaries: readonly RedisFacts[]): Finding {
  const result = valuesOf(primaries, ({ memoryMax, memoryPolicy }) =>
    memoryMax === 0 ? 'no limit' : `at most ${Math.round(memoryMax / 2 ** 20)} MiB, then ${memoryPolicy}`,
  );
  return { check: 'memory', found: result, ...faultsOf(primaries, evictionFaults) };
}

async function replicationOf(nodes: RedisNodes, { settings }: RedisFacts, config: Config): Promise<Finding> {
  const replicas = config.REDIS_REPLICAS;
  const info = await nodes.run(apiList, (redis) => redis.info('replication'));
  const present = Number(/connected_slaves:(\d+)/.exec(info)?.[1] ?? 0);
  const check = 'replication';
  const result = `${present} replicas; writes wait for ${replicas} (REDIS_REPLICAS)`;
  const changes = [
    ...(present < replicas ? [`every write is refused until ${replicas} replicas are connected`] : []),
    ...(present > replicas ? [`a failover can lose a disable: set REDIS_REPLICAS=${present}`] : []),
  ];
  if (replicas > 0 && settings.size > 0) {
    const lagS = config.REDIS_MIN_REPLICAS_MAX_LAG_S;
    if (settings.get('min-replicas-to-write') === '0') {
      changes.push('a cut-off primary would continue to accept writes: set `min-replicas-to-write 1`');
    } else if (settings.get('min-replicas-max-lag') !== String(lagS)) {
      const maxLag = settings.get('min-replicas-max-lag');
      changes.push(`set REDIS_MIN_REPLICAS_MAX_LAG_S=${maxLag}, or \`min-replicas-max-lag ${lagS}\``);
    }
  }
  return { check, found: result, ...(changes.length > 0 ? { change: changes.join('; ') } : {}) };
}

/** Checks the setting that decides whether the other shards of a Cluster keep working when one is lost. */
function coverageOf(primaries: readonly RedisFacts[]): Finding {
  const value = valuesOf(primaries, ({ settings }) => settings.get('cluster-require-full-coverage'));
  const result = `cluster-require-full-coverage ${value}`;
  if (value === 'no') return { check: 'shards', found: result };
  const change =
    'the loss of one shard stops the APIs of all: `CONFIG SET cluster-require-full-coverage no` on every node';
  return { check: 'shards', found: result, change };
}

async function commandsCheck(nodes: RedisNodes, config: Config): Promise<Finding> {
  const check = 'rights';
  const redis = await nodes.connection(apiList);
  const commands = [...NECESSARY, ...NEEDLESS];
  let denials: Set<string>;
  try {
    const reply = await nodes.within(redis, permissionsScript.run(redis, [apiList], commands));
    denials = new Set(reply as string[]);
  } catch (error) {
    return { check, found: reason(error), change: `permit +eval and +evalsha on ~kf:*` };
  }
  const missing = NECESSARY.filter((command) => denials.has(command)).map(nameOf);
  if (missing.length > 0) {
    return {
      check,
      found: `lacks ${missing.join(', ')}`,
      change: `permit ${permit(missing)} on ~kf:* and &kf:*`,
    };
  }
  const needless = NEEDLESS.filter((command) => !denials.has(command)).map(nameOf);
  if (needless.length === 0) return { check, found: 'all that is needed, and no more' };
  if (isPrivate(config)) return { check, found: 'all; only users of this machine can reach its socket' };
  const change = 'give each process a Redis user of its own, limited to what it needs';
  return { check, found: `more than is needed: ${needless.join(', ')}`, change };
}

const nameOf = (command: string) =>
  command.startsWith('get other')
    ? 'keys of others'
    : (/^(config|cluster) \w+|^\w+/.exec(command)?.[0] ?? command);
const permit = (names: readonly string[]) => names.map((name) => `+${name.replace(' ', '|')}`).join(' ');

/** True for a unix socket, which the network cannot reach. */
const isPrivate = (config: Config) => config.REDIS_URL[0]?.protocol === 'unix:';

/** Checks that Redis refuses clients without a password. */
async function strangers(config: Config): Promise<Finding[]> {
  if (isPrivate(config)) return [];
  const urls = config.REDIS_URL.map((url) => Object.assign(new URL(url), { username: '', password: '' }));
  const nodes = connect({ ...config, REDIS_URL: urls, REDIS_USERNAME: '', REDIS_PASSWORD: '' });
  const check = 'strangers';
  try {
    await nodes.run(apiList, (redis) => redis.exists(apiList));
    const change = 'anyone who reaches Redis can change every key: set `user default off`, or a password';
    return [{ check, found: 'are let in without a password', change }];
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [{ check, found: 'are kept out' }];
  } finally {
    await nodes.close();
  }
}
