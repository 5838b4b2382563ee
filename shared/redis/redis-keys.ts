import { NAMESPACE } from '../protocol/namespace-record.ts';
import { ROOT_KEYS_ID } from '../protocol/root-keys-record.ts';
import { IDENTITY } from '../rules/key-format.ts';

/**
 * Names of all keys in Redis. All keys of one API have the hash tag `{apiId}`, so that a Redis Cluster stores
 * them in one slot and one script can change them atomically. An API's id contains no `!`, so it never equals
 * one of the project's own tags.
 */

/**
 * The shared log, which is stored beside the APIs as if it were one of them. Its `keys` are roles and
 * identities, to which no secret leads. Like any API it has members and a fence.
 */
export const SHARED_LOG = '!ws';

/** The data of one API that scripts use together. */
export interface ApiKeys {
  /** The beginning of the names of all data of the API. */
  readonly base: string;
  /**
   * Hash: `s` last sequence, `h` its chain hash, `g` mark of the last creation, `L` length of leases, `c`
   * creation time, …
   */
  readonly head: string;
  /** Stream: the change log, with ids `<sequence>-0`. */
  readonly log: string;
  /** Sorted set: follower → last acknowledged sequence; negative = killed, by the kill of that number. */
  readonly members: string;
  /** Sorted set: keyId by creation number. */
  readonly index: string;
  /**
   * Stream: the creation marks, with ids `<creation number>-0`, for comparison with the marks that followers
   * have seen.
   */
  readonly creations: string;
  /** Pub/sub channel of the changes. */
  readonly channel: string;
  /** Sorted set: holder of a field in a pool of credits → its latest exchange, Unix seconds. */
  readonly held: string;
  /** Pub/sub channel of recalls, with the pools whose credits holders should give back. */
  readonly recalls: string;
}

/** Returns the names of all data of one API, apart from its keys' records. */
export function apiKeys(apiId: string): ApiKeys {
  const base = `kf:{${apiId}}:`;
  return {
    base,
    head: `${base}head`,
    log: `${base}log`,
    members: `${base}members`,
    index: `${base}idx`,
    creations: `${base}new`,
    channel: `${base}chg`,
    held: `${base}held`,
    recalls: `${base}rcl`,
  };
}

/**
 * Sorted set: the index of a record, by creation number. Identities, namespaces of rate limits, permissions and
 * the record about root keys have indexes of their own.
 */
export function indexOf(apiId: string, keyId: string): string {
  if (keyId.startsWith(IDENTITY)) return `kf:{${apiId}}:ids`;
  if (keyId.startsWith(NAMESPACE)) return `kf:{${apiId}}:namespaces`;
  if (keyId === ROOT_KEYS_ID) return `kf:{${apiId}}:rootkeys`;
  return keyId.startsWith('permission_') ? `kf:{${apiId}}:permissions` : apiKeys(apiId).index;
}

/**
 * Sorted set: the keys of an API that expire → when the next event about it is due, Unix milliseconds; 0 = not
 * computed yet.
 */
export const expiryIndex = (apiId: string): string => `kf:{${apiId}}:due`;

/** Hash with an expiry: a pool whose credits ran out → when, Unix milliseconds. No keyId contains a `!`. */
export const exhaustedPools = (apiId: string): string => `kf:{${apiId}}:u:!x`;

/** Hash: the record of one key. */
export const recordKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:k:${keyId}`;

/** String: a `meta` that is too long for the record's compact encoding. */
export const metaKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:m:${keyId}`;

/** Sorted set: the keys of one identity, by creation number. */
export const identityIndexKey = (apiId: string, externalId: string): string =>
  `kf:{${apiId}}:o:${externalId}`;

/** Hash: the credits of one key, or of several keys that share them; exchange.lua describes its fields. */
export const poolKey = (apiId: string, poolId: string): string => `kf:{${apiId}}:q:${poolId}`;

/** Hash with an expiry: the current window of one rate limit; windows.lua describes its fields. */
export const windowKey = (apiId: string, windowId: string): string => `kf:{${apiId}}:w:${windowId}`;

/**
 * Sorted set with an expiry: the limits that questions defined for a key → the time when they are forgotten,
 * Unix milliseconds. `windowId` is any of these limits.
 */
export const broughtIndex = (apiId: string, windowId: string): string =>
  windowKey(apiId, `!${windowId.slice(0, windowId.indexOf('.'))}`);

/** String `apiId keyId`: an immutable pointer from a secret's hash to its record. */
export const secretPointer = (secretHash: string): string => `kf:p:${secretHash}`;

/** String `apiId`: an immutable pointer from a key's id to its API. */
export const idPointer = (keyId: string): string => `kf:i:${keyId}`;

/** Sorted set, scores 0: the ids of all APIs. */
export const apiList = 'kf:{!apis}:ids';

/** Hash: the record of one root key, found by its secret's hash. */
export const rootKeyRecord = (secretHash: string): string => `kf:{!root}:k:${secretHash}`;

/** String with an expiry: a session of the dashboard, found by its token's hash. */
export const sessionRecord = (tokenHash: string): string => `kf:s:${tokenHash}`;

/** String with an expiry: an encrypted secret that a link shows once. */
export const handoverRecord = (id: string): string => `kf:h:${id}`;

/** String with an expiry: how many such links a root key has made. */
export const handoverCounter = (rootKeyId: string): string => `kf:h:n:${rootKeyId}`;

