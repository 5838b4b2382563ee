import type { Redis } from 'ioredis';
import type { RedisNodes } from '../../redis/redis.ts';
import { type Run, type Script, type ScriptCall, WAIT_MS } from '../../redis/script.ts';

/**
 * Number of connections that writes share by turns if there are replicas, because WAIT blocks its connection.
 */
const WRITE_LANES = 8;
/** Connections of batches, so that single writes do not wait behind them. */
export const BATCH_LANE = 'batch';

/** Outcome of a write; `short` = not on all replicas. */
export type WriteResult = 'replicated' | 'short' | 'failed';

/**
 * Runs a writing script on the node that has `key` and, if there are replicas, waits on the same connection
 * until they have the write.
 * @returns the reply, and whether all `replicas` confirmed
 */
export class DurableWriter {
  readonly #nodes: RedisNodes;
  readonly #replicas: number;
  readonly #count: (result: WriteResult) => void;
  #lanesTaken = 0;

  constructor(nodes: RedisNodes, replicas: number, count: (result: WriteResult) => void = () => undefined) {
    this.#nodes = nodes;
    this.#replicas = replicas;
    this.#count = count;
  }

  /**
   * True if calls of `send` in one tick run in their order, because they share one connection to one server.
   */
  get inOrder(): boolean {
    return this.#replicas === 0 && !this.#nodes.isCluster;
  }

  /** @param lane names a separate connection, if the run needs its own */
  async send<T>(run: Run<T>, lane = this.#lane()) {
    return this.#countOutcomes([run], this.#send(run, lane));
  }

  async #send<T>({ script, keys, args, read }: Run<T>, lane: string) {
    const [key = ''] = keys;
    if (this.#replicas === 0) {
      const reply = await this.#nodes.run(key, (redis) => script.run(redis, keys, args), lane);
      return { reply: read(reply), replicated: true };
    }
    const { reply, confirmed } = await this.#nodes.run(
      key,
      (redis) => script.runAndWait(redis, keys, args, this.#replicas, WAIT_MS),
      lane,
    );
    return { reply: read(reply), replicated: confirmed >= this.#replicas };
  }

  /** Sends runs of one script, in one round trip to each node. Replies are in the order of the runs. */
  async sendAll<T>(runs: readonly Run<T>[]): Promise<{ replies: T[]; replicated: boolean }> {
    const [first] = runs;
    if (!first) return { replies: [], replicated: true };
    const lane = this.#replicas === 0 ? BATCH_LANE : this.#lane();
    const { replies, replicated } = await this.#countOutcomes(runs, this.#runAll(first.script, runs, lane));
    return { replies: replies.map(first.read), replicated };
  }

  /**
   * Runs them one after the other on the node of the first, so that other writes come in between. All use one
   * connection: a server that has the last write has all of them.
   */
  sendInOrder<T>(runs: readonly Run<T>[]) {
    return this.#countOutcomes(runs, this.#sendInOrder(runs));
  }

  async #countOutcomes<T extends { replicated: boolean }>(
    calls: readonly ScriptCall[],
    work: Promise<T>,
  ): Promise<T> {
    try {
      const result = await work;
      for (const _ of calls) this.#count(result.replicated ? 'replicated' : 'short');
      return result;
    } catch (error) {
      for (const _ of calls) this.#count('failed');
      throw error;
    }
  }

  #lane(): string {
    return this.#replicas === 0 ? 'main' : `write-${this.#lanesTaken++ % WRITE_LANES}`;
  }

  async #runAll(script: Script, calls: readonly ScriptCall[], lane: string) {
    const byNode = new Map<Redis, number[]>();
    for (const [i, { keys }] of calls.entries()) {
      const redis = await this.#nodes.connection(keys[0] ?? '', lane);
      const indexes = byNode.get(redis);
      if (indexes) indexes.push(i);
      else byNode.set(redis, [i]);
    }
    const replies: unknown[] = new Array(calls.length);
    let replicated = true;
    await Promise.all(
      [...byNode].map(async ([redis, indexes]) => {
        const nodeCalls = indexes.flatMap((i) => calls[i] ?? []);
        const work = script.runAll(redis, nodeCalls, this.#replicas, WAIT_MS);
        const result = await this.#nodes.within(redis, work);
        for (const [n, i] of indexes.entries()) replies[i] = result.replies[n];
        replicated &&= result.confirmed >= this.#replicas;
      }),
    );
    return { replies, replicated };
  }

  async #sendInOrder<T>(runs: readonly Run<T>[]) {
    const redis = await this.#nodes.connection(runs[0]?.keys[0] ?? '', BATCH_LANE);
    const replies: T[] = [];
    let confirmed = 0;
    for (const [i, run] of runs.entries()) {
      const replicas = i === runs.length - 1 ? this.#replicas : 0;
      const result = await this.#nodes.within(redis, run.script.runAll(redis, [run], replicas, WAIT_MS));
      replies.push(...result.replies.map(run.read));
      confirmed = result.confirmed;
    }
    return { replies, replicated: confirmed >= this.#replicas };
  }
}
