import { LRUCache } from 'lru-cache';
import { flattenString } from '../../process/flatten-string.ts';
import { IpRanges } from '../../rules/ip-ranges.ts';
import { digestFrom } from '../../rules/key-format.ts';
import { Origins } from '../../rules/origins.ts';
import type { VerdictCounts } from '../../rules/verdict-codes.ts';
import { decodeState, type KeyState } from '../records/key-record.ts';
import { type Limit, limitPool, limitsOf } from '../records/limits-in-memory.ts';
import type { Companion, Metered } from './companion.ts';
import type { Lease } from './lease.ts';
import { type Join, type Links, linksOf, type OwnPermissions, ownPermissionsOf } from './permissions.ts';

/**
 * The state of a follower between two losses of sync, or from the deletion of its API. When the follower drops, it starts another epoch; every
 * entry of the old epoch is then void, without any change to the cache.
 */
export interface Epoch {
  readonly apiId: string;
  readonly lease: Lease;
  readonly companion: Companion;
  current: boolean;
  /** True since an answer from memory; a check for idle APIs reads and resets it. */
  used: boolean;
  /** From then on every verifier obeys the latest change that was applied here, by the monotonic clock. */
  obeyedAtMs: number;
}

/**
 * The memory that a follower fills from its log and its reads. `update` and `forget` return the record as it was in memory,
 * if it was, and as it is now, if it is.
 */
export interface Memory {
  put(secretHash: string, entry: Entry): void;
  update(secretHash: string, keyId: string, epoch: Epoch, state: KeyState): readonly Metered[];
  forget(secretHash: string, keyId: string): readonly Metered[];
  /** Remembers that no record with this id exists. */
  putAbsent?(keyId: string, epoch: Epoch): void;
  /**
   * Called when an epoch begins.
   * @param identities number of identities at that position of the log
   */
  beginEpoch?(epoch: Epoch, identities: number): void;
}

/**
 * The rare parts of a key that answers show unchanged. They are a separate object so that a plain key stays
 * small.
 */
export type Details = Omit<
  KeyState,
  | 'enabled'
  | 'expires'
  | 'pool'
  | 'firstId'
  | 'ratelimit'
  | 'ratelimits'
  | 'concurrency'
  | 'allowedIps'
  | 'allowedOrigins'
>;

/** The parts of a key that a change may replace. */
interface KeyParts {
  readonly enabled: boolean;
  /** Unix milliseconds; 0 = never. */
  readonly expires: number;
  /** undefined = all details have their defaults. */
  readonly details: Details | undefined;
  /** Name of the pool with the key's credits; `''` = unlimited credits. */
  readonly pool: string;
  /** Id under which the uses of its limits count; `''` = its own. */
  readonly firstId: string;
  /** Rate limits; undefined = none. Keys with equal limits share one list. */
  readonly limits: readonly Limit[] | undefined;
  /** Addresses from which it may be used; undefined = all. Keys with equal ranges share one object. */
  readonly ranges: IpRanges | undefined;
  /** Web pages that may use it; undefined = any, and none. Keys with equal origins share one object. */
  readonly origins: Origins | undefined;
  /** Own permissions; undefined = none. Keys with equal permissions share one object. */
  readonly ownPermissions: OwnPermissions | undefined;
  /** Roles and identity; undefined = the key has neither. */
  readonly links: Links | undefined;
  /** The latest join with its roles and its identity, which may be void. */
  join: Join | undefined;
  /** From then on every verifier obeys the latest change of its limits, roles or identity, by the monotonic clock. */
  obeyedAtMs: number;
  /** Name of the pool of the first rate limit, cached at its first use because each request needs it. */
  firstPool: string;
}

