import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { propagationExample } from '../../serve/response-parts.ts';
import { keyIdExample } from '../key-answer.ts';
import { deleteMany, ManyResults, manyResults } from './change-many.ts';
import { CHOICE, choose, MANY_KEYS_BYTES_MAX } from './choice.ts';

export const deleteKeys = operation({
  name: 'keys.deleteKeys',
  summary: 'Delete many keys for good',
  description: 'Selects keys and returns like updateKeys.',
  permissions: ['api.<apiId>.delete_key'],
  request: Fields({ ...CHOICE, waitMs: WaitMs }),
  response: ManyResults('deleted', {
    results: [{ result: 'deleted', keyId: keyIdExample, sequence: 8 }],
    propagation: { ...propagationExample, sequence: 8, waitedMs: 4 },
  }),
  event: 'key.deleted',
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', keyIds: [keyIdExample] },
  neverShed: true,
  bodyBytesMax: MANY_KEYS_BYTES_MAX,
  async handle(call, services) {
    const choice = await choose(call, services);
    return manyResults('deleted', await deleteMany(call, services, choice, call.request.waitMs), choice);
  },
});
