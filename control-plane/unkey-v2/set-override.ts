import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { generateId } from '#shared/contract/key-format.ts';
import { WILDCARDS_MAX } from '#shared/redis/namespace-record.ts';
import { Id } from '../core/schemas/field-schemas.ts';
import { Fields } from '../http/operations/request-parts.ts';
import { onceComplete } from './envelope.ts';
import { operationV2 } from './operation-v2.ts';
import { OVERRIDE_FIELDS } from './override.ts';

export const setOverride = operationV2({
  name: 'ratelimit.setOverride',
  summary: 'Give identifiers another limit',
  description:
    'Replaces the limit that calls of `ratelimit.limit` bring, for one identifier or a pattern. Returns when the change is complete: no verifier anywhere goes by the earlier limit. A repeated call keeps the id.',
  permissions: ['root.*.set_override'],
  request: Fields(OVERRIDE_FIELDS),
  data: Type.Object({ overrideId: Id('the override') }),
  example: { namespace: 'email.send', identifier: 'premium_*', limit: 1000, duration: 60_000 },
  errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
  async handle(call, { clock, overrides }) {
    const { namespace, identifier, limit, duration } = call.request;
    if (identifier.split('*').length - 1 > WILDCARDS_MAX)
      throw new ApiError(
        'BAD_REQUEST',
        `identifier: must have at most ${WILDCARDS_MAX} *; use a broader pattern`,
      );
    call.note({}, { after: { namespace, identifier, limit, duration } });
    let overrideId = '';
    const propagation = await overrides.change(
      namespace,
      (before) => {
        const present = before.find((override) => override.identifier === identifier);
        overrideId = present?.id ?? generateId('override', clock.wallMs());
        const override = { id: overrideId, identifier, limit, duration };
        return present ? before.map((each) => (each === present ? override : each)) : [...before, override];
      },
      call.recordNotedChange(),
    );
    if (propagation) onceComplete(propagation);
    return { data: { overrideId } };
  },
});
