import { Fields } from '../http/operations/request-parts.ts';
import { EmptyData, nothingOnceDeleted } from './envelope.ts';
import { operationV2 } from './operation-v2.ts';
import { Identifier, Namespace, overrideNotFound } from './override.ts';

export const deleteOverride = operationV2({
  name: 'ratelimit.deleteOverride',
  summary: 'Delete an override',
  description: 'From then on the limit that calls bring applies again. Returns when the change is complete.',
  permissions: ['root.*.delete_override'],
  request: Fields({ namespace: Namespace, identifier: Identifier }),
  data: EmptyData,
  example: { namespace: 'email.send', identifier: 'premium_*' },
  errors: ['NOT_FOUND'],
  async handle(call, { overrides }) {
    const { namespace, identifier } = call.request;
    call.note({}, { before: { namespace, identifier } });
    const propagation = await overrides.change(
      namespace,
      (before) => {
        const others = before.filter((override) => override.identifier !== identifier);
        return others.length < before.length ? others : undefined;
      },
      call.recordNotedChange(),
    );
    if (!propagation) throw overrideNotFound();
    return nothingOnceDeleted({ propagation });
  },
});
