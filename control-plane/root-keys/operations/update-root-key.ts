import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Propagation } from '../../serve/response-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { requireCovered } from '../coverage.ts';

export const updateRootKey = operation({
  name: 'rootKeys.updateRootKey',
  summary: 'Disable or enable a root key',
  description:
    'A disabled root key is refused from the next call on, and so is every root key that descends from it, until it is enabled again. Returns when that is complete, like updateKey: no verifier anywhere accepts it.',
  permissions: ['root.*.update_root_key'],
  request: Fields({
    rootKeyId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$' }),
    enabled: Type.Boolean(),
  }),
  response: Type.Object({
    rootKeyId: Id('the root key'),
    enabled: Type.Boolean(),
    propagation: Propagation,
  }),
  event: 'root_key.disabled',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
  neverShed: true,
  async handle(call, { rootKeys, publishedRootKeys }) {
    const { rootKeyId, enabled } = call.request;
    const rootKey = await rootKeys.get(rootKeyId);
    if (!rootKey) throw new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    requireCovered(call.caller, rootKey.permissions);
    await rootKeys.setEnabled(rootKeyId, enabled);
    call.note({}, { before: { enabled: rootKey.enabled }, after: { enabled } });
    call.giveTurnBack();
    call.recordWrite();
    return { rootKeyId, enabled, propagation: await publishedRootKeys.publish() };
  },
});
