import { type Refill, refillOf, type Thresholds } from '#shared/protocol/records/credits.ts';
import {
  type AliasedFields,
  aliasedFields,
  DRIFTED,
  KEY_LETTERS,
  MANAGED_BY,
  sequenceOf,
} from '#shared/protocol/records/key-record.ts';
import { command, list, row, unlessEmpty } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, declaredIndex, identityIndexKey, metaKey, recordKey } from '#shared/redis/redis-keys.ts';
import { type Run, send } from '#shared/redis/script.ts';
import { folded, formsOf } from './search.ts';

export const readKey = command(
  new URL('./read-key.lua', import.meta.url),
  ['head', 'record', 'long'],
  ['base', '...letters'],
  list,
);
export const listIds = command(
  new URL('./list-ids.lua', import.meta.url),
  ['head', 'source'],
  ['from', 'limit'],
  unlessEmpty(row('next', '...keyIds')),
);
export const listKeys = command(
  new URL('./list-keys.lua', import.meta.url),
  ['head', 'index', 'source'],
  ['base', 'order', 'from', 'limit', 'most', 'conditions', '...letters'],
  unlessEmpty(row('total#', 'next', '...rows[]')),
);
const listDeclared = command(
  new URL('./list-declared.lua', import.meta.url),
  ['head', 'index', 'declared'],
  ['base', 'place', 'prefix', 'after', 'limit', 'most', 'conditions', '...letters'],
  unlessEmpty(row('total#', 'more', 'last', '...rows[]')),
);

/** Credits of a key that has credits. */
export interface CreditsView {
  readonly remaining?: number;
  readonly refill?: Refill & { readonly lastRefillAt?: number };
  /** The part of `remaining` that verifiers hold. */
  readonly remainingHeld?: number;
  /** Credits that crashed verifiers held and that are lost. */
  readonly remainingLost?: number;
  readonly thresholds?: Thresholds;
}

/** A key as admins see it: never its secret or the hash of its secret. */
export type Key = AliasedFields &
  CreditsView & {
    readonly id: string;
    readonly keyId: string;
    readonly apiId: string;
    readonly start: string;
    readonly createdAt: number;
    readonly updatedAt?: number;
    /** The sequence of the last change; 0 = never changed. */
    readonly sequence: number;
    /** The key that replaced this one. */
    readonly rerolledTo?: string;
    /** The key that this one replaced. */
    readonly rerolledFrom?: string;
    /** True if the secret has a foreign format, so that only verifiers with FOREIGN_KEYS on find it. */
    readonly foreign?: true;
    readonly leaked?: Leak;
  } & Managed;

/** The set of files that declares a thing. */
export interface Managed {
  readonly managedBy?: string;
  /** When it was first changed by others since the last change by its set, Unix milliseconds. */
  readonly driftedAt?: number;
}

/** The place where a secret was found in public, as it was last reported. */
export interface Leak {
  /** Unix milliseconds. */
  readonly at: number;
  /** Contains no secret; '' = unknown. */
  readonly url: string;
}

/** Conditions on the keys of a listing; a key must meet all. Times are Unix milliseconds. */
export interface KeyFilter {
  readonly enabled?: boolean;
  /** At this time the key has expired, or has not. */
  readonly expiredAt?: number;
  readonly unexpiredAt?: number;
  readonly expiresBefore?: number;
  /** No use is known, or none since this time; a key without a known use counts from its creation. */
  readonly neverUsed?: boolean;
  readonly lastUsedBefore?: number;
  /** Id of a role that the key itself has. */
  readonly role?: string;
  readonly leaked?: boolean;
  readonly foreign?: boolean;
  readonly externalId?: string;
  readonly managedBy?: string;
  readonly namePrefix?: string;
  /** Part of the name, the id or the external id, or all of `start`, in any case. */
  readonly search?: string;
}

/** One page of a listing in the order of `managedBy`. */
export interface DeclaredPage {
  readonly keys: readonly Key[];
  readonly total: number;
  /** Behind which the next page begins; undefined on the last page. */
  readonly next?: string;
}

