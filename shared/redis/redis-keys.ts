import { IDENTITY } from '../contract/key-format.ts';

/**
 * Names of all keys in Redis. All keys of one API carry the hash tag `{apiId}`, so that a Redis Cluster holds them in
 * one slot and one script can change them atomically. `!` cannot occur in an API's id, so the project's own tags never
 * meet one.
 */

/**
 * The shared log, which stands beside the APIs as if it were one: its `keys` are roles and identities, which no secret leads to. It has
 * members and a fence like any other.
 */
export const SHARED_LOG = '!ws';

/** Everything about one API that scripts touch together. */
export interface ApiKeys {
  /** Hash: `s` last sequence, `h` its chain hash, `g` mark of the last creation, `L` lease granted, `c` created, … */
  readonly head: string;
  /** Stream: the change log, ids `<sequence>-0`. */
  readonly log: string;
  /** Sorted set: follower → last acknowledged sequence; below 0 = killed, by the kill of that number. */
  readonly members: string;
  /** Sorted set: keyId by creation number. */
  readonly index: string;
  /** Stream: the marks of keys' creations, ids `<creation number>-0`; what a follower saw of them is looked up here. */
  readonly creations: string;
  /** Pub/sub channel of the changes. */
  readonly channel: string;
  /** Sorted set: who has a field in a pool of credits → its latest exchange, Unix seconds. */
  readonly held: string;
  /** Pub/sub channel of the pools that holders are asked to give back. */
  readonly recalls: string;
}

/** The names of everything that one API has, apart from its keys' records. */
export function apiKeys(apiId: string): ApiKeys {
  const base = `kf:{${apiId}}`;
  return {
    head: `${base}:head`,
    log: `${base}:log`,
    members: `${base}:members`,
    index: `${base}:idx`,
    creations: `${base}:new`,
    channel: `${base}:chg`,
    held: `${base}:held`,
    recalls: `${base}:rcl`,
  };
}

/** Sorted set: where a record is listed by creation number. Identities and permissions are listed apart from roles. */
export function indexOf(apiId: string, keyId: string): string {
  if (keyId.startsWith(IDENTITY)) return `kf:{${apiId}}:ids`;
  return keyId.startsWith('permission_') ? `kf:{${apiId}}:permissions` : apiKeys(apiId).index;
}

/** Hash: the record of one key. */
export const recordKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:k:${keyId}`;

/** String: a `meta` too long for the record's compact encoding. */
export const metaKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:m:${keyId}`;

/** Sorted set: the keys of one identity by creation number. */
export const identityIndexKey = (apiId: string, externalId: string): string =>
  `kf:{${apiId}}:o:${externalId}`;

/** Hash: the credits of one key, or of several that share them; exchange.lua says what is in it. */
export const poolKey = (apiId: string, poolId: string): string => `kf:{${apiId}}:q:${poolId}`;

/** Hash with an expiry: the present window of one rate limit; windows.lua says what is in it. */
export const windowKey = (apiId: string, windowId: string): string => `kf:{${apiId}}:w:${windowId}`;

/** Sorted set with an expiry: the limits that requests brought for the key of one of them → when they are forgotten, Unix milliseconds. */
export const broughtIndex = (apiId: string, windowId: string): string =>
  windowKey(apiId, `!${windowId.slice(0, windowId.indexOf('.'))}`);

/** String `apiId keyId`: immutable pointer from a secret's hash to its record. */
export const secretPointer = (secretHash: string): string => `kf:p:${secretHash}`;

/** String `apiId`: immutable pointer from a key's id to its API. */
export const idPointer = (keyId: string): string => `kf:i:${keyId}`;

/** Sorted set, scores 0: the ids of all APIs. */
export const apiList = 'kf:{!apis}:ids';

/** Hash: the record of one root key, found by its secret's hash. */
export const rootKeyRecord = (secretHash: string): string => `kf:{!root}:k:${secretHash}`;

/** Hash: rootKeyId → its secret's hash. */
export const rootKeyIndex = 'kf:{!root}:ids';

/** Sorted set: the ids of the bootstrap root keys that a control plane has → when it last said so, Unix milliseconds. */
export const bootstrapAnnouncements = 'kf:{!root}:bootstrap';

/** Sorted set, scores 0: the ids of verifiers that reported lately. */
export const verifierIds = 'kf:{!fleet}:ids';

/** String with an expiry: what one verifier last reported of itself, JSON of `VerifierStatus`. */
export const verifierStatus = (id: string): string => `kf:{!fleet}:v:${id}`;

/** Hash with an expiry: how often a key was verified; see `usage.ts`. */
export const usageKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:u:${keyId}`;

/** Hash with an expiry: the same of all keys of an API. No keyId has a `!`. */
export const apiUsageKey = (apiId: string): string => `kf:{${apiId}}:u:!`;

/** Hash with an expiry: how often keys of an API were verified by tag, in the day of this number; see `add-usage.lua`. */
export const tagUsageKey = (apiId: string, day: number | ''): string => `kf:{${apiId}}:u:!t${day}`;

/** Hash with an expiry: `n`, the number of the last report of a verifier about an API. */
export const usageMarkKey = (apiId: string, reporter: string): string => `kf:{${apiId}}:u:!r${reporter}`;

/** String with an expiry: how often somebody called within the present window. */
export const callCounter = (caller: string): string => `kf:r:${caller}`;

/** Streams: what was done, and what was refused, over the management interface. */
export const auditStream = (of: 'done' | 'refused'): string => `kf:{!audit}:${of}`;
/** The id of the event that was last written again for its replicas. */
export const auditRetryKey = 'kf:{!audit}:again';

/** Parses what `secretPointer` holds. */
export function parsePointer(value: string): { apiId: string; keyId: string } {
  const [apiId, keyId] = value.split(' ');
  if (!apiId || !keyId) throw new Error('a key pointer in Redis is damaged');
  return { apiId, keyId };
}

export const formatPointer = (apiId: string, keyId: string): string => `${apiId} ${keyId}`;
