import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { storedFields } from '#shared/contract/key-record.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { checkMeta } from '../../serve/meta.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { Propagation } from '../../serve/response-parts.ts';
import { checkLimits } from '../../serve/schemas/limit-schemas.ts';
import { ApiIds, CHANGEABLE_FIELDS, IdentityView, identityNotFound, idIn, REFERENCE } from './identity.ts';

export const updateIdentity = operation({
  name: 'identities.updateIdentity',
  summary: 'Change an identity, or disable it',
  description:
    'Makes one change, however many keys the identity has. Returns when the change is complete, like updateKey: after `enabled` false, no verifier anywhere accepts any of the keys. Keys keep their own `enabled`. A caller that may not read identities gets only the id and `propagation`.',
  permissions: ['root.*.update_identity'],
  request: Fields({
    ...REFERENCE,
    enabled: Type.Optional(
      Type.Boolean({
        description:
          'false: all keys of the identity are refused, in all APIs. true: those that are enabled themselves are accepted again.',
      }),
    ),
    ...CHANGEABLE_FIELDS,
    apiIds: Type.Optional(Type.Union([ApiIds, Type.Null()])),
    waitMs: WaitMs,
  }),
  response: Type.Object({
    ...Type.Partial(IdentityView).properties,
    id: IdentityView.properties.id,
    propagation: Propagation,
  }),
  event: 'identity.updated',
  errors: ['NOT_FOUND'],
  example: { externalId: 'ada', enabled: false },
  neverShed: true,
  async handle(call, { identities, changeWriter }) {
    const { waitMs, identityId: _id, externalId: _externalId, ...patch } = call.request;
    checkMeta(patch.meta ?? {});
    checkLimits(patch.ratelimits);
    const fields = storedFields(patch);
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    const identityId = idIn(call.request);
    call.note({ identityId });
    if (patch.apiIds && (await identities.get(identityId))) await identities.checkApis(patch.apiIds);
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: identityId, fields } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    const identity = await identities.get(identityId);
    if (!propagation || !identity) throw identityNotFound();
    const mayRead = call.caller.permissions.allowsRoot('read_identity');
    return { ...(mayRead ? identity : { id: identityId }), propagation };
  },
});
