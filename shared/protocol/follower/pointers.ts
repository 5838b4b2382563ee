import { asset } from '../../assets.ts';
import type { Clock } from '../../process/clock.ts';
import { command, row } from '../../redis/command.ts';
import { cut, type RedisNodes } from '../../redis/redis.ts';
import { parsePointer, secretPointer } from '../../redis/redis-keys.ts';
import { send } from '../../redis/script.ts';
import { unavailable } from '../../rules/errors.ts';
import type { Pointer } from './source.ts';

export const findKeys = command(
  asset('shared/protocol/follower/find-keys.lua'),
  ['...pointers'],
  [],
  row('names', 'places[]'),
);

/** Time after a command during which further look-ups are collected, in milliseconds. */
export const HOLD_MS = 5;
/** Number of collected look-ups that are sent without waiting longer. */
const TOGETHER_MAX = 16;

interface PointerLookup {
  readonly key: string;
  readonly resolve: (pointer: string | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Looks up the places of keys in Redis. The first look-up is sent immediately; those that follow shortly
 * after it are sent together. Floods of made-up keys arrive this way, and a command for each would cost Redis
 * more than twice as much. In a Redis Cluster, where each node has a part of the keys, every look-up is sent
 * immediately and by itself.
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

  /**
   * Resolves with the place of the first of these secrets that has a key; undefined = none has. Rejects with
   * SERVICE_UNAVAILABLE.
   */
  lookUp(...secretHashes: readonly string[]): Promise<Pointer | undefined> {
    const { isCluster } = this.#nodes;
    const pointers = secretHashes.map(
      (secretHash) =>
        new Promise<string | undefined>((resolve, reject) => {
          const lookup = { key: secretPointer(secretHash), resolve, reject };
          if (isCluster) void this.#send([lookup]);
          else this.#waiting.push(lookup);
        }),
    );
    if (!isCluster && (!this.#hold || this.#waiting.length >= TOGETHER_MAX)) this.#sendWaiting();
    return Promise.all(pointers).then((all) => {
      const pointer = all.find(Boolean);
      return pointer ? parsePointer(pointer) : undefined;
    });
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
      const pointers = lookups.map(({ key }) => key);
      const redis = await this.#nodes.connection(pointers[0] ?? '');
      const { names, places } = await this.#nodes.within(redis, send(redis, findKeys({ pointers })));
      if (names !== pointers.join(' ')) {
        cut(redis);
        throw unavailable('a reply from Redis was meant for another request');
      }
      for (const [i, { resolve }] of lookups.entries()) resolve(places[i]);
    } catch (error) {
      for (const { reject } of lookups) reject(error);
    }
  }
}
