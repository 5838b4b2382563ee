import { Type } from 'typebox';
import { PERMISSION_PATTERN } from '../../../core/root-permissions.ts';
import { Id } from '../../../core/schemas/field-schemas.ts';
import { operation } from '../operation.ts';
import { Fields, Name } from '../request-parts.ts';
import { Secret } from '../response-parts.ts';
import { requireCovered } from './coverage.ts';

const PERMISSIONS_LISTED_MAX = 20;

export const createRootKey = operation({
  name: 'rootKeys.createRootKey',
  summary: 'Create a root key',
  description: 'A root key can grant only permissions that it has itself.',
  permissions: ['root.*.create_root_key'],
  request: Fields({
    name: Name,
    permissions: Type.Array(Type.String({ pattern: PERMISSION_PATTERN }), {
      minItems: 1,
      maxItems: 100,
      uniqueItems: true,
    }),
  }),
  response: Type.Object({ rootKeyId: Id('the root key'), key: Secret }),
  errors: ['CONFLICT'],
  example: { name: 'support', permissions: ['api.shop.read_key', 'api.shop.read_api'] },
  async handle(call, { rootKeys, clock }) {
    const { name, permissions } = call.request;
    requireCovered(call.caller, permissions);
    const created = await rootKeys.create(call.caller, name, permissions, clock.wallMs());
    call.note({ rootKeyId: created.rootKeyId }, { after: { name, permissions: shorten(permissions) } });
    return created;
  },
});

const shorten = (permissions: readonly string[]) =>
  permissions.length <= PERMISSIONS_LISTED_MAX
    ? permissions
    : [
        ...permissions.slice(0, PERMISSIONS_LISTED_MAX),
        `and ${permissions.length - PERMISSIONS_LISTED_MAX} more`,
      ];
