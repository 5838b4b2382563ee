import { explainOperations } from '../../subjects/examine/explain-key.ts';
import { listApiRefusals, listRefusedKeys, refusalOperations } from '../../subjects/examine/operations.ts';
import { importOperations } from './operations/import-keys.ts';
import { listKeys, oneKeyOperations } from './operations/keys.ts';
import { listOperations } from './operations/lists.ts';
import { deleteAllKeys, manyKeysOperations } from './operations/many-keys.ts';
import { rerollOperations } from './operations/reroll-key.ts';

export const keyOperations = [
  ...oneKeyOperations,
  ...explainOperations,
  ...refusalOperations,
  ...rerollOperations,
  ...importOperations,
  ...manyKeysOperations,
  ...listOperations,
] as const;

/** The operations on all keys of an API, which the reference shows with those on APIs. */
export const keysOfApiOperations = [listKeys, listRefusedKeys, listApiRefusals, deleteAllKeys] as const;
