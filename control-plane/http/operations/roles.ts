import { Type } from 'typebox';
import { Id, List } from '../../core/field-schemas.ts';
import { GivenRoles, RoleId, RoleName } from '../../core/role-schemas.ts';
import { GivenSlugs } from '../../core/slug-schemas.ts';
import { GetPropagation } from './key-requests.ts';
import { gets, posts } from './operation.ts';
import { KeyId, strict, WaitMs } from './request-parts.ts';
import { Permissions, Propagated } from './responses.ts';

/** Operations on roles, and on the roles of keys, with their schemas. */

const Role = Type.Object({
  id: Id('the role'),
  name: Type.String({ description: 'Its name.' }),
  description: Type.Optional(Type.String({ description: 'What it is for.' })),
  permissions: List(Type.Object(Permissions.items.properties), { description: 'What its keys may do.' }),
});
export const RoleList = List(Role);
export const CreatedRole = Type.Object({ roleId: Id('the role') });
const KeyRoles = Type.Array(
  Type.Object({ id: Id('the role'), name: Type.String({ description: 'Its name.' }) }),
  {
    description: 'All roles that the key has now.',
  },
);
const granted = GivenSlugs({ description: 'What its keys may do, and nothing else.' });
const roleId = 'role_0mzc9k4q8r2wfXa1Bc2d';

export const createRole = posts(
  'permissions.createRole',
  Type.Object(
    {
      name: RoleName,
      description: Type.Optional(
        Type.String({ minLength: 1, maxLength: 512, description: 'What it is for.' }),
      ),
      permissions: Type.Optional(granted),
    },
    strict,
  ),
  CreatedRole,
  {
    summary: 'Create a role',
    description: 'A role is one list of permissions for any number of keys of all APIs.',
    permission: 'root.*.create_role',
    errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
    example: { name: 'editor', description: 'Writes articles', permissions: ['articles.write'] },
  },
);

export const getRole = gets('permissions.getRole', Type.Object({ roleId: RoleId }, strict), Role, {
  summary: 'Look at a role',
  description: 'Shows what its keys may do.',
  permission: 'root.*.read_role',
  errors: ['NOT_FOUND'],
});

export const listRoles = gets('permissions.listRoles', Type.Object({}, strict), RoleList, {
  summary: 'List all roles',
  description: 'Shows them in order of creation.',
  permission: 'root.*.read_role',
  errors: [],
});

export const setRolePermissions = posts(
  'permissions.setRolePermissions',
  Type.Object({ roleId: RoleId, permissions: granted, waitMs: Type.Optional(WaitMs) }, strict),
  Propagated,
  {
    summary: 'Say all that the keys of a role may do',
    description:
      'One change, however many keys have the role. Answers when it is complete, as updateKey does: no verifier, anywhere, still answers by what the role was.',
    permission: 'root.*.update_role',
    errors: ['NOT_FOUND', 'VERIFIERS_TOO_OLD'],
    example: { roleId, permissions: ['articles.read', 'articles.write'] },
  },
);

export const deleteRole = posts(
  'permissions.deleteRole',
  Type.Object({ roleId: RoleId, waitMs: Type.Optional(WaitMs) }, strict),
  Propagated,
  {
    summary: 'Delete a role',
    description:
      'Answers when it is complete, as updateKey does. Keys that have the role keep its id, which lets them do nothing and is never used again.',
    permission: 'root.*.delete_role',
    errors: ['NOT_FOUND'],
    example: { roleId },
  },
);

export const getRolePropagation = gets(
  'permissions.getRolePropagation',
  Type.Object({ roleId: RoleId, sequence: GetPropagation.properties.sequence }, strict),
  Propagated,
  {
    summary: "See how far a role's change has come",
    description: 'For changes that answered `pending`.',
    permission: 'root.*.read_role',
    errors: ['NOT_FOUND', 'CONFLICT'],
  },
);

const aboutRoles = (description: string) =>
  Type.Object({ keyId: KeyId, roles: GivenRoles({ description }) }, strict);
const rolesExample = { keyId: 'key_0mzc9k4q8r2wfXa1Bc2d', roles: [{ name: 'editor' }] };

export const addRoles = posts('keys.addRoles', aboutRoles('Roles that the key gets.'), KeyRoles, {
  summary: 'Give a key roles',
  description:
    'Answers when the change is complete, as updateKey does, and with 503 where that takes longer than FENCE_WAIT_MS: then it is written, and can be sent again.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
});

export const setRoles = posts('keys.setRoles', aboutRoles('All roles that the key is to have.'), KeyRoles, {
  summary: 'Say all roles of a key',
  description: 'As addRoles, and takes away all others.',
  permission: 'api.<apiId>.update_key',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
});

export const removeRoles = posts(
  'keys.removeRoles',
  Type.Object(
    { ...aboutRoles('Roles that the key loses.').properties, waitMs: Type.Optional(WaitMs) },
    strict,
  ),
  Propagated,
  {
    summary: 'Take roles from a key',
    description:
      'Answers when the change is complete: no verifier, anywhere, still accepts the key for what only they let it do. Roles that it lacks are passed over.',
    permission: 'api.<apiId>.update_key',
    errors: ['NOT_FOUND', 'CONFLICT'],
    example: rolesExample,
  },
);
