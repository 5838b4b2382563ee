import { Type } from 'typebox';
import { managedByOthers } from '#shared/protocol/log/write-error.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import { type ChangeWriter, isAtVerifiers } from '#shared/protocol/writer/writer.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { SLUG } from '#shared/rules/slugs.ts';
import { auditView } from '../../core/schema/audit-event.ts';
import {
  IfSequence,
  LastSequence,
  PropagationResponse,
  SequenceText,
  WaitMs,
} from '../../core/schema/changes.ts';
import {
  checkLimits,
  RoleConcurrency,
  RoleConcurrencyView,
  RoleRatelimits,
  RoleRatelimitsView,
} from '../../core/schema/limits.ts';
import {
  CHANGED_MANAGED,
  IF_MANAGED,
  MANAGED_FILTER,
  MANAGED_VIEW,
  NEW_MANAGED,
} from '../../core/schema/managed.ts';
import { Fields, Id, List } from '../../core/schema/primitives.ts';
import { GivenSlugs, Permissions, RoleId, RoleName, slugsIn } from '../../core/schema/slugs.ts';
import { operation } from '../../core/serve/operation.ts';
import { type Catalogue, type CataloguedPermission, metaOf } from './permissions.ts';
import type { Roles } from './roles.ts';

const RoleView = Type.Object({
  id: Id('the role'),
  name: Type.String({ description: 'Its name.' }),
  description: Type.Optional(Type.String({ description: 'Its purpose.' })),
  permissions: List(Type.Object(Permissions.items.properties), { description: 'Permissions of the role.' }),
  ratelimits: RoleRatelimitsView({ description: 'Rate limits of the keys with the role.' }),
  concurrency: RoleConcurrencyView({ description: 'Concurrency limits of the keys with the role.' }),
  sequence: LastSequence,
  ...MANAGED_VIEW,
});
/** The permissions of a role, in requests. */
const RolePermissions = GivenSlugs({ description: 'All permissions of the role.' });
/** The limits of a role, in requests. */
const RoleLimits = RoleRatelimits({
  description:
    'All rate limits of the role. Every key with the role obeys them, unless the key or its identity has a limit of that name. Of several roles, the largest limit of a name applies.',
});
const RolePlaces = RoleConcurrency({
  description:
    'All concurrency limits of the role. They apply like its rate limits; of several roles, the largest limit of a name applies.',
});
const roleIdExample = 'role_0mzc9k4q8r2wfXa1Bc2d';

/** The error for a role that does not exist. */
export const roleNotFound = (roleId: string) => new ApiError('NOT_FOUND', `role ${roleId} not found`);

const CREATE_ROLE_DESCRIPTION = Type.String({ minLength: 1, maxLength: 512, description: 'Its purpose.' });

