import { type Static, Type } from 'typebox';
import { Id, List } from '../core/schemas/field-schemas.ts';
import { ROLE_ID, ROLE_NAME } from '../core/schemas/role-schemas.ts';
import { folded } from '../core/search.ts';
import { PermissionView, permissionView } from '../http/operations/permissions/permission.ts';
import { roleNotFound } from '../http/operations/permissions/role.ts';
import type { Catalogue } from '../redis/shared-log/permissions.ts';
import type { Role, Roles } from '../redis/shared-log/roles.ts';

/** Roles and permissions in version 2 of the interface. */

export const PermissionsData = List(PermissionView);
export const RoleData = Type.Object({
  id: Id('the role'),
  name: Type.String({ description: 'Its name.' }),
  description: Type.Optional(Type.String({ description: 'What it is for.' })),
  permissions: PermissionsData,
});
export const RoleReference = Type.String({
  ...ROLE_NAME,
  description: "A role's id, or its name. Where it is one role's id and the name of another, the id counts.",
});

/** Number of entries up to which each is read alone; for more, the whole catalogue, 1,000 at most, is read. */
const READ_ALONE_MAX = 20;

/**
 * Returns permissions in this form, with their catalogue entries; for a permission without an entry, the slug
 * is also the name.
 */
export async function permissionsData(
  slugs: readonly string[],
  catalogue: Catalogue,
): Promise<Static<typeof PermissionsData>> {
  const isFew = slugs.length <= READ_ALONE_MAX;
  const listed = isFew ? await Promise.all(slugs.map((slug) => catalogue.get(slug))) : await catalogue.list();
  const entries = new Map(listed.flatMap((entry) => (entry ? [[entry.slug, entry]] : [])));
  return slugs.map((slug) => permissionView(entries.get(slug) ?? { slug, name: slug }));
}

/** Translates roles from an operation's response into this form. */
export async function rolesData(
  roles: readonly Role[],
  catalogue: Catalogue,
): Promise<Static<typeof RoleData>[]> {
  const slugs = [...new Set(roles.flatMap(({ permissions }) => permissions.map(({ id }) => id)))];
  const data = new Map((await permissionsData(slugs, catalogue)).map((entry) => [entry.slug, entry]));
  return roles.map((role) => ({
    ...role,
    permissions: role.permissions.map(({ id }) => data.get(id) ?? permissionView({ slug: id, name: id })),
  }));
}

/**
 * Returns the id of a role that a request names by id or by name. A role with the id need not exist; an
 * unknown name rejects with NOT_FOUND.
 */
export async function roleIdIn(reference: string, roles: Roles): Promise<string> {
  const isId = ROLE_ID.test(reference);
  if (isId && (await roles.existing([reference])).length > 0) return reference;
  const id = await roles.idOf(reference);
  if (id !== undefined) return id;
  if (isId) return reference;
  throw roleNotFound(reference);
}

/** Returns the items that contain the text in one of these fields, ignoring case. */
export function matching<Item extends object>(
  items: readonly Item[],
  fields: readonly (keyof Item)[],
  search = '',
): readonly Item[] {
  const part = folded(search);
  return items.filter((item) => fields.some((field) => folded(String(item[field] ?? '')).includes(part)));
}
