import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Count, Propagation } from '../../serve/response-parts.ts';
import { requireCovered } from '../coverage.ts';

export const deleteRootKey = operation({
  name: 'rootKeys.deleteRootKey',
  summary: 'Delete a root key for good',
  description:
    'It is refused from the next call on. All root keys that descend from it are deleted too, because they are refused without it. Returns when that is complete, like updateRootKey.',
  permissions: ['root.*.delete_root_key'],
  request: Fields({ rootKeyId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$' }) }),
  response: Type.Object({
    deletedRootKeys: Count('Number of root keys that this call deleted.'),
    propagation: Propagation,
  }),
  event: 'root_key.deleted',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d' },
  neverShed: true,
  async handle(call, { rootKeys, publishedRootKeys }) {
    const { rootKeyId } = call.request;
    const notFound = new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    const rootKey = await rootKeys.get(rootKeyId);
    if (!rootKey) throw notFound;
    requireCovered(call.caller, rootKey.permissions);
    const deletedRootKeys = await rootKeys.delete(rootKeyId);
    if (deletedRootKeys === 0) throw notFound; // another call was first
    const { name, enabled } = rootKey;
    call.note({}, { before: { name, enabled }, after: { deletedRootKeys } });
    call.giveTurnBack();
    call.recordWrite();
    return { deletedRootKeys, propagation: await publishedRootKeys.publish() };
  },
});
