import { unavailable } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { cut, type RedisNodes } from '#shared/redis/redis.ts';
import { parsePointer, secretPointer } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import { asset } from '../assets.ts';
import type { Pointer } from '../core/redis-port.ts';

const findScript = new Script(asset('redis/lua/find-keys.lua'));

/** Time after a command for which the next waits for more to go with it, milliseconds. */
const HOLD_MS = 5;
/** As many go at once. */
const TOGETHER_MAX = 16;

interface PointerLookup {
  readonly key: string;
  readonly resolve: (pointer: string | null | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Asks Redis where keys lie. The first at once; what is asked soon after goes together, for so come made-up keys, and a
 * command for each would cost Redis more than twice as much. In a Redis Cluster, whose nodes have each a part of the
 * keys, all go alone and at once.
 */
export class PointerBatcher {
  readonly #nodes: RedisNodes;
  readonly #clock: Clock;
  #waiting: PointerLookup[] = [];
  #hold: { cancel(): void } | undefined;

  constructor(nodes: RedisNodes, clock: Clock) {
    this.#nodes = nodes;
    this.#clock = clock;
  }

  /** Undefined when no key has this secret. Rejects with SERVICE_UNAVAILABLE. */
  lookUp(secretHash: string): Promise<Pointer | undefined> {
    return new Promise<string | null | undefined>((resolve, reject) => {
      const lookup = { key: secretPointer(secretHash), resolve, reject };
      if (this.#nodes.isCluster) return void this.#send([lookup]);
      this.#waiting.push(lookup);
      if (!this.#hold || this.#waiting.length >= TOGETHER_MAX) this.#sendWaiting();
    }).then((pointer) => (pointer ? parsePointer(pointer) : undefined));
  }

  #sendWaiting(): void {
    this.#hold?.cancel();
    this.#hold = this.#clock.after(HOLD_MS, () => {
      this.#hold = undefined;
      if (this.#waiting.length > 0) this.#sendWaiting();
    });
    const lookups = this.#waiting;
    this.#waiting = [];
    void this.#send(lookups);
  }

  async #send(lookups: readonly PointerLookup[]): Promise<void> {
    try {
      const keys = lookups.map(({ key }) => key);
      const redis = await this.#nodes.connection(keys[0] ?? '');
      const reply = await this.#nodes.within(redis, findScript.run(redis, keys, []));
      const [names, pointers] = reply as [string, (string | null)[]];
      if (names !== keys.join(' ')) {
        cut(redis);
        throw unavailable('a reply from Redis was meant for another request');
      }
      for (const [i, { resolve }] of lookups.entries()) resolve(pointers[i]);
    } catch (error) {
      for (const { reject } of lookups) reject(error);
    }
  }
}
