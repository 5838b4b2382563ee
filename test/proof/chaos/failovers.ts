import type { RedisNode } from '../../harness/redis-nodes.ts';
import type { World } from './faults.ts';
import type { Failover } from './meter.ts';

const LOOK_MS = 300;
const ANSWER_MS_MAX = 700;
/** Longest time for which nodes do not tell what one of them knows. */
const RUMOUR_MS = 1000;
/** For so long may a primary that was deposed still take writes: min-replicas-max-lag, and what it takes to notice. */
const DEPOSED_MS = 4000;

/**
 * Watches the epoch of Sentinels or of a Cluster, which each failover raises by one, whether or not a fault was meant to cause it.
 * A slot that moves raises it too.
 */
export class Failovers {
  readonly seen: Failover[] = [];
  readonly #world: World;
  #known: { readonly epoch: number; readonly atMs: number } | undefined;
  #isOver = false;
  #watching: Promise<void> = Promise.resolve();

  constructor(world: World) {
    this.#world = world;
  }

  async begin(): Promise<void> {
    await this.#look();
    this.#watching = this.#watch();
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#watching;
    await this.#look();
  }

  async #watch(): Promise<void> {
    while (!this.#isOver) {
      await rest(LOOK_MS);
      await this.#look();
    }
  }

  async #look(): Promise<void> {
    const { sentinels, cluster, regions } = this.#world;
    const nodes = sentinels?.sentinels ?? cluster?.nodes ?? [];
    const atMs = Date.now();
    const epochs = nodes.map((node) => epochOf(node, sentinels !== undefined));
    const epoch = regions?.failovers ?? Math.max(...(await Promise.all(epochs)));
    if (epoch < 0) return;
    const { epoch: before, atMs: sinceMs } = this.#known ?? { epoch, atMs };
    this.#known = { epoch: Math.max(epoch, before), atMs };
    if (epoch > before)
      this.seen.push({
        fromMs: sinceMs - RUMOUR_MS,
        untilMs: Date.now() + DEPOSED_MS,
        count: epoch - before,
      });
  }
}

/** -1 = it does not say. */
async function epochOf(node: RedisNode, isSentinel: boolean): Promise<number> {
  const asked = isSentinel
    ? node.command('SENTINEL', 'MASTER', 'mymaster').then((facts) => {
        const all = facts as string[];
        return Number(all[all.indexOf('config-epoch') + 1]);
      })
    : node
        .command('CLUSTER', 'INFO')
        .then((info) => Number(/cluster_current_epoch:(\d+)/.exec(String(info))?.[1] ?? -1));
  return Promise.race([asked.catch(() => -1), rest(ANSWER_MS_MAX).then(() => -1)]);
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