/** One page of a listing. */
export interface KeyPage {
  readonly keys: readonly Key[];
  /** Number of all keys of the API, whatever the filter. */
  readonly total: number;
  /** The creation number at which the next page begins; undefined on the last page. */
  readonly next?: number;
}

/** Letters of the fields that the scripts return besides meta. */
const LETTERS = [
  ...['s', 'c', 'u', 'v', 'T', 'F', 'f', 'K', MANAGED_BY, DRIFTED],
  ...KEY_LETTERS.filter((letter) => letter !== 'm'),
];
/** The maximum number of keys that one page examines under a filter without an index. */
const EXAMINED_MAX = 1000;

/**
 * Reads keys from Redis. Each call runs one script, so that its result was true at one moment. Separate reads
 * could miss a meta that a change moves between the record and its own Redis key.
 */
export class KeyView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Returns undefined if there is no such key. */
  async get(apiId: string, keyId: string): Promise<Key | undefined> {
    const { head, base } = apiKeys(apiId);
    const record = { record: recordKey(apiId, keyId), long: metaKey(apiId, keyId) };
    const fields = await this.#send(readKey({ head, base, ...record, letters: LETTERS }));
    return fields.length === 0 ? undefined : keyOf(apiId, keyId, fields);
  }

  /**
   * One page of the keys of an API, or of another `index`, in order of creation, beginning at creation number
   * `from`; undefined if there is no such API. Examines at most EXAMINED_MAX keys, so a filtered page may be
   * short and still have a `next`.
   */
  async list(
    apiId: string,
    filter: KeyFilter,
    limit: number,
    order: 'asc' | 'desc',
    from?: number,
    index = apiKeys(apiId).index,
  ): Promise<KeyPage | undefined> {
    return this.#list(apiId, filter, limit, order, from ?? '', index);
  }

  /**
   * One page of the keys whose `managedBy` begins with a prefix, in the order of `managedBy`, of an API or another `index`;
   * undefined if there is no such API. May be short and still have a `next`, as `list`.
   * @param after `next` of the page before; '' = from the start
   */
  async listDeclared(
    apiId: string,
    prefix: string,
    filter: KeyFilter,
    limit: number,
    after: string,
    index = apiKeys(apiId).index,
  ): Promise<DeclaredPage | undefined> {
    const { head, base } = apiKeys(apiId);
    const { externalId, ...others } = filter;
    const page = await this.#send(
      listDeclared({
        ...{ head, index, declared: declaredIndex(apiId), base, place: index.slice(base.length) },
        ...{ prefix, after, limit, most: EXAMINED_MAX, conditions: conditionsOf(others), letters: LETTERS },
      }),
    );
    if (page === undefined) return undefined;
    const keys = page.rows.map(([keyId = '', ...fields]) => keyOf(apiId, keyId, fields));
    return {
      keys: externalId === undefined ? keys : keys.filter((key) => key.externalId === externalId),
      ...{ total: page.total, ...(page.more ? { next: page.last } : {}) },
    };
  }

  /**
   * Those of the keys with these creation numbers that exist and meet the conditions, in the order given;
   * undefined if there is no such API.
   */
  listNumbers(apiId: string, filter: KeyFilter, numbers: readonly number[]): Promise<KeyPage | undefined> {
    return this.#list(apiId, filter, numbers.length, 'numbers', numbers.join(' '), apiKeys(apiId).index);
  }

  async #list(
    apiId: string,
    filter: KeyFilter,
    limit: number,
    order: 'asc' | 'desc' | 'numbers',
    from: string | number,
    index: string,
  ): Promise<KeyPage | undefined> {
    const { head, base } = apiKeys(apiId);
    const page = await this.#send(
      listKeys({
        ...{ head, index, source: sourceOf(apiId, filter, index), base },
        ...{ order, from, limit, most: EXAMINED_MAX, conditions: conditionsOf(filter), letters: LETTERS },
      }),
    );
    if (page === undefined) return undefined;
    const { total, next, rows } = page;
    return {
      keys: rows.map(([keyId = '', ...fields]) => keyOf(apiId, keyId, fields)),
      total,
      ...(next ? { next: Number(next) } : {}),
    };
  }

  /**
   * One page of the ids of the keys of an API, or of one identity in it, in order of creation, beginning at
   * creation number `from`; undefined if there is no such API.
   */
  async ids(
    apiId: string,
    externalId: string | undefined,
    limit: number,
    from?: number,
  ): Promise<{ readonly keyIds: readonly string[]; readonly next?: number } | undefined> {
    const { head, index } = apiKeys(apiId);
    const source = externalId === undefined ? index : identityIndexKey(apiId, externalId);
    const page = await this.#send(listIds({ head, source, from: from ?? '', limit }));
    return page && { keyIds: page.keyIds, ...(page.next === '' ? {} : { next: Number(page.next) }) };
  }

  #send<T>(run: Run<T>): Promise<T> {
    return this.#nodes.run(run.keys[0] ?? '', (redis) => send(redis, run));
  }
}

