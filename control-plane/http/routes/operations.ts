import type { TSchema } from 'typebox';
import type { ErrorCode } from '#shared/errors.ts';
import * as asked from './requests.ts';
import * as answers from './responses.ts';

/** Each operation as Fastify validates and serialises it, and as the reference documents it. */

export const createKey = posts('keys.createKey', asked.CreateKey, answers.CreatedKey, {
  summary: 'Create a key',
  description:
    'The key works at every verifier from this answer on. An unknown API is created with it, unless API_AUTO_CREATE is off.',
  permission: 'api.<apiId>.create_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop', name: 'Ada', meta: { plan: 'pro' } },
});

export const importKeys = posts('keys.importKeys', asked.ImportKeys, answers.ImportResults, {
  summary: 'Import keys that were made elsewhere',
  description: 'Only hashes travel. Safe to send again: a secret that is there keeps its key.',
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
    'Answers when the change is complete: when no verifier, anywhere, still answers by what was before. Absent keeps, null clears.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
});

export const deleteKey = posts('keys.deleteKey', asked.DeleteKey, answers.Propagated, {
  summary: 'Delete a key for good',
  description: 'Answers when it is complete, as updateKey does.',
  permission: 'api.<apiId>.delete_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d' },
});

export const getKey = gets('keys.getKey', asked.GetKey, answers.UsedKey, {
  summary: 'Look at a key',
  description: 'Never its secret.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND'],
});

export const getVerifications = gets('keys.getVerifications', asked.GetVerifications, answers.Verifications, {
  summary: 'See how often a key was verified',
  description:
    'By the hour for two days, by the day for a month; as verifiers reported it, up to their USAGE_PERIOD_MS late.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND'],
});

export const getPropagation = gets('keys.getPropagation', asked.GetPropagation, answers.Propagated, {
  summary: 'See how far a change has come',
  description: 'For changes that answered `pending`.',
  permission: 'api.<apiId>.read_key',
  errors: ['NOT_FOUND', 'CONFLICT'],
});

export const listKeys = gets('apis.listKeys', asked.ListKeys, answers.KeyPage, {
  summary: 'List the keys of an API',
  description:
    'In order of creation; following the cursors visits each key once. Under a filter a page may be short and still have a cursor.',
  permission: 'api.<apiId>.read_key and api.<apiId>.read_api',
  errors: ['NOT_FOUND'],
});

export const createApi = posts('apis.createApi', asked.CreateApi, answers.CreatedApi, {
  summary: 'Create an API',
  description: 'An API is what keys belong to. One comes into being with its first key, too.',
  permission: 'api.<apiId>.create_api',
  errors: ['CONFLICT'],
  example: { name: 'Shop', apiId: 'shop' },
});

export const getApi = gets('apis.getApi', asked.GetApi, answers.Api, {
  summary: 'Look at an API',
  description: 'Its name and when it was created.',
  permission: 'api.<apiId>.read_api',
  errors: ['NOT_FOUND'],
});

export const listApis = gets('apis.listApis', asked.ListApis, answers.ApiPage, {
  summary: 'List APIs',
  description: 'Those that the root key may read; a page may be short and still have a cursor.',
  permission: 'api.<apiId>.read_api',
  errors: [],
});

export const deleteApi = posts('apis.deleteApi', asked.DeleteApi, answers.Propagated, {
  summary: 'Delete an API with all its keys',
  description:
    'Answers when it is complete, as updateKey does. Its id is free again when its keys are swept.',
  permission: 'api.<apiId>.delete_api',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop' },
});

export const createRootKey = posts('rootKeys.createRootKey', asked.CreateRootKey, answers.CreatedRootKey, {
  summary: 'Create a root key',
  description: 'Nobody can hand out more than they may do themselves.',
  permission: 'root.*.create_root_key',
  errors: ['CONFLICT'],
  example: { name: 'support', permissions: ['api.shop.read_key', 'api.shop.read_api'] },
});

export const updateRootKey = posts('rootKeys.updateRootKey', asked.UpdateRootKey, answers.UpdatedRootKey, {
  summary: 'Disable or enable a root key',
  description: 'It is refused from the next call on.',
  permission: 'root.*.update_root_key',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
});

export const listRootKeys = gets('rootKeys.listRootKeys', asked.ListRootKeys, answers.RootKeyList, {
  summary: 'List root keys',
  description: 'Never their secrets. Those of the configuration are not among them.',
  permission: 'root.*.read_root_key',
  errors: [],
});

export const listEvents = gets('audit.listEvents', asked.ListEvents, answers.EventPage, {
  summary: 'List what was done, or refused, over this interface',
  description: 'The latest first. Under a filter a page may be short and still have a cursor.',
  permission: 'root.*.read_audit',
  errors: [],
});

export const listVerifiers = gets('fleet.listVerifiers', asked.ListVerifiers, answers.VerifierPage, {
  summary: 'List the verifiers',
  description: 'As each reported itself lately, in order of start.',
  permission: 'root.*.read_fleet',
  errors: [],
});

interface Said {
  readonly summary: string;
  readonly description: string;
  /** What the root key needs. */
  readonly permission: string;
  /** What it can end in besides what any call can. */
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
    operationId: method,
    summary: said.summary,
    description: `${said.description}\n\nNeeds the permission \`${said.permission}\`.`,
    'x-errors': said.errors,
    response: { 200: answer },
  };
}
