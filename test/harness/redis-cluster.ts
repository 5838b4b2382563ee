import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import slotOf from 'cluster-key-slot';
import { RedisNode } from './redis-nodes.ts';
import { HOLDS_MS_MAX } from './waiting.ts';

const PRIMARIES = 3;
/** Silence after which a node is taken for dead: soon where a replica can follow it, else later than a slow disk. */
const NODE_TIMEOUT_MS = { withReplicas: 1500, alone: 15_000 } as const;

/** A Redis Cluster of three primaries, each with as many replicas as asked for. */
export class RedisCluster {
  readonly nodes: readonly RedisNode[];

  private constructor(nodes: readonly RedisNode[]) {
    this.nodes = nodes;
  }

  /** @param replicas how many each primary has; with them, a primary that lacks one refuses writes */
  static async start(directory: string, replicas = 0): Promise<RedisCluster> {
    const timeoutMs = replicas > 0 ? NODE_TIMEOUT_MS.withReplicas : NODE_TIMEOUT_MS.alone;
    const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(timeoutMs)];
    // As deploy/scaling.md says: otherwise the loss of one node stops all.
    options.push('--cluster-require-full-coverage', 'no');
    if (replicas > 0) {
      options.push('--min-replicas-to-write', '1', '--min-replicas-max-lag', '2');
      options.push('--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1');
    }
    const nodes: RedisNode[] = [];
    for (let i = 0; i < PRIMARIES * (1 + replicas); i++)
      nodes.push(await RedisNode.start(join(directory, `node${i}`), options));
    const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
    const arguments_ = [...addresses, '--cluster-replicas', String(replicas), '--cluster-yes'];
    execFileSync('redis-cli', ['--cluster', 'create', ...arguments_], { stdio: 'ignore' });
    const cluster = new RedisCluster(nodes);
    for (const node of nodes) {
      await node.until(async () => {
        const info = String(await node.command('CLUSTER', 'INFO'));
        return info.includes('cluster_state:ok') && (await cluster.primaries()).length === PRIMARIES;
      });
    }
    for (const primary of await cluster.primaries()) {
      await primary.until(async () =>
        String(await primary.command('INFO', 'replication')).includes(`connected_slaves:${replicas}`),
      );
    }
    return cluster;
  }

  /** Seed nodes, as REDIS_URL takes them. */
  get url(): string {
    return this.nodes.map(({ url }) => url).join(',');
  }

  /** The nodes that own slots now. */
  async primaries(): Promise<RedisNode[]> {
    return (await this.#claims()).map(({ node }) => node);
  }

  /** The nodes that answer and own no slot. */
  async replicas(): Promise<RedisNode[]> {
    const primaries = await this.primaries();
    return this.nodes.filter((node) => !primaries.includes(node));
  }

  /** The primary of an API's slot. */
  ownerOf(apiId: string): Promise<RedisNode> {
    return this.ownerOfKey(`kf:{${apiId}}:head`);
  }

  /** The primary of a Redis key's slot, once there is one. */
  async ownerOfKey(key: string): Promise<RedisNode> {
    const slot = slotOf(key);
    const giveUpAtMs = performance.now() + HOLDS_MS_MAX;
    for (;;) {
      const owner = (await this.#claims()).find(({ ranges }) =>
        ranges.some(({ from, to }) => from <= slot && slot <= to),
      );
      if (owner) return owner.node;
      if (performance.now() > giveUpAtMs) throw new Error(`nobody owns slot ${slot}`);
    }
  }

  /** Moves an API's slot, as `redis-cli --cluster reshard` does. */
  async moveSlot(apiId: string, target: RedisNode): Promise<void> {
    const finish = await this.beginMove(apiId, target);
    await finish();
  }

  /** Begins to move an API's slot: half of its Redis keys are at the target when this resolves, with what ends it. */
  async beginMove(apiId: string, target: RedisNode): Promise<() => Promise<void>> {
    const source = await this.ownerOf(apiId);
    const slot = String(slotOf(`kf:{${apiId}}:head`));
    const idOf = async (node: RedisNode) => String(await node.command('CLUSTER', 'MYID'));
    const targetId = await idOf(target);
    const keysLeft = async () =>
      (await source.command('CLUSTER', 'GETKEYSINSLOT', slot, '100000')) as string[];
    const migrate = async (keys: string[]) => {
      if (keys.length === 0) return;
      const to = ['127.0.0.1', String(target.port), '', '0', '5000'];
      // The Cluster may take itself for down for a moment; what was moved already is passed over.
      await source.until(async () => Boolean(await source.command('MIGRATE', ...to, 'KEYS', ...keys)));
    };
    await target.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(source));
    await source.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', targetId);
    const all = await keysLeft();
    await migrate(all.slice(0, Math.ceil(all.length / 2)));
    return async () => {
      // Keys may be written at the source until the last one has left it.
      for (let keys = await keysLeft(); keys.length > 0; keys = await keysLeft()) await migrate(keys);
      for (const node of [target, source, ...(await this.primaries())])
        await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', targetId);
    };
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }

  /** Slots that each answering node says it owns, the latest promotion first: an old primary may not know yet. */
  async #claims(): Promise<{ node: RedisNode; epoch: number; ranges: { from: number; to: number }[] }[]> {
    const claims = await Promise.all(
      this.nodes.map(async (node) => {
        const reply = await node.command('CLUSTER', 'NODES').catch(() => '');
        const myself = String(reply)
          .split('\n')
          .find((line) => line.includes('myself'));
        const [, , flags = '', , , , epoch = '0', , ...slots] = (myself ?? '').split(' ');
        const ranges = slots
          .filter((slot) => flags.includes('master') && !slot.startsWith('['))
          .map((slot) => {
            const [from = '', to = from] = slot.split('-');
            return { from: Number(from), to: Number(to) };
          });
        return { node, epoch: Number(epoch), ranges };
      }),
    );
    return claims.filter(({ ranges }) => ranges.length > 0).toSorted((a, b) => b.epoch - a.epoch);
  }
}
