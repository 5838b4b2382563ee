import { hash } from 'node:crypto';
import { apiKeys, metaKey, ownerKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script, type ScriptCall } from '#shared/redis/script.ts';

/** Creates records; what `recordCall` is for. */
export const createScript = new Script(new URL('./lua/create-key.lua', import.meta.url));
/** Sets pointers, which come before the record. */
export const pointerScript = new Script(new URL('./lua/set-pointer.lua', import.meta.url));
/** Takes pointers away, unless they are another key's. */
export const deletePointerScript = new Script(new URL('./lua/delete-pointer.lua', import.meta.url));

/**
 * Creations that every API remembers at least. More than an import makes in the time of a lease: a follower that missed
 * more starts anew.
 */
const CREATIONS_KEPT = 100_000;
/** Of the digest of a creation, hexadecimal characters. */
const DIGEST_LENGTH = 32;

/** A key to be written. Times are Unix milliseconds. */
export interface NewRecord {
  readonly apiId: string;
  readonly keyId: string;
  readonly secretHash: string;
  /** What of the secret may be shown. */
  readonly start: string;
  readonly name?: string;
  readonly meta: object;
  readonly externalId?: string;
  readonly expires?: number;
  readonly enabled: boolean;
  readonly createdAt: number;
  /** Of another format than ours, so that verifiers look it up only where FOREIGN_KEYS is on. */
  readonly foreign: boolean;
}

/**
 * What `createScript` is given to create a record.
 * @param createApi whether the API is to be created too, where it is not there
 */
export function recordCall(record: NewRecord, createApi: boolean, leaseMs: number): ScriptCall {
  const { apiId, keyId, externalId, createdAt } = record;
  const { head, index, creations } = apiKeys(apiId);
  const own = recordKey(apiId, keyId);
  const owner = externalId === undefined ? own : ownerKey(apiId, externalId);
  const meta = metaText(record.meta);
  const fields = [
    ...['p', record.secretHash, 's', record.start, 'e', record.enabled ? '1' : '0', 'c', createdAt],
    ...(record.name === undefined ? [] : ['n', record.name]),
    ...(record.expires === undefined ? [] : ['x', record.expires]),
  ];
  return {
    keys: [head, index, own, metaKey(apiId, keyId), owner, creations],
    args: [
      keyId,
      createdAt,
      createApi ? '1' : '0',
      leaseMs,
      meta,
      externalId ?? '',
      record.foreign ? '1' : '0',
      CREATIONS_KEPT,
      digestOf([keyId, meta, externalId ?? '', ...fields]),
      ...fields,
    ],
  };
}

/** Made here, since Redis has only one thread for all: two creations have the same only where they are the same. */
function digestOf(content: readonly (string | number)[]): string {
  return hash('sha256', JSON.stringify(content)).slice(0, DIGEST_LENGTH);
}

/** Empty for an empty object, which is not stored. */
export function metaText(meta: object | null): string {
  const text = JSON.stringify(meta ?? {});
  return text === '{}' ? '' : text;
}
