import { unavailable } from '#shared/contract/errors.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiList } from '#shared/redis/redis-keys.ts';
import type { RedisConfig } from '#shared/redis/redis-settings.ts';
import type { Finding } from './finding.ts';
import { crashFaults, evictionFaults, type RedisFacts, readFacts } from './server-facts.ts';

type Config = Pick<RedisConfig, 'REDIS_MODE' | 'REDIS_REPLICAS'> & {
  readonly REDIS_MIN_REPLICAS_MAX_LAG_S: number;
};

/** Examines the settings of Redis on which it depends what a crash can lose. Rejects with SERVICE_UNAVAILABLE. */
export async function examineServers(nodes: RedisNodes, config: Config): Promise<Finding[]> {
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
  ];
}

const numberOf = (primaries: readonly RedisFacts[]) =>
  primaries.length > 1 ? `, ${primaries.length} primaries` : '';

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
