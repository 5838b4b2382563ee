import {
  type ApiKeys,
  apiKeys,
  poolKey,
  poolMarks,
  recordKey,
  SHARED_LOG,
  secretPointer,
  usageKey,
  verifierIds,
  windowKey,
} from '../../redis/redis-keys.ts';
import type { RedisConfig } from '../../redis/redis-settings.ts';

/** APIs for which the rights are checked at the start; more would hold up Redis. */
const APIS_CHECKED_MAX = 10;

/**
 * Returns every command that a verifier cannot do without, in the form in which it is run.
 * @param apiIds empty = any
 */
export function necessaryCommands(
  apiIds: readonly string[],
  config: Pick<RedisConfig, 'REDIS_MODE' | 'REDIS_REPLICAS'> & { readonly USAGE_PERIOD_MS: number },
): string[] {
  const apis = (apiIds.length > 0 ? apiIds : ['any']).slice(0, APIS_CHECKED_MAX);
  return [
    ...(config.REDIS_MODE === 'cluster' ? ['cluster slots'] : []),
    ...(config.REDIS_REPLICAS > 0 ? ['wait 0 0'] : []),
    ...['hello 3', 'time', `get ${secretPointer('x')}`],
    ...on(
      verifierIds,
      'eval x 1 K',
      'evalsha x 1 K',
      'set K v',
      'del K',
      'exists K',
      'zadd K 0 m',
      'zrem K m',
    ),
    ...on(verifierIds, 'zrandmember K'),
    ...apis.flatMap((apiId) => [
      ...following(apiId, apiKeys(apiId)),
      ...on(windowKey(apiId, 'x'), 'zadd K 0 m', 'zcard K', 'zremrangebyscore K 0 1'),
      ...(config.USAGE_PERIOD_MS > 0 ? on(usageKey(apiId, 'x'), 'hincrby K f 1', 'hkeys K', 'hdel K f') : []),
    ]),
    ...following(SHARED_LOG, apiKeys(SHARED_LOG)),
  ];
}

const following = (apiId: string, { head, log, creations, members, held, channel, recalls }: ApiKeys) => [
  ...[`subscribe ${channel}`, `subscribe ${recalls}`, `publish ${recalls} x`],
  ...on(head, 'eval x 1 K', 'evalsha x 1 K', 'get K', 'hmget K f'),
  ...[`hmget ${recordKey(apiId, 'x')} f`, `xrange ${log} - +`, `xrange ${creations} - +`],
  ...on(members, 'zadd K 0 m', 'zrem K m', 'zcard K', 'zscore K m'),
  ...on(held, 'zadd K 0 m', 'zrem K m', 'zrangebyscore K 0 1'),
  ...on(windowKey(apiId, 'x'), 'hmget K f', 'hset K f v', 'hdel K f', 'hlen K', 'hgetall K', 'del K'),
  ...on(windowKey(apiId, 'x'), 'pexpire K 1'),
  ...on(poolKey(apiId, 'x'), 'hmget K f', 'hset K f v', 'hdel K f', 'hlen K', 'hgetall K'),
  ...on(poolMarks(apiId), 'hset K f v', 'expire K 1'),
];

const on = (key: string, ...commands: readonly string[]) =>
  commands.map((command) => command.replace('K', key));
