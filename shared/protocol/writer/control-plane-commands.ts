import type { RedisConfig } from '../../redis/redis-settings.ts';

const K = 'kf:{!doctor}:x';

/** Returns every command that a control plane cannot do without, in the form in which it is run. */
export function necessaryCommands({
  REDIS_MODE,
  REDIS_REPLICAS,
}: Pick<RedisConfig, 'REDIS_MODE' | 'REDIS_REPLICAS'>): string[] {
  return [
    ...(REDIS_MODE === 'cluster' ? ['cluster slots'] : []),
    ...(REDIS_REPLICAS > 0 ? ['wait 0 0'] : []),
    ...ALWAYS,
  ];
}

const ALWAYS = `
  hello 3, info server, time, eval x 0, evalsha x 0, publish kf:{doctor}:chg x,
  get ${K}, getdel ${K}, mget ${K}, set ${K} v, del ${K}, exists ${K}, incr ${K}, pexpire ${K} 1, pttl ${K},
  hget ${K} f, hmget ${K} f, hgetall ${K}, hset ${K} f v, hdel ${K} f, hexists ${K} f, hlen ${K}, hscan ${K} 0, hvals ${K},
  zadd ${K} 0 m, zrem ${K} m, zcard ${K}, zcount ${K} 0 1, zscore ${K} m, zrange ${K} 0 1,
  zrangebyscore ${K} 0 1, zrevrangebyscore ${K} 1 0, zrangebylex ${K} - +,
  hincrby ${K} f 1,
  xadd ${K} * f v, xlen ${K}, xrange ${K} - +, xrevrange ${K} + -, xdel ${K} 1-0,
  xgroup create ${K} g 0, xgroup setid ${K} g 0, xreadgroup group g c streams ${K} 0, xack ${K} g 1-0,
  xinfo stream ${K}, xinfo groups ${K}`
  .trim()
  .split(/,\s+/);
