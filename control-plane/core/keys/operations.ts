import { importOperations } from './operations/import-keys.ts';
import { listKeys, oneKeyOperations } from './operations/keys.ts';
import { listOperations } from './operations/lists.ts';
import { deleteAllKeys, manyKeysOperations } from './operations/many-keys.ts';
import { rerollOperations } from './operations/reroll-key.ts';

/** Without those that ask other subjects. */
export const keyOperations = [
  ...oneKeyOperations,
  ...rerollOperations,
  ...importOperations,
  ...manyKeysOperations,
  ...listOperations,
] as const;

/** The operations on all keys of an API, which the reference shows with those on APIs. */
export const keysOfApiOperations = [listKeys, deleteAllKeys] as const;
