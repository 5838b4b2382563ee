import { join } from 'node:path';
import { FaultProxy } from '../../../deploy/dev/fault-proxy.ts';
import { Process } from '../../harness/processes.ts';
import { RedisCluster } from '../../harness/redis-cluster.ts';
import { RedisNode, SentinelGroup } from '../../harness/redis-nodes.ts';
import type { World } from './faults.ts';
import { Regions, WAY_MS } from './regions.ts';

export const ROOT_KEY = 'chaos-root-key-0123456789abcdef0123456789';
export const VERIFIERS = 4;
/** Short, so that many leases run out in a minute. */
const TIMING = { LEASE_MS: '2000', SYNC_PERIOD_MS: '300', FENCE_WAIT_MS: '8000' };

export const DEPLOYMENTS = ['single', 'sentinel', 'cluster', 'regions'] as const;
export type Deployment = (typeof DEPLOYMENTS)[number];

/**
 * Starts one control plane and its verifiers on Redis as deployed.
 * @param stop gets what ends each process, the latest last
 * @param settings of all processes
 */
export async function build(
  deployment: Deployment,
  directory: string,
  stop: (() => Promise<unknown>)[],
  settings: Readonly<Record<string, string>> = {},
): Promise<World> {
  const common = { ...TIMING, ...settings };
  if (deployment === 'regions') return buildRegions(directory, stop, common);
  const { redis, sentinels, cluster, direct } = await buildRedis(deployment, directory, stop);
  const controlPlane = new Process('control-plane/main.ts', { ...common, ...direct, ROOT_KEY });
  stop.push(() => controlPlane.stop('SIGKILL'));
  await controlPlane.start();
  const proxies: FaultProxy[] = [];
  const verifiers: Process[] = [];
  for (let i = 0; i < VERIFIERS; i++) {
    let way: Record<string, string> = direct;
    if (redis) {
      const proxy = new FaultProxy(() => redis.port);
      stop.push(async () => proxy.close());
      proxies.push(proxy);
      way = { REDIS_URL: `redis://127.0.0.1:${await proxy.listen()}` };
    }
    const verifier = new Process('verifier/main.ts', { ...common, ...way });
    stop.push(() => verifier.stop('SIGKILL'));
    verifiers.push(verifier);
    await verifier.start();
  }
  return { redis, sentinels, cluster, regions: undefined, controlPlane, verifiers, proxies };
}

/**
 * Two regions, a round trip of 80 ms apart. The replica of the far one has what a change needs to be complete (REDIS_REPLICAS),
 * and is read by the two verifiers beside it.
 */
async function buildRegions(
  directory: string,
  stop: (() => Promise<unknown>)[],
  common: Readonly<Record<string, string>>,
): Promise<World> {
  const regions = await Regions.start(directory, stop);
  const home = { REDIS_REPLICAS: '1', REDIS_URL: await regions.way('primary', 0) };
  const controlPlane = new Process('control-plane/main.ts', { ...common, ...home, ROOT_KEY });
  stop.push(() => controlPlane.stop('SIGKILL'));
  await controlPlane.start();
  const verifiers: Process[] = [];
  for (let i = 0; i < VERIFIERS; i++) {
    const isFar = i % 2 === 1;
    const far = { REGION: 'far', REDIS_READ_URL: await regions.way('replica', 0), CACHE_KEYS_MAX: '8' };
    const verifier = new Process('verifier/main.ts', {
      ...{ ...common, ...home, REGION: 'home', REDIS_URL: await regions.way('primary', isFar ? WAY_MS : 0) },
      ...(isFar ? far : {}),
    });
    stop.push(() => verifier.stop('SIGKILL'));
    verifiers.push(verifier);
    await verifier.start();
  }
  const none = { redis: undefined, sentinels: undefined, cluster: undefined };
  return { ...none, regions, controlPlane, verifiers, proxies: regions.ways };
}

/** Redis as deployed, with the settings that lead to it. */
async function buildRedis(
  deployment: Exclude<Deployment, 'regions'>,
  directory: string,
  stop: (() => Promise<unknown>)[],
): Promise<Pick<World, 'redis' | 'sentinels' | 'cluster'> & { direct: Record<string, string> }> {
  const none = { redis: undefined, sentinels: undefined, cluster: undefined };
  if (deployment === 'single') {
    const redis = await RedisNode.start(join(directory, 'redis'));
    stop.push(() => redis.stop());
    return { ...none, redis, direct: { REDIS_URL: redis.url } };
  }
  if (deployment === 'sentinel') {
    const sentinels = await SentinelGroup.start(directory);
    stop.push(() => sentinels.stop());
    const direct = { REDIS_URL: sentinels.url, REDIS_MODE: 'sentinel', REDIS_REPLICAS: '2' };
    return { ...none, sentinels, direct };
  }
  const cluster = await RedisCluster.start(directory, 1);
  stop.push(() => cluster.stop());
  return {
    ...none,
    cluster,
    direct: { REDIS_URL: cluster.url, REDIS_MODE: 'cluster', REDIS_REPLICAS: '1' },
  };
}
