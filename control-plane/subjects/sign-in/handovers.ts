import { randomBytes } from 'node:crypto';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { handoverCounter, handoverRecord } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';

/** A secret that nobody has fetched is gone after this time. */
const HANDOVER_MS = 3_600_000;

/** Maximum number of links that one root key or person makes without an hour's pause. */
export const HANDOVERS_MAX = 1000;
const ID_BYTES = 16;

/**
 * Secrets on their way to the person who needs them, encrypted by the browser of the sender. The key that decrypts one is
 * in the link and never reaches this server.
 */
export class Handovers {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /**
   * Keeps a ciphertext for an hour, and returns the id under which it can be taken. Rejects with RATE_LIMITED if one
   * caller makes too many.
   */
  async put(callerId: string, ciphertext: string): Promise<string> {
    const counter = handoverCounter(callerId);
    const [count] = await this.#nodes.run(counter, (redis) =>
      Promise.all([redis.incr(counter), redis.pexpire(counter, HANDOVER_MS)]),
    );
    if (count > HANDOVERS_MAX)
      throw new ApiError('RATE_LIMITED', `more than ${HANDOVERS_MAX} links of one caller; wait an hour`);
    const id = randomBytes(ID_BYTES).toString('base64url');
    const record = handoverRecord(id);
    await this.#nodes.run(record, (redis) => redis.set(record, ciphertext, 'PX', HANDOVER_MS));
    return id;
  }

  /** Returns the ciphertext to the first caller only; undefined = it was taken, has expired, or never was. */
  async take(id: string): Promise<string | undefined> {
    const record = handoverRecord(id);
    return (await this.#nodes.run(record, (redis) => redis.getdel(record))) ?? undefined;
  }
}
