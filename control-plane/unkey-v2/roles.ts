import { type Static, Type } from 'typebox';
import { SLUG, SLUGS_MAX } from '#shared/rules/slugs.ts';
import { folded } from '../core/records/search.ts';
import { Search } from '../core/schema/lists.ts';
import { Fields, Id, List } from '../core/schema/primitives.ts';
import { ROLE_ID, ROLE_NAME, RoleName } from '../core/schema/slugs.ts';
import {
  createPermission,
  createRole,
  deletePermission,
  deleteRole,
  getPermission,
  getRole,
  listPermissions,
  listRoles,
  PermissionId,
  PermissionView,
  permissionView,
  roleNotFound,
  Slug,
  setRolePermissions,
} from '../subjects/roles/operations.ts';
import type { Catalogue } from '../subjects/roles/permissions.ts';
import type { Role, Roles } from '../subjects/roles/roles.ts';
import { asData, DELETED, inV2, onceComplete, PAGE, pageOf, same } from './face.ts';

/** Permissions that a request names. */
export const GivenPermissions = Type.Array(
  Type.String({ pattern: SLUG.source, description: 'Letters, digits and `_:.*-`.' }),
  { maxItems: SLUGS_MAX, description: 'Its permissions. They need not be in the catalogue.' },
);
/** Roles that a request names. */
export const GivenRoleNames = Type.Array(RoleName, {
  ...{ maxItems: SLUGS_MAX },
  description: 'Names of its roles, which must exist.',
});

const PermissionsData = List(PermissionView);
export const RoleData = Type.Object({
  id: Id('the role'),
  name: Type.String({ description: 'Its name.' }),
  description: Type.Optional(Type.String({ description: 'Its purpose.' })),
  permissions: PermissionsData,
});
const RoleReference = Type.String({
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
async function roleIdIn(reference: string, roles: Roles): Promise<string> {
  const isId = ROLE_ID.test(reference);
  if (isId && (await roles.existing([reference])).length > 0) return reference;
  const id = await roles.idOf(reference);
  if (id !== undefined) return id;
  if (isId) return reference;
  throw roleNotFound(reference);
}

/** Returns the items that contain the text in one of these fields, ignoring case. */
function matching<Item extends object>(
  items: readonly Item[],
  fields: readonly (keyof Item)[],
  search = '',
): readonly Item[] {
  const part = folded(search);
  return items.filter((item) => fields.some((field) => folded(String(item[field] ?? '')).includes(part)));
}

/** The request of an operation on one role. */
const THE_ROLE = {
  request: Fields({ role: RoleReference }),
  example: { role: 'editor' },
  toRequest: async ({ role }: { readonly role: string }, { roles }: { roles: Roles }) => ({
    roleId: await roleIdIn(role, roles),
  }),
};
/** The request of an operation on one permission. */
const THE_PERMISSION = {
  request: Fields({ permission: PermissionId }),
  example: { permission: 'files.write' },
  toRequest: ({ permission }: { readonly permission: string }) => ({ permissionId: permission }),
};
const searched = (where: string) => ({
  request: Fields({ ...PAGE, search: Search(where) }),
  example: { limit: 100 },
});

export const roleFaces = [
  inV2(createRole, {
    request: Fields({
      name: RoleName,
      description: createRole.request.properties.description,
      permissions: Type.Optional(GivenPermissions),
    }),
    data: createRole.response,
    example: { name: 'editor', permissions: ['articles.write'] },
    toRequest: same,
    toAnswer: asData,
  }),
  inV2(getRole, {
    ...THE_ROLE,
    data: RoleData,
    async toAnswer(role, _call, { catalogue }: { catalogue: Catalogue }) {
      const [data = { ...role, permissions: [] }] = await rolesData([role], catalogue);
      return { data };
    },
  }),
  inV2(listRoles, {
    ...searched('the id, the name or the description'),
    data: List(RoleData),
    paged: true,
    toRequest: () => ({}),
    async toAnswer(roles, { body }, { catalogue }: { catalogue: Catalogue }) {
      const matches = matching(roles, ['id', 'name', 'description'], body.search);
      const { items, pagination } = pageOf(matches, body, ['listRoles', body.search]);
      return { data: await rolesData(items, catalogue), pagination };
    },
  }),
  inV2(setRolePermissions, {
    request: Fields({ roleId: RoleReference, permissions: GivenPermissions }),
    data: PermissionsData,
    example: { roleId: 'editor', permissions: ['articles.read', 'articles.write'] },
    toRequest: async ({ roleId, permissions }, { roles }: { roles: Roles }) => ({
      ...{ roleId: await roleIdIn(roleId, roles), permissions },
    }),
    async toAnswer({ propagation }, { body }, { catalogue }: { catalogue: Catalogue }) {
      onceComplete(propagation);
      return { data: await permissionsData([...new Set(body.permissions)].sort(), catalogue) };
    },
  }),
  inV2(deleteRole, { ...THE_ROLE, ...DELETED }),
  inV2(createPermission, {
    request: Fields({
      name: Type.String({ minLength: 1, maxLength: 256, description: 'For people.' }),
      slug: Slug('The permission itself: letters, digits and `_:.*-`.'),
      description: createPermission.request.properties.description,
    }),
    data: createPermission.response,
    example: { name: 'Write files', slug: 'files.write' },
    toRequest: same,
    toAnswer: asData,
  }),
  inV2(getPermission, { ...THE_PERMISSION, data: PermissionView, toAnswer: asData }),
  inV2(listPermissions, {
    ...searched('the slug, the name or the description'),
    data: PermissionsData,
    paged: true,
    toRequest: () => ({}),
    toAnswer(permissions, { body }) {
      const matches = matching(permissions, ['slug', 'name', 'description'], body.search);
      const { items: data, pagination } = pageOf(matches, body, ['listPermissions', body.search]);
      return { data, pagination };
    },
  }),
  inV2(deletePermission, { ...THE_PERMISSION, ...DELETED }),
];