export const createRole = operation({
  name: 'permissions.createRole',
  kind: 'change',
  adds: true,
  summary: 'Create a role',
  description:
    'A role is one list of permissions, and of limits, for any number of keys and identities of all APIs. A role with limits is a plan.',
  permissions: ['root.*.create_role'],
  request: Fields({
    name: RoleName,
    description: Type.Optional(CREATE_ROLE_DESCRIPTION),
    permissions: Type.Optional(RolePermissions),
    ratelimits: Type.Optional(RoleLimits),
    concurrency: Type.Optional(RolePlaces),
    ...NEW_MANAGED,
  }),
  response: Type.Object({ roleId: Id('the role') }),
  event: 'role.created',
  errors: ['CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { name: 'editor', description: 'Writes articles', permissions: ['articles.write'] },
  async handle(call, { roles }: { roles: Roles }) {
    const {
      name,
      description,
      permissions = [],
      ratelimits = [],
      concurrency = [],
      ...managed
    } = call.request;
    checkLimits({ ratelimits, concurrency });
    const fields = { name, permissions: slugsIn(permissions), ratelimits, concurrency, ...managed };
    const roleId = await roles.create({ ...fields, ...(description && { description }) });
    call.note({ roleId }, { after: auditView(storedFields(fields)) });
    return { roleId };
  },
});

export const getRole = operation({
  name: 'permissions.getRole',
  kind: 'query',
  summary: 'Show a role',
  description: 'Shows its permissions and limits.',
  permissions: ['root.*.read_role'],
  request: Fields({ roleId: RoleId }),
  response: RoleView,
  errors: ['NOT_FOUND'],
  example: { roleId: roleIdExample },
  async handle({ request: { roleId } }, { roles }: { roles: Roles }) {
    const role = await roles.get(roleId);
    if (!role) throw roleNotFound(roleId);
    return role;
  },
});

export const listRoles = operation({
  name: 'permissions.listRoles',
  kind: 'query',
  summary: 'List all roles',
  description: 'Lists them in order of creation.',
  permissions: ['root.*.read_role'],
  request: Fields(MANAGED_FILTER),
  response: List(RoleView),
  errors: [],
  example: {},
  handle: ({ request }, { roles }: { roles: Roles }) => roles.list(request),
});

/** The meta of a role's record. */
const metaOfRole = (description: string | null | undefined) => (description ? { description } : {});

const updateRole = operation({
  name: 'permissions.updateRole',
  kind: 'change',
  summary: 'Change a role',
  description:
    'Makes one change, however many keys have the role. Returns when the change is complete, like updateKey. Absent fields stay unchanged; null removes the description. Uses of limits still count, as after setRoleLimits.',
  permissions: ['root.*.update_role'],
  request: Fields({
    roleId: RoleId,
    description: Type.Optional(Type.Union([CREATE_ROLE_DESCRIPTION, Type.Null()])),
    permissions: Type.Optional(RolePermissions),
    ratelimits: Type.Optional(RoleLimits),
    concurrency: Type.Optional(RolePlaces),
    ...CHANGED_MANAGED,
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: PropagationResponse,
  event: 'role.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { roleId: roleIdExample, description: 'Writes articles', permissions: ['articles.write'] },
  neverShed: true,
  async handle(call, { changeWriter }: { changeWriter: ChangeWriter }) {
    const { roleId, ifSequence, waitMs, description, permissions, ...others } = call.request;
    checkLimits(others);
    const fields = storedFields({
      ...others,
      ...(description === undefined ? {} : { meta: metaOfRole(description) }),
      ...(permissions && { permissions: slugsIn(permissions) }),
    });
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: roleId, fields, ifSequence } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});

export const setRolePermissions = operation({
  name: 'permissions.setRolePermissions',
  kind: 'change',
  summary: 'Set all permissions of a role',
  description:
    'Makes one change, however many keys have the role. Returns when the change is complete, like updateKey: no verifier anywhere answers from the earlier state of the role.',
  permissions: ['root.*.update_role'],
  request: Fields({ roleId: RoleId, permissions: RolePermissions, ifSequence: IfSequence, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'role.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { roleId: roleIdExample, permissions: ['articles.read', 'articles.write'] },
  neverShed: true,
  async handle(call, { changeWriter }: { changeWriter: ChangeWriter }) {
    const { roleId, permissions, ifSequence, waitMs } = call.request;
    const fields = storedFields({ permissions: slugsIn(permissions) });
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: roleId, fields, ifSequence } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});

const setRoleLimits = operation({
  name: 'permissions.setRoleLimits',
  kind: 'change',
  summary: 'Set all limits of a role',
  description:
    'Makes one change, however many keys have the role. Returns when the change is complete, like updateKey: no verifier anywhere obeys the earlier limits. Sets all of `ratelimits`, of `concurrency`, or of both; the absent one stays. Uses still count, unless the change altered `duration`, or the `anchor` or `offsetMinutes` of a quota.',
  permissions: ['root.*.update_role'],
  request: Fields({
    roleId: RoleId,
    ratelimits: Type.Optional(RoleLimits),
    concurrency: Type.Optional(RolePlaces),
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: PropagationResponse,
  event: 'role.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: {
    roleId: roleIdExample,
    ratelimits: [{ name: 'requests', limit: 1000, duration: 60_000, autoApply: true, per: 'identity' }],
  },
  neverShed: true,
  async handle(call, { changeWriter }: { changeWriter: ChangeWriter }) {
    const { roleId, ifSequence, waitMs, ...limits } = call.request;
    checkLimits(limits);
    const fields = storedFields(limits);
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'ratelimits: give these, or concurrency, or both');
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: roleId, fields, ifSequence } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});

export const deleteRole = operation({
  name: 'permissions.deleteRole',
  kind: 'change',
  stops: 'always',
  summary: 'Delete a role',
  description:
    'Returns when the deletion is complete, like updateKey. Keys with the role keep its id, which grants nothing and is never used again.',
  permissions: ['root.*.delete_role'],
  request: Fields({ roleId: RoleId, ...IF_MANAGED, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'role.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { roleId: roleIdExample },
  neverShed: true,
  async handle(call, { changeWriter }: { changeWriter: ChangeWriter }) {
    const { roleId, waitMs, ifManagedBy } = call.request;
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId: roleId, fields: {}, ifManagedBy } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});

const getRolePropagation = operation({
  name: 'permissions.getRolePropagation',
  kind: 'query',
  summary: "See how far a role's change has come",
  description: 'For changes that returned `pending`.',
  permissions: ['root.*.read_role'],
  request: Fields({ roleId: RoleId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { roleId: roleIdExample, sequence: '1' },
  async handle(
    { request: { roleId, sequence } },
    { roles, changeWriter }: { roles: Roles; changeWriter: ChangeWriter },
  ) {
    const isLatest = (await roles.get(roleId))?.sequence === Number(sequence);
    const propagation = await changeWriter.status(SHARED_LOG, roleId, Number(sequence), isLatest);
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});

export const Slug = (description: string) => Type.String({ pattern: SLUG.source, description });
export const PermissionId = Slug('The permission: its slug.');

export const PermissionView = Type.Object({
  id: Id('the permission: its slug'),
  name: Type.String({ description: 'Its name.' }),
  slug: Type.String({ description: 'The permission itself, as keys and roles have it.' }),
  description: Type.Optional(Type.String({ description: 'Its purpose.' })),
});
const CataloguedView = Type.Object({
  ...PermissionView.properties,
  sequence: LastSequence,
  ...MANAGED_VIEW,
});
/** A permission as responses show it. */
export const permissionView = <Shown extends Pick<CataloguedPermission, 'slug'>>(permission: Shown) => ({
  id: permission.slug,
  ...permission,
});

/** The error for a permission that is not in the catalogue. */
const permissionNotFound = (slug: string) => new ApiError('NOT_FOUND', `permission ${slug} not found`);

const SLUG_FIELD = Slug('The permission itself: letters, digits and `_:.*-`.');
const CREATE_PERMISSION_DESCRIPTION = Type.String({ maxLength: 512, description: 'Its purpose.' });

const PERMISSION_NAME = Type.String({
  ...{ minLength: 1, maxLength: 256 },
  description: 'The name for people. Without a `slug`, it is also the slug, and must have its form.',
});

export const createPermission = operation({
  name: 'permissions.createPermission',
  kind: 'change',
  adds: true,
  summary: 'Add a permission to the catalogue',
  description:
    'The catalogue is for people: it names and describes permissions. Keys and roles may have permissions that are not in it.',
  permissions: ['root.*.create_permission'],
  request: Fields({
    name: PERMISSION_NAME,
    slug: Type.Optional(SLUG_FIELD),
    description: Type.Optional(CREATE_PERMISSION_DESCRIPTION),
    ...NEW_MANAGED,
  }),
  response: Type.Object({ permissionId: Id('the permission: its slug') }),
  errors: ['CONFLICT'],
  example: { name: 'files.write', description: 'Writes files' },
  async handle(call, { catalogue }: { catalogue: Catalogue }) {
    const { name, slug = name, ...rest } = call.request;
    if (!SLUG.test(slug))
      throw new ApiError('BAD_REQUEST', `name: must match ${SLUG.source} if there is no slug`);
    call.note({ permissionId: slug }, { after: { name, ...rest } });
    await catalogue.create({ slug, name, ...rest });
    return { permissionId: slug };
  },
});

const updatePermission = operation({
  name: 'permissions.updatePermission',
  kind: 'change',
  summary: 'Change how the catalogue describes a permission',
  description: 'Absent fields stay unchanged; null removes the description. No verdict depends on it.',
  permissions: ['root.*.update_permission'],
  request: Fields({
    permissionId: PermissionId,
    name: Type.Optional(PERMISSION_NAME),
    description: Type.Optional(Type.Union([CREATE_PERMISSION_DESCRIPTION, Type.Null()])),
    ...CHANGED_MANAGED,
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { permissionId: 'files.write', description: 'Writes and replaces files' },
  async handle(call, { catalogue, changeWriter }: { catalogue: Catalogue; changeWriter: ChangeWriter }) {
    const { permissionId: slug, description, ifSequence, waitMs, ...others } = call.request;
    const keyId = await catalogue.idOf(slug);
    if (!keyId) throw permissionNotFound(slug);
    const meta = description === undefined ? {} : { meta: metaOf(slug, description ?? undefined) };
    const fields = storedFields({ ...others, ...meta });
    if (Object.keys(fields).length === 0)
      throw new ApiError('BAD_REQUEST', 'body: must name at least one field to change');
    call.note({ permissionId: slug });
    const write = { apiId: SHARED_LOG, operation: 'update', keyId, fields, ifSequence } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    if (!propagation) throw permissionNotFound(slug);
    return { propagation };
  },
});

export const getPermission = operation({
  name: 'permissions.getPermission',
  kind: 'query',
  summary: 'Show a permission',
  description: 'Shows its entry in the catalogue.',
  permissions: ['root.*.read_permission'],
  request: Fields({ permissionId: PermissionId }),
  response: CataloguedView,
  errors: ['NOT_FOUND'],
  example: { permissionId: 'files.write' },
  async handle({ request: { permissionId: slug } }, { catalogue }: { catalogue: Catalogue }) {
    const permission = await catalogue.get(slug);
    if (!permission) throw permissionNotFound(slug);
    return permissionView(permission);
  },
});

export const listPermissions = operation({
  name: 'permissions.listPermissions',
  kind: 'query',
  summary: 'List the catalogue of permissions',
  description: 'Lists them in order of creation.',
  permissions: ['root.*.read_permission'],
  request: Fields(MANAGED_FILTER),
  response: List(CataloguedView),
  errors: [],
  example: {},
  handle: async ({ request }, { catalogue }: { catalogue: Catalogue }) =>
    (await catalogue.list(request)).map(permissionView),
});

/** Maximum number of attempts to remove a permission from roles that change in between. */
const TRIES = 20;

export const deletePermission = operation({
  name: 'permissions.deletePermission',
  kind: 'change',
  stops: 'always',
  summary: 'Delete a permission from the catalogue, and from all roles',
  description:
    'Returns when the change is complete, like updateKey: no verifier anywhere lets a key use the permission because of a role. Keys that have the permission themselves keep it; keys.removePermissions removes it from them.',
  permissions: ['root.*.delete_permission'],
  request: Fields({ permissionId: PermissionId, ...IF_MANAGED, waitMs: WaitMs }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { permissionId: 'files.write' },
  neverShed: true,
  async handle(call, needs: { catalogue: Catalogue; roles: Roles; changeWriter: ChangeWriter }) {
    const { catalogue, changeWriter } = needs;
    const { permissionId: slug, waitMs, ifManagedBy } = call.request;
    const keyId = await catalogue.idOf(slug);
    if (!keyId) throw permissionNotFound(slug);
    if (ifManagedBy !== undefined && (await catalogue.get(slug))?.managedBy !== ifManagedBy)
      throw managedByOthers(ifManagedBy);
    call.note({ permissionId: slug });
    const leftMs = changeWriter.remainingTime(waitMs);
    const roleIds = await takeFromRoles(slug, leftMs, needs);
    call.note({}, { after: { roles: roleIds } });
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId, fields: {}, ifManagedBy } as const;
    const propagation = await changeWriter.apply(write, leftMs(), call.recordChange());
    if (!propagation) throw permissionNotFound(slug);
    return { propagation };
  },
});

/** Removes a permission from all roles. @returns the ids of the roles that had it */
async function takeFromRoles(
  slug: string,
  leftMs: () => number | undefined,
  { roles, changeWriter }: { roles: Roles; changeWriter: ChangeWriter },
): Promise<string[]> {
  const roleIds = new Set<string>();
  for (let tries = 0; tries < TRIES; tries++) {
    const [first, ...others] = await roles.without(slug);
    if (!first) return [...roleIds];
    const { outcomes, propagation } = await changeWriter.applyAll([first, ...others], leftMs());
    if (propagation && !isAtVerifiers(propagation))
      throw unavailable(
        'some verifiers may not know yet that roles have lost the permission: send the call again',
      );
    for (const each of outcomes) if ('sequence' in each) roleIds.add(each.keyId);
  }
  throw unavailable('roles change faster than the permission can be removed from them: send the call again');
}

export const roleOperations = [
  createRole,
  getRole,
  listRoles,
  updateRole,
  setRolePermissions,
  setRoleLimits,
  deleteRole,
  getRolePropagation,
  createPermission,
  updatePermission,
  getPermission,
  listPermissions,
  deletePermission,
] as const;
