import { IDENTITY, NAMESPACE, ROOT_KEYS_ID } from '../rules/key-format.ts';

/**
 * Names of all keys in Redis. All keys of one API have the hash tag `{apiId}`, so that a Redis Cluster stores
 * them in one slot and one script can change them atomically. An API's id contains no `!`, so it never equals
 * one of the project's own tags. redis-layout.md lists them, with the comments of this file: `npm run docs`.
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
  /** Hash: the state of the API, its head. */
  readonly head: string;
  /** Stream: the change log, with ids `<sequence>-0`; at least the last 10,000 entries. */
  readonly log: string;
  /**
   * Sorted set: follower → the sequence that it has acknowledged, plus 0.5 if its last lease was granted when
   * the log was ahead; negative = killed.
   */
  readonly members: string;
  /** Sorted set: the ids of all keys, or in the shared log of all roles, by creation number. */
  readonly index: string;
  /** Stream: the creation marks, with ids `<creation number>-0`; at least the last 100,000. */
  readonly creations: string;
  /** Channel: the entries of the log, published as they are written. */
  readonly channel: string;
  /** Sorted set: follower with credits → its latest exchange, Unix seconds. */
  readonly held: string;
  /** Channel: recalls, each with the name of a pool whose credits verifiers must return. */
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
 * Sorted sets, in the shared log: the ids of identities, namespaces with overrides, the record about root keys, and
 * permissions in the catalogue, by creation number.
 */
export function indexOf(apiId: string, keyId: string): string {
  if (keyId.startsWith(IDENTITY)) return `kf:{${apiId}}:ids`;
  if (keyId.startsWith(NAMESPACE)) return `kf:{${apiId}}:namespaces`;
  if (keyId === ROOT_KEYS_ID) return `kf:{${apiId}}:rootkeys`;
  return keyId.startsWith('permission_') ? `kf:{${apiId}}:permissions` : apiKeys(apiId).index;
}

/** Sorted set: a key that expires → when its next webhook is due, Unix milliseconds; 0 = not computed yet. */
export const expiryIndex = (apiId: string): string => `kf:{${apiId}}:due`;

/** Sorted set, scores 0: `<managedBy>`, U+0000 and the id of each key or other record that has a `managedBy`. */
export const declaredIndex = (apiId: string): string => `kf:{${apiId}}:by`;

/**
 * Hash: a key that was disabled because nobody used it → the change, as disable-unused.lua writes it; until the audit log
 * has it.
 */
export const unusedKeys = (apiId: string): string => `kf:{${apiId}}:unused`;

/**
 * Hash with an expiry, for webhooks: a pool whose credits ran out → when, Unix milliseconds; and a pool or window, a space and the
 * threshold that it passed → when, of how much, and what was left; of a window also its end.
 */
export const poolMarks = (apiId: string): string => `kf:{${apiId}}:u:!x`;

/** Hash: the record of one key, role, identity or the like; key-record.md has its fields. */
export const recordKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:k:${keyId}`;

/** String: a `meta` of more than 64 bytes. */
export const metaKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:m:${keyId}`;

/** Sorted set: the ids of the keys with this `externalId`, by creation number. */
export const identityIndexKey = (apiId: string, externalId: string): string =>
  `kf:{${apiId}}:o:${externalId}`;

/** Hash: a pool of credits; exchange.lua describes its fields. */
export const poolKey = (apiId: string, poolId: string): string => `kf:{${apiId}}:q:${poolId}`;

/** Hash with an expiry: the current window of one rate limit; windows.lua describes its fields. */
export const windowKey = (apiId: string, windowId: string): string => `kf:{${apiId}}:w:${windowId}`;

/**
 * Sorted set with an expiry: the limits that questions defined for a key → their end, Unix milliseconds.
 * @param windowId any of these limits
 */
export function broughtIndex(apiId: string, windowId: string): string {
  const keyId = windowId.slice(0, windowId.indexOf('.'));
  return `kf:{${apiId}}:w:!${keyId}`;
}

/** String `<apiId> <keyId>`: the pointer from a secret's hash to its key. It never changes. */
export const secretPointer = (secretHash: string): string => `kf:p:${secretHash}`;

/** String `<apiId>`: the pointer from a key's id to its API. It never changes. */
export const idPointer = (keyId: string): string => `kf:i:${keyId}`;

/**
 * String, for a day: of a deleted key's id `<apiId>`, whose change log has the deletion; of the hash of its secret
 * `<apiId> <keyId>`.
 */
export const deletionNote = (keyIdOrHash: string): string => `kf:d:${keyIdOrHash}`;

/** Sorted set, scores 0: the ids of all APIs. */
export const apiList = 'kf:{!apis}:ids';

/** Hash: the record of the root key whose secret has this hash. */
export const rootKeyRecord = (secretHash: string): string => `kf:{!root}:k:${secretHash}`;

/** String with an expiry: a session of the dashboard. */
export const sessionRecord = (tokenHash: string): string => `kf:s:${tokenHash}`;

