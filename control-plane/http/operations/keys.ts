import * as asked from './key-requests.ts';
import { gets, posts } from './operation.ts';
import * as answers from './responses.ts';

/** Operations on keys, each as Fastify validates and serialises it, and as the reference documents it. */

export const createKey = posts('keys.createKey', asked.CreateKey, answers.CreatedKey, {
  summary: 'Create a key',
  description:
    'Every verifier accepts the key once this call has answered. An unknown API is created with it, unless API_AUTO_CREATE is off.',
  permission: 'api.<apiId>.create_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { apiId: 'shop', name: 'Ada', meta: { plan: 'pro' } },
});

export const importKeys = posts('keys.importKeys', asked.ImportKeys, answers.ImportResults, {
  summary: 'Import keys that were made elsewhere',
  description: 'Keys are sent as hashes only. Safe to send again: a secret that exists keeps its key.',
  permission: 'api.<apiId>.create_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: {
    apiId: 'shop',
    keys: [{ sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08', name: 'Ada' }],
  },
});

export const updateKey = posts('keys.updateKey', asked.UpdateKey, answers.Propagated, {
  summary: 'Change, disable or enable a key',
  description:
    'Answers when the change is complete: no verifier, anywhere, still answers by the state before it. An absent field is kept, null clears.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
});

export const deleteKey = posts('keys.deleteKey', asked.DeleteKey, answers.Propagated, {
  summary: 'Delete a key for good',
  description: 'Answers when the deletion is complete, as updateKey does.',
  permission: 'api.<apiId>.delete_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d' },
});

export const updateKeys = posts('keys.updateKeys', asked.UpdateKeys, answers.UpdatedKeys, {
  summary: 'Change, disable or enable many keys at once',
  description:
    'Up to 1,000 keys of an API, by their ids or by their owner. Answers once, when every change is complete, as updateKey does; a key that the API does not have is reported among the results. After 503 any of them may be changed: send it again, which is harmless. Of an owner with more keys the answer has a cursor for the next call. The owner itself cannot be changed here.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', externalId: 'ada', enabled: false },
});

export const deleteKeys = posts('keys.deleteKeys', asked.DeleteKeys, answers.DeletedKeys, {
  summary: 'Delete many keys for good',
  description: 'Chooses keys and answers as updateKeys does.',
  permission: 'api.<apiId>.delete_key',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', keyIds: ['key_0mzc9k4q8r2wfXa1Bc2d'] },
});

export const rerollKey = posts('keys.rerollKey', asked.RerollKey, answers.RerolledKey, {
  summary: 'Give a key a new secret',
  description:
    'Makes a key that has all that the old one has, draws on the same credits, and takes its place; the old one ends. Answers when that is complete, as updateKey does: the new key is accepted everywhere, and with `expiration` 0 the old one nowhere. A key can be rerolled once; after that, reroll the new one.',
  permission: 'api.<apiId>.update_key and api.<apiId>.create_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', expiration: 86_400_000 },
});

export const updateRemaining = posts('keys.updateRemaining', asked.UpdateRemaining, answers.Remaining, {
  summary: "Change a key's credits",
  description:
    'Answers when the change is complete, as updateKey does: no verifier accepts a request on credits from before it.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', op: 'increment', value: 100 },
});

const permissionsExample = { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', permissions: [{ name: 'files.read' }] };

export const addPermissions = posts('keys.addPermissions', asked.AddPermissions, answers.Permissions, {
  summary: 'Let a key do more',
  description:
    'Answers when the change is complete, as updateKey does, and with 503 where that takes longer than FENCE_WAIT_MS: then it is written, and can be sent again. A permission is its own id, and needs not be created.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
});

export const setPermissions = posts('keys.setPermissions', asked.SetPermissions, answers.Permissions, {
  summary: 'Say all that a key may do',
  description: 'As addPermissions, and takes away all others.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
});

export const removePermissions = posts(
  'keys.removePermissions',
  asked.RemovePermissions,
  answers.Propagated,
  {
    summary: 'Let a key do less',
    description:
      'Answers when the change is complete: no verifier, anywhere, still accepts the key for what was taken away. What it may not do anyway is passed over.',
    permission: 'api.<apiId>.update_key',
    errors: ['NOT_FOUND', 'CONFLICT'],
    example: permissionsExample,
  },
);

export const getKey = gets('keys.getKey', asked.GetKey, answers.UsedKey, {
  summary: 'Look at a key',
  description: 'Shows all but its secret.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND'],
});

export const whoami = posts('keys.whoami', asked.Whoami, answers.Key, {
  summary: 'Look at a key by its secret',
  description:
    'Shows all but its secret, of a disabled or expired key too. The secret is neither logged nor audited.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND'],
  example: { key: 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe' },
});

export const getVerifications = gets('keys.getVerifications', asked.GetVerifications, answers.Verifications, {
  summary: 'See how often a key was verified',
  description:
    'Hours go back two days, days go back a month. Verifiers report up to their USAGE_PERIOD_MS late.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND'],
});

export const getPropagation = gets('keys.getPropagation', asked.GetPropagation, answers.Propagated, {
  summary: 'See how far a change has come',
  description: 'For changes that answered `pending`.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
});
