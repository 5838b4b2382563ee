import { gets, posts } from './operation.ts';
import * as asked from './requests.ts';
import * as answers from './responses.ts';

/** Operations on APIs, as `keys.ts` has those on keys. */

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