/** The parts that most keys share, so that a million keys fit into a sidecar. */
const PLAIN: KeyParts = Object.freeze({
  enabled: true,
  expires: 0,
  details: undefined,
  pool: '',
  firstId: '',
  limits: undefined,
  ranges: undefined,
  origins: undefined,
  ownPermissions: undefined,
  links: undefined,
  join: undefined,
  obeyedAtMs: 0,
  firstPool: '',
});
const PLAIN_DISABLED: KeyParts = Object.freeze({ ...PLAIN, enabled: false });

/**
 * Unreported verdicts on a key. A plain number counts VALID verdicts only: almost all keys need no more, and
 * a number takes no extra memory.
 */
export type UnreportedVerdicts = VerdictCounts | number;

/** A known key. A change replaces its parts in place. An entry takes 56 bytes of heap, plus its id. */
export class Entry {
  readonly epoch: Epoch;
  readonly keyId: string;
  /**
   * Unreported verdicts, owned by `Usage`. They are stored here because a separate look-up would cost too
   * much.
   */
  usage: UnreportedVerdicts;
  #parts: KeyParts;

  constructor(epoch: Epoch, keyId: string, state: KeyState) {
    this.epoch = epoch;
    // A copy, because a substring of a reply would keep the whole reply in memory.
    this.keyId = Buffer.from(keyId).toString('latin1');
    this.usage = 0;
    this.#parts = partsOf(state, epoch.obeyedAtMs);
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

  /** Id under which the uses of its limits count: that of the first key of its rotations. */
  get limitsId(): string {
    return this.#parts.firstId || this.keyId;
  }

  get ranges(): IpRanges | undefined {
    return this.#parts.ranges;
  }

  get origins(): Origins | undefined {
    return this.#parts.origins;
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

  /** Stores a join. Only for a key with links. */
  set join(join: Join) {
    this.#parts.join = join;
  }

  /** Returns the name of the pool of the key's first rate limit. */
  nameOfFirst(limit: Limit): string {
    const facts = this.#parts;
    if (facts.firstPool === '') facts.firstPool = flattenString(limitPool(this.limitsId, limit));
    return facts.firstPool;
  }

  /** The record at this moment. */
  get metered(): Metered {
    return { limitsId: this.limitsId, pool: this.pool, limits: this.limits };
  }

  /** From when on every verifier obeys the latest change of its limits, roles or identity, by the monotonic clock. */
  get obeyedAtMs(): number {
    return this.#parts.obeyedAtMs;
  }

  /** @returns true = another limit may apply now */
  become(state: KeyState): boolean {
    const before = this.#parts;
    const parts = partsOf(state, this.epoch.obeyedAtMs);
    this.#parts = parts;
    const isSame =
      before.limits === parts.limits &&
      before.links?.text === parts.links?.text &&
      before.firstId === parts.firstId &&
      externalIdOf(before) === externalIdOf(parts);
    if (isSame && parts.obeyedAtMs > 0) parts.obeyedAtMs = before.obeyedAtMs;
    return !isSame;
  }
}

const externalIdOf = ({ details }: Pick<KeyParts, 'details'>): string => details?.externalId ?? '';

/** Returns what companions need of a record. */
export const meteredOf = (keyId: string, state: KeyState): Metered => ({
  limitsId: state.firstId || keyId,
  pool: state.pool,
  limits: limitsOf(state),
});

/** The details of a key without any. */
const NO_DETAILS = detailsIn(decodeState([]));
const DETAIL_NAMES = Object.keys(NO_DETAILS) as (keyof Details)[];

function detailsIn({
  enabled: _enabled,
  expires: _expires,
  pool: _pool,
  firstId: _firstId,
  ratelimit: _ratelimit,
  ratelimits: _ratelimits,
  concurrency: _concurrency,
  allowedIps: _allowedIps,
  allowedOrigins: _allowedOrigins,
  ...details
}: KeyState): Details {
  return details;
}

function partsOf(state: KeyState, obeyedAtMs: number): KeyParts {
  const { enabled, expires, pool, firstId } = state;
  const limits = limitsOf(state);
  const isBare = DETAIL_NAMES.every((name) => state[name] === NO_DETAILS[name]);
  const ranges = sharedOf(rangesByText, state.allowedIps, (text) => new IpRanges(text));
  const origins = sharedOf(originsByText, state.allowedOrigins, (text) => new Origins(text));
  if (
    expires === 0 &&
    isBare &&
    pool === '' &&
    firstId === '' &&
    limits === undefined &&
    ranges === undefined &&
    origins === undefined
  )
    return enabled ? PLAIN : PLAIN_DISABLED;
  const ownPermissions = ownPermissionsOf(state.permissions);
  const details = isBare ? undefined : detailsIn(state);
  const links =
    state.roles === '' && state.externalId === '' ? undefined : linksOf(state.roles, ownPermissions);
  // The texts are shared too, because they may be 10 KB long.
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
    firstId,
    limits,
    ranges,
    origins,
    ownPermissions,
    links,
    join: undefined,
    obeyedAtMs,
    firstPool: '',
  };
}

/** Shared between calls, because lru-cache would otherwise create an object for each hit. */
const NO_OPTIONS = {};

/**
 * The known keys of all APIs by the digest of their secret (`digestOf`). If the cache is full, the least
 * recently used key is evicted. While half of the cache is free, a hit does not move its key to the end of
 * the list, because that would double the cost of a look-up in memory.
 */
export class KeyCache implements Memory {
  readonly #entries: LRUCache<string, Entry>;
  readonly #onPlan: (externalId: string, obeyedAtMs: number) => void;
  evictions = 0;

