import { Type } from 'typebox';
import { SLUG } from '#shared/slugs.ts';
import { Id, List } from '../../core/field-schemas.ts';
import { gets, posts } from './operation.ts';
import { strict, WaitMs } from './request-parts.ts';
import { Propagated } from './responses.ts';

/** Operations on the catalogue of permissions, with their schemas. */

const Slug = (description: string) => Type.String({ pattern: SLUG.source, description });
const PermissionId = Slug('The permission: its slug.');
const Permission = Type.Object({
  id: Id('the permission: its slug'),
  name: Type.String({ description: 'Its name.' }),
  slug: Type.String({ description: 'The permission itself, by which keys and roles have it.' }),
  description: Type.Optional(Type.String({ description: 'What it is for.' })),
});
export const PermissionList = List(Permission);
const CreatedPermission = Type.Object({ permissionId: Id('the permission: its slug') });

export const createPermission = posts(
  'permissions.createPermission',
  Type.Object(
    {
      name: Type.String({
        minLength: 1,
        maxLength: 256,
        description: 'For people. Where there is no `slug` it is that too, and must be of that form.',
      }),
      slug: Type.Optional(Slug('The permission itself: letters, digits and `_:.*-`.')),
      description: Type.Optional(Type.String({ maxLength: 512, description: 'What it is for.' })),
    },
    strict,
  ),
  CreatedPermission,
  {
    summary: 'Put a permission into the catalogue',
    description:
      'The catalogue is for people: it names permissions and says what they are for. Keys and roles may have permissions that are not in it.',
    permission: 'root.*.create_permission',
    errors: ['CONFLICT'],
    example: { name: 'files.write', description: 'Writes files' },
  },
);

export const getPermission = gets(
  'permissions.getPermission',
  Type.Object({ permissionId: PermissionId }, strict),
  Permission,
  {
    summary: 'Look at a permission',
    description: 'Shows what the catalogue says of it.',
    permission: 'root.*.read_permission',
    errors: ['NOT_FOUND'],
  },
);

export const listPermissions = gets('permissions.listPermissions', Type.Object({}, strict), PermissionList, {
  summary: 'List the catalogue of permissions',
  description: 'Shows them in order of creation.',
  permission: 'root.*.read_permission',
  errors: [],
});

export const deletePermission = posts(
  'permissions.deletePermission',
  Type.Object({ permissionId: PermissionId, waitMs: Type.Optional(WaitMs) }, strict),
  Propagated,
  {
    summary: 'Delete a permission from the catalogue, and from all roles',
    description:
      'Answers when it is complete, as updateKey does: no verifier, anywhere, still lets a key do it because of a role. Keys that have it themselves keep it; keys.removePermissions takes it from them.',
    permission: 'root.*.delete_permission',
    errors: ['NOT_FOUND'],
    example: { permissionId: 'files.write' },
  },
);
