import { Fields } from '../http/operations/request-parts.ts';
import { operationV2 } from './operation-v2.ts';
import { Identifier, Namespace, OverrideData, overrideData, overrideNotFound } from './override.ts';

export const getOverride = operationV2({
  name: 'ratelimit.getOverride',
  summary: 'Show an override',
  description: 'Finds the override by its identifier, as it was set.',
  permissions: ['root.*.read_override'],
  request: Fields({ namespace: Namespace, identifier: Identifier }),
  data: OverrideData,
  example: { namespace: 'email.send', identifier: 'premium_*' },
  errors: ['NOT_FOUND'],
  async handle({ request: { namespace, identifier } }, { overrides }) {
    const all = await overrides.list(namespace);
    const override = all.find((each) => each.identifier === identifier);
    if (!override) throw overrideNotFound();
    return { data: overrideData(override) };
  },
});
