import type { FaultProxy } from '../../../deploy/dev/fault-proxy.ts';
import type { Process } from '../../harness/processes.ts';
import type { RedisCluster } from '../../harness/redis-cluster.ts';
import type { RedisNode, SentinelGroup } from '../../harness/redis-nodes.ts';
import type { Regions } from './regions.ts';

/** Everything that faults are done to. */
export interface World {
  readonly redis: RedisNode | undefined;
  readonly sentinels: SentinelGroup | undefined;
  readonly cluster: RedisCluster | undefined;
  readonly regions: Regions | undefined;
  readonly controlPlane: Process;
  readonly verifiers: readonly Process[];
  /** One before each verifier, where there is a single Redis. */
  readonly proxies: readonly FaultProxy[];
}

/** One kind of fault. `inject` resolves when it is in effect, with what ends it. */
export interface Fault {
  readonly name: string;
  inject(random: () => number): Promise<() => Promise<void>>;
}

/** Every fault that a deployment can meet. Each heals completely when it is undone. */
export function faultsOf(world: World): Fault[] {
  const { redis, sentinels, cluster, regions, controlPlane, verifiers, proxies } = world;
  const paused = (process: { signal(signal: NodeJS.Signals): void }) => {
    process.signal('SIGSTOP');
    return async () => process.signal('SIGCONT');
  };

  const all = [
    fault('verifier paused (SIGSTOP)', async (random) => paused(one(verifiers, random))),
    fault('verifier killed (SIGKILL)', async (random) => {
      const verifier = one(verifiers, random);
      await verifier.stop('SIGKILL');
      return () => verifier.start();
    }),
    fault('verifier restarted (SIGTERM)', async (random) => {
      const verifier = one(verifiers, random);
      await verifier.stop('SIGTERM');
      return () => verifier.start();
    }),
    fault('control plane killed (SIGKILL)', async () => {
      await controlPlane.stop('SIGKILL');
      return () => controlPlane.start();
    }),
    fault('control plane paused (SIGSTOP)', async () => paused(controlPlane)),
  ];
  for (const kind of proxies.length > 0
    ? (['delay', 'throttle', 'blackhole', 'half-open', 'refuse'] as const)
    : []) {
    all.push(
      fault(`one connection: ${kind}`, async (random) => {
        const proxy = one(proxies, random);
        proxy.set(kind);
        return async () => proxy.set('none');
      }),
    );
  }
  if (redis) {
    all.push(
      fault("all verifiers' connections: blackhole", async () => {
        for (const proxy of proxies) proxy.set('blackhole');
        return async () => {
          for (const proxy of proxies) proxy.set('none');
        };
      }),
      fault('Redis paused (SIGSTOP)', async () => paused(redis)),
      fault('Redis killed (SIGKILL) and restarted', async () => {
        await redis.stop('SIGKILL');
        return () => redis.restart();
      }),
    );
  }
  if (sentinels) {
    all.push(
      fault('primary killed (SIGKILL), failover', async () => {
        const primary = await sentinels.primary();
        await primary.stop('SIGKILL');
        return () => comeBack(primary);
      }),
      fault('primary paused (SIGSTOP), failover, old primary back', async () => {
        const primary = await sentinels.primary();
        primary.signal('SIGSTOP');
        await primary.until(async () => (await sentinels.primary()) !== primary);
        return async () => primary.signal('SIGCONT');
      }),
      fault('replica killed (SIGKILL)', async (random) => {
        const primary = await sentinels.primary();
        const replica = one(
          sentinels.nodes.filter((node) => node !== primary),
          random,
        );
        await replica.stop('SIGKILL');
        return () => replica.restart();
      }),
    );
    const comeBack = async (old: (typeof sentinels.nodes)[number]) => {
      await old.until(async () => (await sentinels.primary()) !== old);
      await old.restart();
    };
  }
  if (cluster) all.push(...clusterFaults(cluster));
  if (regions) all.push(...regionFaults(regions, paused));
  return all;
}

/** The APIs of the run; in a Cluster their slots move. */
export const API_IDS = ['api-0', 'api-1'] as const;

function clusterFaults(cluster: RedisCluster): Fault[] {
  const takenOver = (old: RedisNode) => old.until(async () => !(await cluster.primaries()).includes(old));
  const move = async (random: () => number) => {
    const apiId = one(API_IDS, random);
    const owner = await cluster.ownerOf(apiId);
    const others = (await cluster.primaries()).filter((node) => node !== owner);
    return cluster.beginMove(apiId, one(others, random));
  };
  return [
    fault('node killed (SIGKILL), its replica takes over', async (random) => {
      const primary = await cluster.ownerOf(one(API_IDS, random));
      await primary.stop('SIGKILL');
      return async () => {
        await takenOver(primary);
        await primary.restart();
      };
    }),
    fault('node paused (SIGSTOP) until its replica took over, then back', async (random) => {
      const primary = await cluster.ownerOf(one(API_IDS, random));
      primary.signal('SIGSTOP');
      await primary.until(async () => (await cluster.primaries()).length === 3);
      return async () => primary.signal('SIGCONT');
    }),
    fault('node handed over by hand (CLUSTER FAILOVER)', async (random) => {
      const replica = one(await cluster.replicas(), random);
      await replica.command('CLUSTER', 'FAILOVER');
      return () => replica.until(async () => (await cluster.primaries()).includes(replica));
    }),
    fault("replica of a Cluster's node killed (SIGKILL)", async (random) => {
      const replica = one(await cluster.replicas(), random);
      await replica.stop('SIGKILL');
      return () => replica.restart();
    }),
    fault("an API's slot on its way to another node", move),
    fault("an API's slot moved at once", async (random) => {
      await (await move(random))();
      return async () => undefined;
    }),
  ];
}

function regionFaults(regions: Regions, paused: (node: RedisNode) => () => Promise<void>): Fault[] {
  const { link } = regions;
  return [
    ...(['throttle', 'blackhole', 'half-open', 'refuse'] as const).map((kind) =>
      fault(`the replica's connection to the primary: ${kind}`, async () => {
        link.set(kind);
        return async () => link.set('none');
      }),
    ),
    fault('the replica paused (SIGSTOP)', async () => paused(regions.replica)),
    fault('the replica killed (SIGKILL)', async () => {
      await regions.replica.stop('SIGKILL');
      return () => regions.comeBack();
    }),
    fault('the primary paused (SIGSTOP)', async () => paused(regions.primary)),
    fault('the primary killed (SIGKILL), the far replica promoted', async () => {
      await regions.failOver();
      return () => regions.comeBack();
    }),
  ];
}

function one<T>(all: readonly T[], random: () => number): T {
  const chosen = all[Math.floor(random() * all.length)];
  if (chosen === undefined) throw new Error('nothing to choose from');
  return chosen;
}

function fault(name: string, inject: Fault['inject']): Fault {
  return { name, inject };
}
