import { ApiError } from '#shared/contract/errors.ts';
import { systemClock } from '#shared/lang/clock.ts';
import { loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import { troubleOf } from '#shared/redis/redis-fault.ts';
import { apiList } from '#shared/redis/redis-keys.ts';
import { type RedisConfig, redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { Script } from '#shared/redis/script.ts';
import { settings as controlPlaneSettings } from '../../config.ts';
import { examineFleet } from '../../redis/examination/examine-fleet.ts';
import { examineServers } from '../../redis/examination/examine-servers.ts';
import type { Finding } from '../../redis/examination/finding.ts';

const permissionsScript = new Script(new URL('../../redis/lua/check-rights.lua', import.meta.url));

const K = 'kf:{!doctor}:x';
/** Every command of the control plane, in the form in which it is run. */
const NECESSARY = `
  hello 3, info server, time, config get x, cluster slots, wait 0 0, eval x 0, evalsha x 0, publish kf:{doctor}:chg x,
  get ${K}, getdel ${K}, mget ${K}, set ${K} v, del ${K}, exists ${K}, incr ${K}, pexpire ${K} 1, pttl ${K},
  hget ${K} f, hmget ${K} f, hgetall ${K}, hset ${K} f v, hdel ${K} f, hexists ${K} f, hlen ${K}, hvals ${K},
  zadd ${K} 0 m, zrem ${K} m, zcard ${K}, zcount ${K} 0 1, zscore ${K} m, zrange ${K} 0 1,
  zrangebyscore ${K} 0 1, zrevrangebyscore ${K} 1 0, zrangebylex ${K} - +,
  hincrby ${K} f 1, hsetnx ${K} f v,
  xadd ${K} * f v, xlen ${K}, xrange ${K} - +, xrevrange ${K} + -, xdel ${K} 1-0,
  xgroup create ${K} g 0, xgroup setid ${K} g 0, xreadgroup group g c streams ${K} 0, xack ${K} g 1-0,
  xinfo stream ${K}, xinfo groups ${K}`
  .trim()
  .split(/,\s+/);
/** Commands that no Keyfence process uses. */
const NEEDLESS = ['get other', 'flushall', 'config set x y', 'keys *', 'acl list', 'shutdown'];

const { REDIS_MIN_REPLICAS_MAX_LAG_S } = controlPlaneSettings;

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
  const settings = { ...redisSettings, REDIS_URL, REDIS_MIN_REPLICAS_MAX_LAG_S };
  const config = { ...redisLimits, ...loadConfigOrExit(settings, redisFaults) };
  const nodes = connect(config);
  try {
    return [
      ...(await examineServers(nodes, config)),
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

/** Describes an outage or a refusal, in the words of Redis or the system. Rethrows any other error. */
function reason(error: unknown): string {
  if (error instanceof ApiError)
    return error.cause ? `${error.message}: ${troubleOf(error.cause)}` : error.message;
  if (error instanceof Error && error.name === 'ReplyError') return `Redis refused: ${error.message}`;
  throw error;
}

async function commandsCheck(nodes: RedisNodes, config: RedisConfig): Promise<Finding> {
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
    : (/^(config|cluster|xgroup|xinfo) \w+|^\w+/.exec(command)?.[0] ?? command);
const permit = (names: readonly string[]) => names.map((name) => `+${name.replace(' ', '|')}`).join(' ');

/** True for a unix socket, which the network cannot reach. */
const isPrivate = (config: RedisConfig) => config.REDIS_URL[0]?.protocol === 'unix:';

/** Checks that Redis refuses clients without a password. */
async function strangers(config: RedisConfig): Promise<Finding[]> {
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
