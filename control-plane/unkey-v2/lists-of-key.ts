import { type Static, Type } from 'typebox';
import { List } from '../core/schemas/field-schemas.ts';
import { keyIdExample } from '../http/operations/keys/key.ts';
import { PermissionView } from '../http/operations/permissions/permission.ts';
import { Fields, KeyId } from '../http/operations/request-parts.ts';
import type { Services } from '../http/operations/services.ts';
import { GivenPermissions, GivenRoleNames } from './key-data.ts';
import { permissionsData, RoleData, rolesData } from './role-data.ts';

/** Permissions and roles of a key in version 2 of the interface. */

const PermissionList = List(PermissionView, { description: 'All permissions of the key itself.' });
const RoleList = Type.Array(RoleData, { description: 'All roles of the key.' });

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

interface WithId {
  readonly id: string;
}
const idsOf = (items: readonly WithId[]) => items.map(({ id }) => id);
type WithServices = { readonly services: Services };

/** The face of an operation that changes a key's permissions and answers with all of them. */
export const permissionsFace = {
  request: Fields({ keyId: KeyId, permissions: GivenPermissions }),
  data: PermissionList,
  example: { keyId: keyIdExample, permissions: ['files.read'] },
  toRequest: <Body>(body: Body) => body,
  toAnswer: async (permissions: readonly WithId[], { services }: WithServices) => ({
    data: await permissionData(services, idsOf(permissions)),
  }),
};

/** The face of an operation that changes a key's roles and answers with all of them. */
export const rolesFace = {
  request: Fields({ keyId: KeyId, roles: GivenRoleNames }),
  data: RoleList,
  example: { keyId: keyIdExample, roles: ['editor'] },
  toRequest: <Body>(body: Body) => body,
  toAnswer: async (roles: readonly WithId[], { services }: WithServices) => ({
    data: await roleData(services, idsOf(roles)),
  }),
};