/** String with an expiry: the encrypted secret of a one-time link. */
export const handoverRecord = (id: string): string => `kf:h:${id}`;

/** String with an expiry: the number of such links of a root key or person. */
export const handoverCounter = (rootKeyId: string): string => `kf:h:n:${rootKeyId}`;

/** String with an expiry: the lock of a call that refreshes a person's claims. */
export const refreshLock = (tokenHash: string): string => `kf:o:r:${tokenHash}`;

/** String with an expiry: a sign-in that waits for the identity provider. */
export const pendingSignIn = (hash: string): string => `kf:o:${hash}`;

/** Hash: id of a session → who began it and when, and the hash of its token, JSON. */
export const sessionList = 'kf:{!root}:sessions';

/** Sorted set, scores 0: the ids of these sessions. */
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
/** Age at which such an announcement is dropped, because its process has stopped repeating it. */
export const BOOTSTRAP_FORGOTTEN_MS = 90_000;

/** Sorted set, scores 0: the ids of verifiers that reported recently. */
export const verifierIds = 'kf:{!fleet}:ids';

/** String with an expiry: a verifier's last report, as JSON of `VerifierStatus`. */
export const verifierStatus = (id: string): string => `kf:{!fleet}:v:${id}`;

/** Sorted set with an expiry: the APIs whose usage somebody watches → the latest look, Unix milliseconds. */
export const watchedApis = 'kf:{!fleet}:watched';

/** String: when verifiers last lost usage, as far as is known, Unix milliseconds. */
export const usageLoss = 'kf:{!fleet}:lost';

/** Hash with an expiry: the usage of one key; add-usage.lua describes its fields. */
export const usageKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:u:${keyId}`;

/** Hash with an expiry: the usage of all keys of an API. */
export const apiUsageKey = (apiId: string): string => `kf:{${apiId}}:u:!`;

/** Hash with an expiry: the usage of an API by tag, on the day with this number. */
export const tagUsageKey = (apiId: string, day: number | ''): string => `kf:{${apiId}}:u:!t${day}`;

/** Hash with an expiry: the number of a verifier's last usage report, so that no report is added twice. */
export const usageMarkKey = (apiId: string, reporter: string): string => `kf:{${apiId}}:u:!r${reporter}`;

/**
 * Hashes with an expiry, described in report-refusals.lua: the latest refusals of one key; the keys of an API that were
 * refused; the keys of refused requests, by the requests' ids; and the latest refusals of an API, by their numbers.
 */
export const refusalsKey = (apiId: string, keyId: string): string => `kf:{${apiId}}:u:!f${keyId}`;
export const refusedKeysKey = (apiId: string): string => `kf:{${apiId}}:u:!k`;
export const refusedRequestsKey = (apiId: string): string => `kf:{${apiId}}:u:!i`;
export const latestRefusalsKey = (apiId: string): string => `kf:{${apiId}}:u:!l`;

/** String with an expiry: the calls of one root key or one address in this minute. */
export const callCounter = (caller: string): string => `kf:r:${caller}`;

/** Hash with an expiry: a call with an Idempotency-Key; begin-once.lua describes its fields. */
export const onceMark = (callerHash: string, callHash: string): string => `kf:n:{${callerHash}}:${callHash}`;
/** String with an expiry: the number of such calls of one caller in a day. */
export const callsOnce = (callerHash: string): string => `kf:n:{${callerHash}}`;

/** String with an expiry: a report of leaked secrets was handled. */
export const reportMark = (bodyHash: string): string => `kf:l:${bodyHash}`;

/** Streams: the audit log, of calls that did something (`done`) and of refused calls (`refused`). */
export const auditStream = (of: 'done' | 'refused'): string => `kf:{!audit}:${of}`;
/** Sorted set: the ids of the events about one key in the stream `done`, by their time. */
export const auditKeyIndex = (keyId: string): string => `kf:{!audit}:k:${keyId}`;
/** String: the id of the audit event that was last written a second time. */
export const auditRetryKey = 'kf:{!audit}:again';

/** Stream: events for webhooks that no single call caused, until they are in the queues of endpoints. */
export const noticeStream = 'kf:{!audit}:notices';
/** String with an expiry: an event with this mark was added to that stream. */
export const noticeMark = (mark: string): string => `kf:{!audit}:n:${mark}`;
/** Hash: verifier id → its host, version and last report, JSON; for the event about its loss. */
export const watchedVerifiers = 'kf:{!audit}:verifiers';
/** String with an expiry: the control plane that sends webhooks. */
export const webhookSender = 'kf:{!audit}:sender';
/** Hash: id of a webhook endpoint → its record with its signing secrets, JSON. */
export const webhookEndpoints = 'kf:{!audit}:endpoints';

/** The data of one webhook endpoint, all in the slot of the audit log. */
export interface WebhookKeys {
  /** Stream: the events that wait for delivery. */
  readonly queue: string;
  /** Hash: id of an event → its failed attempts and the time of the next one. */
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