/** String with an expiry: a call refreshes the claims of the person who has the session with this hash. */
export const refreshLock = (tokenHash: string): string => `kf:o:r:${tokenHash}`;

/** String with an expiry: a sign-in that waits for the identity provider, found by the hash of its browser and its state. */
export const pendingSignIn = (hash: string): string => `kf:o:${hash}`;

/** Hash: id of a session → who began it and when, and the hash of its token, JSON. Some of them may be over. */
export const sessionList = 'kf:{!root}:sessions';

/** Sorted set, scores 0: the ids of these sessions, which begin with their time. */
export const sessionOrder = 'kf:{!root}:sessions:all';

/** Sorted set with an expiry: the ids of the sessions of one root key or person → when they began, Unix milliseconds. */
export const sessionsOf = (callerId: string): string => `kf:{!root}:sessions:of:${callerId}`;

/** Hash: rootKeyId → the number of root keys that descend from it. */
export const rootKeyDescendants = 'kf:{!root}:descendants';

/** Hash: rootKeyId → its secret's hash. */
export const rootKeyIndex = 'kf:{!root}:ids';

/**
 * Sorted set: the ids of the control planes' bootstrap root keys → their latest announcement, Unix
 * milliseconds.
 */
export const bootstrapAnnouncements = 'kf:{!root}:bootstrap';

/** Sorted set, scores 0: the ids of verifiers that reported recently. */
export const verifierIds = 'kf:{!fleet}:ids';

/** String with an expiry: a verifier's last report, as JSON of `VerifierStatus`. */
export const verifierStatus = (id: string): string => `kf:{!fleet}:v:${id}`;

/** Hash with an expiry: the usage of one key; see `usage.ts`. */
export const usageKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:u:${keyId}`;

/** Hash with an expiry: the usage of all keys of an API. No keyId contains a `!`. */
export const apiUsageKey = (apiId: string): string => `kf:{${apiId}}:u:!`;

/** Hash with an expiry: the usage of an API by tag on the day with this number; see `add-usage.lua`. */
export const tagUsageKey = (apiId: string, day: number | ''): string => `kf:{${apiId}}:u:!t${day}`;

/** Hash with an expiry: `n`, the number of a verifier's last report about an API. */
export const usageMarkKey = (apiId: string, reporter: string): string => `kf:{${apiId}}:u:!r${reporter}`;

/**
 * Hashes with an expiry, see `report-refusals.lua`: the refusals of one key; the refused keys of an API; and the keys
 * that refused requests asked about, by the requests' ids.
 */
export const refusalsKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:u:!f${keyId}`;
export const refusedKeysKey = (apiId: string): string => `kf:{${apiId}}:u:!k`;
export const refusedRequestsKey = (apiId: string): string => `kf:{${apiId}}:u:!i`;

/** String with an expiry: the number of a caller's calls within the current window. */
export const callCounter = (caller: string): string => `kf:r:${caller}`;

/** String with an expiry: a report of leaked secrets with this hash was handled. */
export const reportMark = (bodyHash: string): string => `kf:l:${bodyHash}`;

/** Streams: the audit events of calls that did something, and of refused calls. */
export const auditStream = (of: 'done' | 'refused'): string => `kf:{!audit}:${of}`;
/** Sorted set: the ids of the events about one key that `auditStream('done')` has, by their time. */
export const auditKeyIndex = (keyId: string): string => `kf:{!audit}:k:${keyId}`;
/** The id of the last event that was written again because replicas lacked it. */
export const auditRetryKey = 'kf:{!audit}:again';

/**
 * Stream: events for webhooks that no call caused, until they are in the queues of endpoints. `noticeMark`
 * marks those that must not be added again.
 */
export const noticeStream = 'kf:{!audit}:notices';
/** String with an expiry: the notice with this mark was added. */
export const noticeMark = (mark: string): string => `kf:{!audit}:n:${mark}`;
/** Hash: verifier id → its host and version; the verifiers whose loss was not reported yet. */
export const watchedVerifiers = 'kf:{!audit}:verifiers';
/** String with an expiry: the control plane that sends webhooks now. */
export const webhookSender = 'kf:{!audit}:sender';
/** Hash: id of a webhook endpoint → its record, as JSON. */
export const webhookEndpoints = 'kf:{!audit}:endpoints';

/** The data of one webhook endpoint, all in the slot of the audit log. */
export interface WebhookKeys {
  /** Stream: the events that wait for delivery. */
  readonly queue: string;
  /** Hash: id of an event in the queue → the number of failed attempts and the time of the next one. */
  readonly retries: string;
  /** Stream: the latest attempts. */
  readonly attempts: string;
  /** Stream: the latest events that were given up. */
  readonly dead: string;
  /** Hash: consecutive failures, and the numbers of events that were dropped or given up. */
  readonly state: string;
}

/** Returns the names of all data of one webhook endpoint, apart from its record. */
export function webhookKeys(endpointId: string): WebhookKeys {
  const base = `kf:{!audit}:w:${endpointId}`;
  return {
    queue: `${base}:queue`,
    retries: `${base}:retries`,
    attempts: `${base}:attempts`,
    dead: `${base}:dead`,
    state: `${base}:state`,
  };
}

/** Parses the value of `secretPointer`. */
export function parsePointer(value: string): { apiId: string; keyId: string } {
  const [apiId, keyId] = value.split(' ');
  if (!apiId || !keyId) throw new Error('a key pointer in Redis is damaged');
  return { apiId, keyId };
}

export const formatPointer = (apiId: string, keyId: string): string => `${apiId} ${keyId}`;
