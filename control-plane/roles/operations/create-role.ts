import { Type } from 'typebox';
import { storedFields } from '#shared/contract/key-record.ts';
import { auditView } from '../../audit/audit-event.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { RoleName } from '../../serve/schemas/role-schemas.ts';
import { slugsIn } from '../../serve/schemas/slug-schemas.ts';
import { RolePermissions } from './role.ts';

const DESCRIPTION = Type.String({ minLength: 1, maxLength: 512, description: 'What it is for.' });

export const createRole = operation({
  name: 'permissions.createRole',
  summary: 'Create a role',
  description: 'A role is one list of permissions for any number of keys of all APIs.',
  permissions: ['root.*.create_role'],
  request: Fields({
    name: RoleName,
    description: Type.Optional(DESCRIPTION),
    permissions: Type.Optional(RolePermissions),
  }),
  response: Type.Object({ roleId: Id('the role') }),
  event: 'role.created',
  errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { name: 'editor', description: 'Writes articles', permissions: ['articles.write'] },
  async handle(call, { roles }) {
    const { name, permissions: slugs = [], ...rest } = call.request;
    const permissions = slugsIn(slugs);
    const roleId = await roles.create({ name, ...rest, permissions });
    call.note({ roleId }, { after: auditView(storedFields({ name, permissions })) });
    return { roleId };
  },
});
