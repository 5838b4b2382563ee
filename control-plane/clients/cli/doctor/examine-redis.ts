import { systemClock } from '#shared/process/clock.ts';
import { loadFromEnvironment } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { necessaryCommands } from '#shared/protocol/writer/control-plane-commands.ts';
import { deniedCommands, permitting } from '#shared/redis/fitness.ts';
import { RedisNodes } from '#shared/redis/redis.ts';
import { troubleOf } from '#shared/redis/redis-fault.ts';
import { apiList } from '#shared/redis/redis-keys.ts';
import { type RedisConfig, redisFaults, redisLimits, redisSettings } from '#shared/redis/redis-settings.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { settings as controlPlaneSettings } from '../../../config.ts';
import {
  examineBootstrapKeys,
  examineCertificates,
  examineEndpoints,
  examineFleet,
  examineHistories,
  examineServers,
  type Finding,
} from '../../../subjects/examine/examination.ts';

/** Commands that no Keyfence process uses. */
const NEEDLESS = ['get other', 'flushall', 'config set x y', 'keys *', 'acl list', 'shutdown'];

const { REDIS_MIN_REPLICAS_MAX_LAG_S } = controlPlaneSettings;

/**
 * Examines Redis as the control plane reaches it, with the control plane's settings; undefined = none are set here.
 * @param startedUrl URL of the Redis that `npm start` runs on this machine, the default for REDIS_URL
 * @param verifierId id of the verifier that answered
 */
export async function examineRedis(
  startedUrl: string | undefined,
  verifierId: string | undefined,
): Promise<Finding[] | undefined> {
  const { REDIS_URL: text } = loadFromEnvironment({
    REDIS_URL: { ...redisSettings.REDIS_URL, default: '', parse: String },
  });
  if (text === '' && startedUrl === undefined) return undefined;
  const REDIS_URL = { ...redisSettings.REDIS_URL, default: startedUrl ?? redisSettings.REDIS_URL.default };
  const settings = { ...redisSettings, REDIS_URL, REDIS_MIN_REPLICAS_MAX_LAG_S };
  const config = { ...redisLimits, ...loadFromEnvironment(settings, redisFaults) };
  const nodes = connect(config);
  try {
    const { hasInfo, ...commands } = await commandsCheck(nodes, config);
    return [
      ...(hasInfo ? await examineServers(nodes, config, systemClock, "this machine's") : []),
      ...examineCertificates(nodes.certificates, systemClock.wallMs()),
      commands,
      ...(await strangers(config)),
      ...(await examineFleet(nodes, systemClock, verifierId)),
      ...(await examineHistories(nodes)),
      ...(await examineBootstrapKeys(nodes)),
      ...(await examineEndpoints(nodes)),
    ];
  } catch (error) {
    const change = isDeadPrimary(error, config)
      ? 'the Sentinels answer, and name this primary: start it, or see with `SENTINEL CKQUORUM mymaster` why they elect no other'
      : 'set REDIS_URL, REDIS_MODE and REDIS_PASSWORD_FILE to the values of the control plane';
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

/** Tells whether what cannot be reached is no Sentinel, so that a Sentinel named it. */
function isDeadPrimary(error: unknown, config: RedisConfig): boolean {
  const { port } = ((error as Error).cause ?? {}) as { readonly port?: number };
  if (config.REDIS_MODE !== 'sentinel' || port === undefined) return false;
  return config.REDIS_URL.every((sentinel) => sentinel.port !== port);
}

async function commandsCheck(
  nodes: RedisNodes,
  config: RedisConfig,
): Promise<Finding & { readonly hasInfo: boolean }> {
  const check = 'rights';
  const redis = await nodes.connection(apiList);
  // Without the first a control plane runs, but cannot promise that a change survives.
  const necessary = ['config get x', ...necessaryCommands(config)];
  const denied = await nodes.within(redis, deniedCommands(redis, [...necessary, ...NEEDLESS]));
  const missing = necessary.filter((command) => denied.includes(command));
  const hasInfo = !missing.some((command) => /^(info|eval) /.test(command));
  if (missing.length > 0) {
    const names = permitting(missing);
    return { hasInfo, check, found: `lacks ${names}`, change: `permit ${names} on ~kf:* and &kf:*` };
  }
  const needless = NEEDLESS.filter((command) => !denied.includes(command)).map(nameOf);
  if (needless.length === 0) return { hasInfo, check, found: 'all that is needed, and no more' };
  if (isPrivate(config))
    return { hasInfo, check, found: 'all; only users of this machine can reach its socket' };
  const change = 'give each process a Redis user of its own, limited to what it needs';
  return { hasInfo, check, found: `more than is needed: ${needless.join(', ')}`, change };
}

const nameOf = (command: string) =>
  command.startsWith('get other') ? 'keys of others' : (/^config \w+|^\w+/.exec(command)?.[0] ?? command);

/** True for a unix socket, which the network cannot reach. */
const isPrivate = (config: RedisConfig) => config.REDIS_URL[0]?.path !== undefined;

/** Checks that Redis refuses clients without a password. */
async function strangers(config: RedisConfig): Promise<Finding[]> {
  if (isPrivate(config)) return [];
  const urls = config.REDIS_URL.map((address) => ({ ...address, username: '', password: '' }));
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
