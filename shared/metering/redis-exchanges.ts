import type { RedisNodes } from '../redis/redis.ts';
import { apiKeys } from '../redis/redis-keys.ts';
import { WAIT_MS } from '../redis/script.ts';
import { unavailable } from '../rules/errors.ts';
import { type Exchanges, exchangeRun, type PoolReply, type PoolTurn } from './exchange.ts';

/** Exchanges with real Redis. */
export class RedisExchanges implements Exchanges {
  readonly #nodes: RedisNodes;
  readonly #replicas: number;

  /** @param replicas number of replicas that must have a turn about credits before it counts */
  constructor(nodes: RedisNodes, replicas: number) {
    this.#nodes = nodes;
    this.#replicas = replicas;
  }

  get awaitsReplicas(): boolean {
    return this.#replicas > 0;
  }

  async exchange(apiId: string, member: string, turns: readonly PoolTurn[]): Promise<readonly PoolReply[]> {
    const { script, keys, args, read } = exchangeRun(apiId, member, turns);
    const { members } = apiKeys(apiId);
    // Limits are not worth waiting for: what a failover loses of a window ends with it, and holders tell a new primary their places.
    if (this.#replicas === 0 || turns.every(({ window }) => window)) {
      return read(await this.#nodes.run(members, (redis) => script.run(redis, keys, args)));
    }
    // A connection of its own, because WAIT blocks it.
    const { reply, confirmed } = await this.#nodes.run(
      members,
      (redis) => script.runAndWait(redis, keys, args, this.#replicas, WAIT_MS),
      'exchange',
    );
    if (confirmed < this.#replicas) {
      throw unavailable(`${confirmed} of ${this.#replicas} required replicas confirmed the exchange`);
    }
    return read(reply);
  }
}
