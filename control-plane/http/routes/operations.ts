import type { TSchema } from 'typebox';
import type { ErrorCode } from '#shared/errors.ts';
import * as asked from './requests.ts';
import * as answers from './responses.ts';

/** Each operation as Fastify validates and serialises it, and as the reference documents it. */

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

export const getApiVerifications = gets(
  'apis.getVerifications',
  asked.GetApiVerifications,
  answers.ApiVerifications,
  {
    id: 'getApiVerifications',
    summary: 'See how often keys of an API were verified',
    description:
      'By the hour or the day as keys.getVerifications, of all keys together, deleted ones too; or by the tags that verifyKey was given, by the day. Verifiers report up to their USAGE_PERIOD_MS late.',
    permission: 'api.<apiId>.read_key and api.<apiId>.read_api',
    errors: ['NOT_FOUND'],
  },
);

export const getPropagation = gets('keys.getPropagation', asked.GetPropagation, answers.Propagated, {
  summary: 'See how far a change has come',
  description: 'For changes that answered `pending`.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
});

export const listKeys = gets('apis.listKeys', asked.ListKeys, answers.KeyPage, {
  summary: 'List the keys of an API',
  description:
    'In order of creation; following the cursors visits each key once. With a filter, a page may be short and still have a cursor.',
  permission: 'api.<apiId>.read_key and api.<apiId>.read_api',
  errors: ['NOT_FOUND'],
});

export const createApi = posts('apis.createApi', asked.CreateApi, answers.CreatedApi, {
  summary: 'Create an API',
  description: 'Keys belong to an API. The first key of an unknown API creates it too.',
  permission: 'api.<apiId>.create_api',
  errors: ['CONFLICT'],
  example: { name: 'Shop', apiId: 'shop' },
});

export const updateApi = posts('apis.updateApi', asked.UpdateApi, answers.UpdatedApi, {
  summary: 'Change the name of an API and the defaults of its new keys',
  description: 'An absent field is kept, null clears. Keys that exist stay as they are.',
  permission: 'api.<apiId>.update_api',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', defaultPrefix: 'shop' },
});

export const getApi = gets('apis.getApi', asked.GetApi, answers.Api, {
  summary: 'Look at an API',
  description: 'Its name, the defaults of its new keys, and when it was created.',
  permission: 'api.<apiId>.read_api',
  errors: ['NOT_FOUND'],
});

export const listApis = gets('apis.listApis', asked.ListApis, answers.ApiPage, {
  summary: 'List APIs',
  description: 'Lists the APIs that the root key may read. A page may be short and still have a cursor.',
  permission: 'api.<apiId>.read_api',
  errors: [],
});

export const deleteApi = posts('apis.deleteApi', asked.DeleteApi, answers.Propagated, {
  summary: 'Delete an API with all its keys',
  description:
    'Answers when the deletion is complete, as updateKey does. The id is free again once its keys are removed.',
  permission: 'api.<apiId>.delete_api',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop' },
});

export const deleteAllKeys = posts('apis.deleteKeys', asked.DeleteAllKeys, answers.DeletedAllKeys, {
  id: 'deleteAllKeys',
  summary: 'Delete all keys of an API for good',
  description:
    'The API stays. Answers when every deletion is complete, as updateKey does. Where there are so many keys that it takes longer than FENCE_WAIT_MS, it answers 503: send it again for the others.',
  permission: 'api.<apiId>.delete_key',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
});

export const createRootKey = posts('rootKeys.createRootKey', asked.CreateRootKey, answers.CreatedRootKey, {
  summary: 'Create a root key',
  description: 'A root key can give another one only permissions that it has itself.',
  permission: 'root.*.create_root_key',
  errors: ['CONFLICT'],
  example: { name: 'support', permissions: ['api.shop.read_key', 'api.shop.read_api'] },
});

export const updateRootKey = posts('rootKeys.updateRootKey', asked.UpdateRootKey, answers.UpdatedRootKey, {
  summary: 'Disable or enable a root key',
  description: 'A disabled root key is refused from the next call on.',
  permission: 'root.*.update_root_key',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
});

export const listRootKeys = gets('rootKeys.listRootKeys', asked.ListRootKeys, answers.RootKeyList, {
  summary: 'List root keys',
  description: 'Shows all but their secrets. Root keys of the configuration are not listed.',
  permission: 'root.*.read_root_key',
  errors: [],
});

export const listEvents = gets('audit.listEvents', asked.ListEvents, answers.EventPage, {
  summary: 'List calls that changed something or were refused',
  description: 'The latest come first. With a filter, a page may be short and still have a cursor.',
  permission: 'root.*.read_audit',
  errors: [],
});

export const listVerifiers = gets('fleet.listVerifiers', asked.ListVerifiers, answers.VerifierPage, {
  summary: 'List the verifiers',
  description: 'Shows the latest report of each, in order of start.',
  permission: 'root.*.read_fleet',
  errors: [],
});

interface Said {
  /** The operation's id, where its method's name is also another's. */
  readonly id?: string;
  readonly summary: string;
  readonly description: string;
  /** Permission that the root key needs. */
  readonly permission: string;
  /** Errors of this operation besides those of every call. */
  readonly errors: readonly ErrorCode[];
}

function posts<Body extends TSchema, Answer extends TSchema>(
  name: string,
  body: Body,
  answer: Answer,
  said: Said & { readonly example: object },
) {
  return { body, ...about(name, answer, said), 'x-example': said.example };
}

function gets<Query extends TSchema, Answer extends TSchema>(
  name: string,
  querystring: Query,
  answer: Answer,
  said: Said,
) {
  return { querystring, ...about(name, answer, said) };
}

function about<Answer extends TSchema>(name: string, answer: Answer, said: Said) {
  const [service = '', method = ''] = name.split('.');
  return {
    tags: [service],
    operationId: said.id ?? method,
    summary: said.summary,
    description: `${said.description}\n\nNeeds the permission \`${said.permission}\`.`,
    'x-errors': said.errors,
    response: { 200: answer },
  };
}
