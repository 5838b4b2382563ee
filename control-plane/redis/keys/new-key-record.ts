import { hash } from 'node:crypto';
import { CREDITS_PROTOCOL } from '#shared/contract/credits.ts';
import { generateId } from '#shared/contract/key-format.ts';
import { type KeyFields, neededFor, storedFields } from '#shared/contract/key-record.ts';
import { apiKeys, identityIndexKey, indexOf, metaKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script, type ScriptCall } from '#shared/redis/script.ts';

import type { NewCredits } from '../../core/schemas/credit-schemas.ts';

/** Creates records; `recordCall` makes its arguments. */
export const createScript = new Script(new URL('../lua/keys/create-key.lua', import.meta.url));
/** Sets pointers, which come before the record. */
export const pointerScript = new Script(new URL('../lua/keys/set-pointer.lua', import.meta.url));
/** Takes pointers away, unless they are another key's. */
export const deletePointerScript = new Script(new URL('../lua/keys/delete-pointer.lua', import.meta.url));

/**
 * Creations that every API remembers at least. More than an import makes in the time of a lease: a follower that missed
 * more starts anew.
 */
export const CREATIONS_KEPT = 100_000;
/** Of the digest of a creation, hexadecimal characters. */
const DIGEST_LENGTH = 32;

/** Fields that a key is created with. */
export type NewFields = Partial<KeyFields> &
  Pick<KeyFields, 'enabled'> & {
    readonly credits?: NewCredits;
    /** The protocol that verifiers must speak for it, where its fields do not tell; see protocol.ts. */
    readonly needs?: number;
  };

/** A key to be written. */
export interface NewRecord extends NewFields {
  readonly apiId: string;
  readonly keyId: string;
  readonly secretHash: string;
  /** Beginning of the secret, which may be shown. */
  readonly start: string;
  /** Random bytes of the secret, where they are not as many as usual. */
  readonly bytes?: number | undefined;
  /** Unix milliseconds. */
  readonly createdAt: number;
  /** Of another format than ours, so that verifiers look it up only where FOREIGN_KEYS is on. */
  readonly foreign: boolean;
  /** Defaults of the API that the secret was made with; undefined = it needed none. */
  readonly defaults?: string;
}

/** The protocol that verifiers must speak to obey all that a key is created with. */
export const neededForNew = (record: NewRecord): number =>
  Math.max(record.needs ?? 1, neededFor(storedFields(record)), record.credits ? CREDITS_PROTOCOL : 1);

/**
 * The call of `createScript` that creates a record.
 * @param createApi whether the API is to be created too, where it is not there
 */
export function recordCall(record: NewRecord, createApi: boolean, leaseMs: number): ScriptCall {
  const { apiId, keyId, createdAt } = record;
  const { head, creations, members } = apiKeys(apiId);
  const { o: externalId = '', m: meta = '', ...plain } = storedFields(record);
  const recordPlace = recordKey(apiId, keyId);
  const credits = record.credits
    ? JSON.stringify({ ...record.credits, id: generateId('pool', createdAt) })
    : '';
  const bytes = record.bytes === undefined ? [] : ['b', record.bytes];
  const facts = ['p', record.secretHash, 's', record.start, ...bytes, 'c', createdAt];
  const fields = [...facts, ...Object.entries(plain).flat()];
  return {
    keys: [
      head,
      indexOf(apiId, keyId),
      recordPlace,
      metaKey(apiId, keyId),
      externalId === '' ? recordPlace : identityIndexKey(apiId, externalId),
      creations,
      members,
    ],
    args: [
      keyId,
      createdAt,
      createApi ? '1' : '0',
      leaseMs,
      meta,
      externalId,
      record.foreign ? '1' : '0',
      CREATIONS_KEPT,
      digestOf([keyId, meta, externalId, credits, ...fields]),
      neededForNew(record),
      record.defaults ?? '*',
      credits,
      ...fields,
    ],
  };
}

/** Digest of what a key is created with. Made here, since Redis has only one thread for all: two creations have the same only where they are the same. */
export function digestOf(content: readonly (string | number)[]): string {
  return hash('sha256', JSON.stringify(content)).slice(0, DIGEST_LENGTH);
}
