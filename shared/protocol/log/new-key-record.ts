import { hash } from 'node:crypto';
import { command, oneOf } from '../../redis/command.ts';
import { apiKeys, identityIndexKey, indexOf, metaKey, recordKey } from '../../redis/redis-keys.ts';
import type { ForeignDigest } from '../../rules/foreign-digests.ts';
import { generateId } from '../../rules/key-format.ts';
import { type KeyFields, type NewKeyFields, storedFields } from '../records/key-record.ts';
import { protocolFor } from '../records/protocol.ts';
import type { CreditsChange } from './change-log-port.ts';

/** Creates records; see `recordRun`. */
export const createKey = command(
  new URL('./create-key.lua', import.meta.url),
  ['head', 'index', 'record', 'long', 'owners', 'creations', 'members'],
  [
    ...['keyId', 'now', 'auto', 'lease', 'meta', 'owner', 'foreign', 'kept', 'content', 'needs'],
    ...['defaults', 'credits', 'base', '...fields'],
  ] as const,
  oneOf('status', {
    ...{ OK: ['expires'], NO_API: [], DELETED: [], EXISTS: [], OTHER_DEFAULTS: ['present'] },
    TOO_LONG: ['longestMs#'],
    TOO_OLD: ['needs#', 'followers#', '...names'],
  }),
);
/** The end of a creation. */
export type Created = ReturnType<ReturnType<typeof createKey>['read']>;
/** Sets pointers, which come before the record. */
export const setPointer = command(
  new URL('./set-pointer.lua', import.meta.url),
  ['pointer'],
  ['value'],
  String,
);
/** Deletes pointers, unless they point to another key. */
export const deletePointer = command(
  new URL('./delete-pointer.lua', import.meta.url),
  ['pointer'],
  ['value'],
  Number,
);

/** Notes deletions, of which callers may ask for a while. */
export const noteDeletion = command(
  new URL('./note-deletion.lua', import.meta.url),
  ['note'],
  ['value', 'kept'],
  Number,
);

/**
 * The minimum number of creations that an API remembers, above the number that an import makes within a
 * lease. A follower that missed more starts afresh.
 */
export const CREATIONS_KEPT = 100_000;
/** Length of the digest of a creation, in hexadecimal characters. */
const DIGEST_LENGTH = 32;

/** Fields that a key is created with. */
export type NewFields = NewKeyFields &
  Pick<KeyFields, 'enabled'> & {
    readonly credits?: CreditsChange;
    /** The protocol that verifiers must speak for the key, default 1; see protocol.ts. */
    readonly needs?: number;
  };

/** A record to be written. */
export interface NewRecord extends NewFields {
  readonly apiId: string;
  readonly keyId: string;
  readonly secretHash: string;
  /** First characters of the secret, which may be shown. */
  readonly start: string;
  /** Random bytes of the secret, if not the usual number. */
  readonly bytes?: number | undefined;
  /** Unix milliseconds. */
  readonly createdAt: number;
  /** True if the secret has a foreign format, so that verifiers look it up only with FOREIGN_KEYS on. */
  readonly foreign: boolean;
  /** The digest by which a foreign secret is known, if not SHA-256: `secretHash` is the name of that. */
  readonly digest?: ForeignDigest;
  /** Defaults of the API that the secret was made with; undefined = it used none. */
  readonly defaults?: string;
}

/**
 * The run of `createKey` that creates a record.
 * @param createApi true to create the API if it does not exist
 */
export function recordRun(record: NewRecord, createApi: boolean, leaseMs: number) {
  const { apiId, keyId, createdAt } = record;
  const { head, creations, members, base } = apiKeys(apiId);
  const { o: externalId = '', m: meta = '', ...plain } = storedFields(record);
  const recordPlace = recordKey(apiId, keyId);
  const credits = record.credits
    ? JSON.stringify({ ...record.credits, id: generateId('pool', createdAt) })
    : '';
  const bytes = record.bytes === undefined ? [] : ['b', record.bytes];
  const foreign = record.foreign ? (record.digest ?? '1') : '0';
  const kind = record.foreign ? ['f', foreign] : [];
  const facts = ['p', record.secretHash, 's', record.start, ...bytes, ...kind, 'c', createdAt];
  const fields = [...facts, ...Object.entries(plain).flat()];
  return createKey({
    ...{ head, creations, members, base, index: indexOf(apiId, keyId) },
    ...{ record: recordPlace, long: metaKey(apiId, keyId), keyId, now: createdAt },
    owners: externalId === '' ? recordPlace : identityIndexKey(apiId, externalId),
    ...{ auto: createApi ? '1' : '0', lease: leaseMs, meta, owner: externalId },
    ...{ foreign, kept: CREATIONS_KEPT },
    content: digestOf([keyId, meta, externalId, credits, ...fields]),
    ...{
      needs: Math.max(record.needs ?? 1, protocolFor(keyId, plain, record.credits)),
      defaults: record.defaults ?? '*',
      credits,
      fields,
    },
  });
}

/**
 * The digest of everything that a key is created with; equal digests mean equal creations. It is computed
 * here because Redis has only one thread for all callers.
 */
export function digestOf(content: readonly (string | number)[]): string {
  return hash('sha256', JSON.stringify(content)).slice(0, DIGEST_LENGTH);
}
