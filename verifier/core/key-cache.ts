import { LRUCache } from 'lru-cache';
import { digestFrom } from '#shared/contract/key-format.ts';
import { decodeState, type KeyState } from '#shared/contract/key-record.ts';
import type { VerdictCounts } from '#shared/contract/verdict-codes.ts';
import { flattenString } from '#shared/lang/flatten-string.ts';
import { type Limit, limitPool, limitsOf } from './allowances/limits.ts';
import type { Pools } from './allowances/pools.ts';
import type { Join } from './effective-permissions.ts';
import type { Lease } from './following/lease.ts';
import { type Links, linksOf, type OwnPermissions, ownPermissionsOf } from './permissions.ts';

/**
 * All that a follower remembers between two losses of sync. When it drops, it starts another epoch and every
 * entry of the old one is void at once, without touching the cache.
 */
export interface Epoch {
  readonly apiId: string;
  readonly lease: Lease;
  readonly pools: Pools;
  current: boolean;
  /** Set by each answer from memory; read and reset to find idle APIs. */
  used: boolean;
}

/** Memory that a follower fills from its log and its reads. A change answers the pools that the key had before, and has now. */
export interface Memory {
  put(secretHash: string, entry: Entry): void;
  update(secretHash: string, keyId: string, epoch: Epoch, state: KeyState): readonly string[];
  forget(secretHash: string, keyId: string): readonly string[];
  /** There is no such record. */
  putAbsent?(keyId: string, epoch: Epoch): void;
  /** An epoch begins at a place of the log where there are so many identities. */
  beginEpoch?(epoch: Epoch, identities: number): void;
}

/** The rare parts of a key that answers show as they are, apart so that a plain key stays small. */
export type Details = Omit<KeyState, 'enabled' | 'expires' | 'pool' | 'ratelimit' | 'ratelimits'>;

/** The part of a key that a change may change. */
interface KeyParts {
  readonly enabled: boolean;
  /** Unix milliseconds, 0 = never. */
  readonly expires: number;
  /** undefined = all of them are as where nothing was set. */
  readonly details: Details | undefined;
  /** Name of the pool from which its credits come; `''` = as many as are asked for. */
  readonly pool: string;
  /** Rate limits; keys with the same ones share them. */
  readonly limits: readonly Limit[] | undefined;
  /** Permissions; undefined = none. Keys with the same ones share them. */
  readonly ownPermissions: OwnPermissions | undefined;
  /** undefined = it has no roles and no owner. */
  readonly links: Links | undefined;
  /** Its latest join with its roles and its owner's identity, which may be void. */
  join: Join | undefined;
  /** Name of the pool of the first of its limits, once it was asked for: each request needs it. */
  firstPool: string;
}

/** Most keys are one of these two, and share it: a million fit a sidecar. */
const PLAIN: KeyParts = Object.freeze({
  enabled: true,
  expires: 0,
  details: undefined,
  pool: '',
  limits: undefined,
  ownPermissions: undefined,
  links: undefined,
  join: undefined,
  firstPool: '',
});
const PLAIN_DISABLED: KeyParts = Object.freeze({ ...PLAIN, enabled: false });

/**
 * Verdicts on a key that are not reported yet. A plain number counts VALID verdicts alone: almost all keys need nothing
 * more, and a number takes no memory of its own.
 */
export type UnreportedVerdicts = VerdictCounts | number;

/** One known key. Mutable: a change rewrites it in place. 56 bytes of heap and its id. */
export class Entry {
  readonly epoch: Epoch;
  readonly keyId: string;
  /** Verdicts that are not reported yet; owned by `Usage`. Here, because beside it no look-up is cheap enough. */
  usage: UnreportedVerdicts;
  #parts: KeyParts;

  constructor(epoch: Epoch, keyId: string, state: KeyState) {
    this.epoch = epoch;
    // A copy: what was cut out of a reply would keep the whole reply in memory.
    this.keyId = Buffer.from(keyId).toString('latin1');
    this.usage = 0;
    this.#parts = partsOf(state);
  }

  get enabled(): boolean {
    return this.#parts.enabled;
  }

  get expires(): number {
    return this.#parts.expires;
  }

  get details(): Details | undefined {
    return this.#parts.details;
  }

  get pool(): string {
    return this.#parts.pool;
  }

  get limits(): readonly Limit[] | undefined {
    return this.#parts.limits;
  }

  get ownPermissions(): OwnPermissions | undefined {
    return this.#parts.ownPermissions;
  }