/** The index with the keys that a listing examines. */
export const sourceOf = (apiId: string, { externalId }: KeyFilter, index = apiKeys(apiId).index): string =>
  externalId === undefined ? index : identityIndexKey(apiId, externalId);

/** The conditions of a filter for which there is no index, as filter.lua takes them. */
export function conditionsOf({ externalId: _inSource, search, ...others }: KeyFilter): string {
  const conditions = {
    ...others,
    ...(search ? { part: folded(search) } : {}),
    ...(search && /[^\0-\x7f]/.test(search) ? { forms: formsOf(folded(search)) } : {}),
  };
  return Object.keys(conditions).length === 0 ? '' : JSON.stringify(conditions);
}

/** @param values meta, then the values of LETTERS */
function keyOf(apiId: string, keyId: string, [m = '', ...values]: readonly string[]): Key {
  const {
    s = '',
    c,
    u,
    v,
    T,
    F,
    f,
    K,
    B,
    D,
    ...fields
  } = Object.fromEntries(LETTERS.map((letter, i) => [letter, values[i]]));
  return {
    id: keyId,
    keyId,
    apiId,
    start: s,
    createdAt: Number(c),
    ...(u ? { updatedAt: Number(u) } : {}),
    sequence: sequenceOf(v),
    ...(T ? { rerolledTo: T } : {}),
    ...(F ? { rerolledFrom: F } : {}),
    ...(f ? { foreign: true } : {}),
    ...(K ? { leaked: JSON.parse(K) as Leak } : {}),
    ...managedOf(B, D),
    ...aliasedFields({ ...fields, m }),
    ...creditsOf(values.slice(LETTERS.length)),
  };
}

/** Returns who manages a thing, from the stored texts. */
export const managedOf = (
  managedBy: string | null | undefined,
  driftedAt: string | null | undefined,
): Managed => ({
  ...(managedBy ? { managedBy } : {}),
  ...(driftedAt ? { driftedAt: Number(driftedAt) } : {}),
});

/** Returns who manages a thing, of all that is known of it. */
export const managedIn = ({ managedBy, driftedAt }: Managed): Managed => ({
  ...(managedBy === undefined ? {} : { managedBy }),
  ...(driftedAt === undefined ? {} : { driftedAt }),
});

/** @param values as `look` of credits.lua returns them; empty if the key has no credits */
function creditsOf([
  remaining,
  plan = '',
  refilledAt,
  heldText,
  lostText,
  percents,
]: readonly string[]): CreditsView {
  if (!remaining) return {};
  const refill = refillOf(plan);
  return {
    remaining: Number(remaining),
    ...(refill ? { refill: { ...refill, ...(refilledAt ? { lastRefillAt: Number(refilledAt) } : {}) } } : {}),
    ...(Number(heldText) > 0 ? { remainingHeld: Number(heldText) } : {}),
    ...(Number(lostText) > 0 ? { remainingLost: Number(lostText) } : {}),
    ...(percents ? { thresholds: percents.split(' ').map(Number) } : {}),
  };
}
