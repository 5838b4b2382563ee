import type { Clock } from '#shared/process/clock.ts';
import type { Successor } from '#shared/protocol/log/change-log-port.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, recordKey } from '#shared/redis/redis-keys.ts';
import { generateId, generateKey, hashSecret, startOf } from '#shared/rules/key-format.ts';
import { BYTES, parseDefaults } from '../apis/api-defaults.ts';
import type { Keys } from './keys.ts';

/** A secret that will replace that of a key; its record is not written yet. */
export interface PreparedSuccessor {
  readonly secret: string;
  readonly successor: Omit<Successor, 'latestMs' | 'operationId'>;
}

/**
 * First characters of a secret in our format, whoever made it: its prefix, and characters of the random part.
 */
const START = /^(?:([A-Za-z0-9_]{1,16})_)?[0-9A-Za-z]{4}$/;

/** Makes secrets for keys that are rerolled. */
export class Successors {
  readonly #nodes: RedisNodes;
  readonly #keys: Keys;
  readonly #clock: Clock;

  constructor(nodes: RedisNodes, keys: Keys, clock: Clock) {
    this.#nodes = nodes;
    this.#keys = keys;
    this.#clock = clock;
  }

  /**
   * Makes a secret like that of a key and sets the pointers of the new key that will have it; undefined if
   * there is no such key. For a key that was imported without its first characters, the secret follows the
   * API's defaults. Rejects with SERVICE_UNAVAILABLE.
   */
  async prepare(apiId: string, keyId: string): Promise<PreparedSuccessor | undefined> {
    const [record, { head }] = [recordKey(apiId, keyId), apiKeys(apiId)];
    const [[secretHash, start, bytes], defaults] = await this.#nodes.run(record, (redis) =>
      Promise.all([redis.hmget(record, 'p', 's', 'b'), redis.hmget(head, 'prefix', 'bytes')]),
    );
    if (!secretHash) return undefined;
    const { defaultPrefix, defaultBytes = BYTES } = parseDefaults(
      defaults.map((text) => text ?? '').join(' '),
    );
    const like = START.exec(start ?? '');
    const length = bytes ? Number(bytes) : like ? BYTES : defaultBytes;
    const secret = generateKey(length, like ? like[1] : defaultPrefix);
    const successor = {
      keyId: generateId('key', this.#clock.wallMs()),
      secretHash: hashSecret(secret),
      start: startOf(secret),
      bytes: length === BYTES ? undefined : length,
    };
    await this.#keys.point(apiId, successor);
    return { secret, successor };
  }

  /** Deletes the pointers again, unless the new key exists. A failure is harmless: nobody has the secret. */
  async withdraw(apiId: string, { successor: { keyId, secretHash } }: PreparedSuccessor): Promise<void> {
    if ((await this.#keys.lastSequence(apiId, keyId)) !== undefined) return;
    await this.#keys.forgetPointers(apiId, keyId, secretHash);
  }
}
