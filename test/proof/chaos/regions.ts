import { join } from 'node:path';
import { FaultProxy } from '../../../deploy/dev/fault-proxy.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';

/** Time of a packet from one region to the other, in milliseconds. */
export const WAY_MS = 40;
const QUICK = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1', '--repl-timeout', '3'];

/** Redis in two regions: a primary, and a replica that is as far as `WAY_MS` tells. They change places in a failover. */
export class Regions {
  primary: RedisNode;
  replica: RedisNode;
  failovers = 0;
  /** The replica's connection to the primary. */
  readonly link: FaultProxy;
  /** Connections of verifiers and the control plane. */
  readonly ways: FaultProxy[] = [];
  readonly #linkPort: number;
  readonly #stop: (() => Promise<unknown>)[];

  private constructor(
    nodes: readonly [primary: RedisNode, replica: RedisNode],
    link: FaultProxy,
    linkPort: number,
    stop: (() => Promise<unknown>)[],
  ) {
    [this.primary, this.replica] = nodes;
    this.link = link;
    this.#linkPort = linkPort;
    this.#stop = stop;
  }

  static async start(directory: string, stop: (() => Promise<unknown>)[]): Promise<Regions> {
    const nodes = [
      await RedisNode.start(join(directory, 'one'), QUICK),
      await RedisNode.start(join(directory, 'other'), QUICK),
    ] as const;
    for (const node of nodes) stop.push(() => node.stop());
    const link: FaultProxy = new FaultProxy(() => regions.primary.port, 0, WAY_MS);
    const port = await link.listen();
    stop.push(async () => link.close());
    const regions: Regions = new Regions(nodes, link, port, stop);
    await regions.#follow();
    return regions;
  }

  /** Opens a way to one of the servers, whichever it is at the time, and returns its URL. */
  async way(to: 'primary' | 'replica', wayMs: number): Promise<string> {
    const way = new FaultProxy(() => this[to].port, undefined, wayMs);
    this.#stop.push(async () => way.close());
    this.ways.push(way);
    return `redis://127.0.0.1:${await way.listen()}`;
  }

  /** The primary ends, and the replica takes its place. */
  async failOver(): Promise<void> {
    this.failovers++;
    await this.primary.stop('SIGKILL');
    await this.replica.command('REPLICAOF', 'NO', 'ONE');
    [this.primary, this.replica] = [this.replica, this.primary];
    // As whoever fails over by hand does: connections to the former primary end.
    for (const way of this.ways) {
      way.set('refuse');
      way.set('none');
    }
  }

  /** The server that ended is a replica again. */
  async comeBack(): Promise<void> {
    await this.replica.restart();
    await this.#follow();
  }

  async #follow(): Promise<void> {
    const { replica } = this;
    await replica.command('REPLICAOF', '127.0.0.1', String(this.#linkPort));
    await replica.until(async () =>
      String(await replica.command('INFO', 'replication')).includes('master_link_status:up'),
    );
  }
}
