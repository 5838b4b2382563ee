import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { propagationExample } from '../../serve/response-parts.ts';
import { CHANGES, keyIdExample, storedChanges } from '../key-answer.ts';
import { changeMany, ManyResults, manyResults } from './change-many.ts';
import { CHOICE, choose, MANY_KEYS_BYTES_MAX } from './choice.ts';

const { externalId: _externalId, ownerId: _alias, ...changes } = CHANGES;

export const updateKeys = operation({
  name: 'keys.updateKeys',
  summary: 'Change, disable or enable many keys',
  description:
    'Changes up to 1,000 keys of an API, selected by their ids or by their `externalId`. Returns once, when every change is complete, like updateKey; keys that the API does not have are reported among the results. After 503, any of the keys may have been changed: send the call again, which is harmless. If the identity has more keys, the response has a cursor for the next call. The `externalId` itself cannot be changed here.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({
    ...CHOICE,
    enabled: Type.Optional(
      Type.Boolean({ description: 'false: the keys are refused. true: they are accepted again.' }),
    ),
    ...changes,
    waitMs: WaitMs,
  }),
  response: ManyResults('updated', {
    results: [
      { result: 'updated', keyId: keyIdExample, sequence: 7 },
      { result: 'refused', keyId: 'key_none', code: 'NOT_FOUND', message: 'key key_none not found' },
    ],
    propagation: { ...propagationExample, waitedMs: 4 },
  }),
  event: 'key.updated',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', externalId: 'ada', enabled: false },
  neverShed: true,
  bodyBytesMax: MANY_KEYS_BYTES_MAX,
  async handle(call, services) {
    const { apiId, keyIds, externalId, ownerId, cursor, waitMs, ...changes } = call.request;
    const fields = await storedChanges(services.roles, changes);
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    const choice = await choose(call, services);
    return manyResults('updated', await changeMany(call, services, choice, fields, waitMs), choice);
  },
});