  get links(): Links | undefined {
    return this.#parts.links;
  }

  get join(): Join | undefined {
    return this.#parts.join;
  }

  /** Only of a key with links. */
  set join(join: Join) {
    this.#parts.join = join;
  }

  /** Name of the pool of the first of its limits. */
  nameOfFirst(limit: Limit): string {
    const facts = this.#parts;
    if (facts.firstPool === '') facts.firstPool = flattenString(limitPool(this.keyId, limit));
    return facts.firstPool;
  }

  /** Names of all pools that its requests take from, but for limits that requests bring. */
  get pools(): string[] {
    return poolsOf(this.keyId, this.pool, this.limits);
  }

  become(state: KeyState): void {
    this.#parts = partsOf(state);
  }
}

/** Names of the pools of a key with these credits and limits. */
export const poolsOf = (keyId: string, pool: string, limits: readonly Limit[] = []): string[] => [
  ...(pool ? [pool] : []),
  ...limits.map((limit) => limitPool(keyId, limit)),
];

/** Details of a key of which nothing was set. */
const NO_DETAILS = detailsIn(decodeState([]));
const DETAIL_NAMES = Object.keys(NO_DETAILS) as (keyof Details)[];

function detailsIn({
  enabled: _enabled,
  expires: _expires,
  pool: _pool,
  ratelimit: _ratelimit,
  ratelimits: _ratelimits,
  ...details
}: KeyState): Details {
  return details;
}

function partsOf(state: KeyState): KeyParts {
  const { enabled, expires, pool } = state;
  const limits = limitsOf(state);
  const isBare = DETAIL_NAMES.every((name) => state[name] === NO_DETAILS[name]);
  if (expires === 0 && isBare && pool === '' && limits === undefined) return enabled ? PLAIN : PLAIN_DISABLED;
  const ownPermissions = ownPermissionsOf(state.permissions);
  const details = isBare ? undefined : detailsIn(state);
  const links =
    state.roles === '' && state.externalId === '' ? undefined : linksOf(state.roles, ownPermissions);
  // The texts are shared too: there may be 10 KB of them.
  const shared = details && {
    ...details,
    ...(ownPermissions ? { permissions: ownPermissions.text } : {}),
    ...(links ? { roles: links.text } : {}),
  };
  return {
    enabled,
    expires,
    details: shared,
    pool,
    limits,
    ownPermissions,
    links,
    join: undefined,
    firstPool: '',
  };
}

/** Given again and again: lru-cache would make one for each hit. */
const NO_OPTIONS = {};

/**
 * The known keys of all APIs by the digest of their secret (`digestOf`); the least recently used goes first. While half
 * of it is free, a hit does not move its key to the end of the list, since that costs as much as the rest of a look-up.
 */
export class KeyCache implements Memory {
  readonly #entries: LRUCache<string, Entry>;
  evictions = 0;

  constructor(keysMax: number) {
    this.#entries = new LRUCache({
      max: keysMax,
      disposeAfter: (_entry, _digest, reason) => {
        if (reason === 'evict') this.evictions++;
      },
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The entry, if its follower has been in sync ever since it was filled. Says nothing about the lease. */
  get(digest: string): Entry | undefined {
    const entries = this.#entries;
    const isRoomy = entries.size * 2 <= entries.max;
    const entry = isRoomy ? entries.peek(digest, NO_OPTIONS) : entries.get(digest, NO_OPTIONS);
    return entry?.epoch.current ? entry : undefined;
  }

  /** The entry as it was last known, which may be void. */
  former(digest: string): Entry | undefined {
    return this.#entries.peek(digest);
  }

  put(secretHash: string, entry: Entry): void {
    this.#entries.set(digestFrom(secretHash), entry);
  }

  /**
   * Applies a change to the entry of this epoch, where there is one; recency is untouched.
   * @returns the pools that it had before, and has now
   */
  update(secretHash: string, keyId: string, epoch: Epoch, state: KeyState): string[] {
    const now = poolsOf(keyId, state.pool, limitsOf(state));
    const entry = this.#entries.peek(digestFrom(secretHash));
    if (entry?.epoch !== epoch) return now;
    const before = entry.pools;
    entry.become(state);
    return [...before, ...now];
  }

  /** @returns the pools that it had */
  forget(secretHash: string): string[] {
    const digest = digestFrom(secretHash);
    const entry = this.#entries.peek(digest);
    this.#entries.delete(digest);
    return entry?.pools ?? [];
  }
}
