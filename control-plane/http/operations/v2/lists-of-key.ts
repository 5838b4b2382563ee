import { type Static, Type } from 'typebox';
import { List } from '../../../core/schemas/field-schemas.ts';
import { PermissionView } from '../permissions/permission.ts';
import type { Services } from '../services.ts';
import { permissionsData, RoleData, rolesData } from './role-data.ts';

/** Permissions and roles of a key in version 2 of the interface. */

export const PermissionList = List(PermissionView, { description: 'All permissions of the key itself.' });
export const RoleList = Type.Array(RoleData, { description: 'All roles of the key.' });

/** Returns permissions in this form. */
export const permissionData = ({ catalogue }: Pick<Services, 'catalogue'>, slugs: readonly string[]) =>
  permissionsData(slugs, catalogue);

/** Returns the roles of these ids in this form, without deleted roles. */
export async function roleData(
  { roles, catalogue }: Pick<Services, 'roles' | 'catalogue'>,
  ids: readonly string[],
): Promise<Static<typeof RoleList>> {
  const present = await Promise.all(ids.map((id) => roles.get(id)));
  return rolesData(
    present.filter((role) => role !== undefined),
    catalogue,
  );
}