  /** @param onPlan called if other limits of roles may apply to the keys of a customer */
  constructor(keysMax: number, onPlan: (externalId: string, obeyedAtMs: number) => void = () => undefined) {
    this.#onPlan = onPlan;
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

  /**
   * Returns the entry, if its follower has been in sync ever since the entry was stored. Does not check the
   * lease.
   */
  get(digest: string): Entry | undefined {
    const entries = this.#entries;
    const isRoomy = entries.size * 2 <= entries.max;
    const entry = isRoomy ? entries.peek(digest, NO_OPTIONS) : entries.get(digest, NO_OPTIONS);
    return entry?.epoch.current ? entry : undefined;
  }

  /** Returns the last known entry, which may be void. */
  former(digest: string): Entry | undefined {
    return this.#entries.peek(digest);
  }

  put(secretHash: string, entry: Entry): void {
    this.#entries.set(digestFrom(secretHash), entry);
  }

  /** Applies a change to the entry, if the entry is of this epoch. Does not count as a use of the entry. */
  update(secretHash: string, keyId: string, epoch: Epoch, state: KeyState): Metered[] {
    const now = meteredOf(keyId, state);
    const entry = this.#entries.peek(digestFrom(secretHash));
    const { roles, externalId } = state;
    if (entry?.epoch !== epoch) {
      if (roles !== '' && externalId !== '') this.#onPlan(externalId, epoch.obeyedAtMs);
      return [now];
    }
    const { metered, details } = entry;
    if (entry.become(state))
      for (const id of new Set([details?.externalId ?? '', externalId]))
        if (id !== '') this.#onPlan(id, epoch.obeyedAtMs);
    return [metered, now];
  }

  forget(secretHash: string): Metered[] {
    const digest = digestFrom(secretHash);
    const entry = this.#entries.peek(digest);
    this.#entries.delete(digest);
    return entry ? [entry.metered] : [];
  }
}

/** Lists of a key's places by their text in Redis. */
const rangesByText = new LRUCache<string, IpRanges>({ max: 1000 });
const originsByText = new LRUCache<string, Origins>({ max: 1000 });

/** Returns a key's list from its text in Redis; undefined = none. */
function sharedOf<T extends object>(
  byText: LRUCache<string, T>,
  text: string,
  read: (text: string) => T,
): T | undefined {
  if (text === '') return undefined;
  const present = byText.get(text);
  if (present !== undefined) return present;
  const list = read(text);
  byText.set(text, list);
  return list;
}
