import { Type } from 'typebox';
import { identityIdOf } from '#shared/contract/key-format.ts';
import { storedFields } from '#shared/contract/key-record.ts';
import { checkMeta } from '../../serve/meta.ts';
import { operation } from '../../serve/operation.ts';
import { ExternalId, Fields, WaitMs } from '../../serve/request-parts.ts';
import { Propagation } from '../../serve/response-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { checkLimits } from '../../serve/schemas/limit-schemas.ts';
import { ApiIds, CHANGEABLE_FIELDS } from './identity.ts';

export const createIdentity = operation({
  name: 'identities.createIdentity',
  summary: 'Create an identity',
  description:
    'An identity stands for all keys of all APIs with its `externalId`, existing and future ones. Creating it is one change, however many keys there are: the call returns when the change is complete, like updateKey. After 503, send the call again. 409 then means that the identity exists; updateIdentity with the same fields waits until every verifier knows it.',
  permissions: ['root.*.create_identity'],
  request: Fields({
    externalId: ExternalId,
    ...CHANGEABLE_FIELDS,
    enabled: Type.Boolean({
      default: true,
      description: 'false: no key of the identity is accepted until it is enabled.',
    }),
    apiIds: Type.Optional(ApiIds),
    waitMs: WaitMs,
  }),
  response: Type.Object({ identityId: Id('the identity'), propagation: Propagation }),
  event: 'identity.created',
  errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { externalId: 'ada', meta: { plan: 'pro' } },
  async handle(call, { identities }) {
    const { externalId, waitMs, enabled, meta = {}, ratelimits = [], apiIds } = call.request;
    checkMeta(meta);
    checkLimits(ratelimits);
    const fields = { enabled, meta, ratelimits, ...(apiIds ? { apiIds } : {}) };
    call.note({ externalId, identityId: identityIdOf(externalId) });
    const record = call.recordChange(storedFields(fields));
    return identities.create({ externalId, ...fields }, waitMs, ({ sequence }) => record({ sequence }));
  },
});
