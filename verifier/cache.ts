import { LRUCache } from 'lru-cache';
import type { KeyState } from '#shared/change.ts';
import type { Lease } from './lease.ts';

/**
 * All that a follower remembers between two losses of sync. When it drops, it starts another epoch and every
 * entry of the old one is void at once, without touching the cache.
 */
export interface Epoch {
  readonly apiId: string;
  readonly lease: Lease;
  current: boolean;
  /** Set by each answer from memory; read and reset to find idle APIs. */
  used: boolean;
}

/** The rare parts of a key, apart so that a plain key stays small. */
export interface Details {
  readonly name: string;
  readonly externalId: string;
  /** JSON text of an object. */
  readonly meta: string;
}

/** One known key. Mutable: a change rewrites it in place. 64 bytes of heap, so that a million fit a sidecar. */
export class Entry {
  readonly epoch: Epoch;
  readonly keyId: string;
  enabled: boolean;
  /** Unix milliseconds, 0 = never. */
  expires: number;
  /** undefined = no name, no owner, empty meta. */
  details: Details | undefined;

  constructor(epoch: Epoch, keyId: string, state: KeyState) {
    this.epoch = epoch;
    this.keyId = keyId;
    this.enabled = state.enabled;
    this.expires = state.expires;
    this.details = detailsOf(state);
  }

  become(state: KeyState): void {
    this.enabled = state.enabled;
    this.expires = state.expires;
    this.details = detailsOf(state);
  }
}

function detailsOf({ name, externalId, meta }: KeyState): Details | undefined {
  return name === '' && externalId === '' && meta === '{}' ? undefined : { name, externalId, meta };
}

/** The known keys of all APIs by secret hash, least recently used out first. */
export class KeyCache {
  readonly #entries: LRUCache<string, Entry>;
  evictions = 0;

  constructor(keysMax: number) {
    this.#entries = new LRUCache({
      max: keysMax,
      disposeAfter: (_entry, _hash, reason) => {
        if (reason === 'evict') this.evictions++;
      },
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The entry, if its follower has been in sync ever since it was filled. Says nothing about the lease. */
  get(secretHash: string): Entry | undefined {
    const entry = this.#entries.get(secretHash);
    return entry?.epoch.current ? entry : undefined;
  }

  put(secretHash: string, entry: Entry): void {
    this.#entries.set(secretHash, entry);
  }

  /** Applies a change to the entry of this epoch, where there is one; recency is untouched. */
  update(secretHash: string, epoch: Epoch, state: KeyState): void {
    const entry = this.#entries.peek(secretHash);
    if (entry?.epoch === epoch) entry.become(state);
  }

  forget(secretHash: string): void {
    this.#entries.delete(secretHash);
  }
}
