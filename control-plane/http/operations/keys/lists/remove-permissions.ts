import { slugsIn } from '../../../../core/schemas/slug-schemas.ts';
import { operation } from '../../operation.ts';
import { Fields, WaitMs } from '../../request-parts.ts';
import { PropagationResponse } from '../../response-parts.ts';
import { changeList } from './list-change.ts';
import { permissionsExample, permissionsOfKey } from './permission-list.ts';

export const removePermissions = operation({
  name: 'keys.removePermissions',
  summary: 'Let a key do less',
  description:
    'Answers when the change is complete: no verifier, anywhere, still accepts the key for what was taken away. What it may not do anyway is passed over.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...permissionsOfKey('What the key may do no longer.'), waitMs: WaitMs }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, services) {
    const removals = new Set(slugsIn(call.request.permissions));
    const change = (present: readonly string[]) => present.filter((slug) => !removals.has(slug));
    const { propagation } = await changeList(call, services, 'permissions', change);
    return { propagation };
  },
});
