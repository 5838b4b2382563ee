import { type Static, Type } from 'typebox';
import { Id, List } from '../../../core/schemas/field-schemas.ts';
import { PermissionView, permissionView } from '../permissions/permission.ts';
import type { Services } from '../services.ts';

/** Permissions and roles of a key as the second generation of the interface has them. */

export const PermissionList = List(PermissionView, { description: 'All that the key itself may do now.' });
export const RoleList = List(
  Type.Object({
    id: Id('the role'),
    name: Type.String({ description: 'Its name.' }),
    description: Type.Optional(Type.String({ description: 'What it is for.' })),
  }),
  { description: 'All roles that the key has now.' },
);

/** Returns permissions as answers show them, with their names from the catalogue; one that it lacks is called as itself. */
export async function permissionData(
  { catalogue }: Pick<Services, 'catalogue'>,
  slugs: readonly string[],
): Promise<Static<typeof PermissionList>> {
  return Promise.all(
    slugs.map(async (slug) => permissionView((await catalogue.get(slug)) ?? { slug, name: slug })),
  );
}

/** Returns the roles of these ids as answers show them, without those that were deleted. */
export async function roleData(
  { roles }: Pick<Services, 'roles'>,
  ids: readonly string[],
): Promise<Static<typeof RoleList>> {
  const present = await Promise.all(ids.map((id) => roles.get(id)));
  return present.flatMap((role) => {
    if (!role) return [];
    const { id, name, description } = role;
    return [{ id, name, ...(description === undefined ? {} : { description }) }];
  });
}
