import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { Permissions } from '../../serve/response-parts.ts';
import { Id, List } from '../../serve/schemas/field-schemas.ts';
import { GivenSlugs } from '../../serve/schemas/slug-schemas.ts';

export const RoleView = Type.Object({
  id: Id('the role'),
  name: Type.String({ description: 'Its name.' }),
  description: Type.Optional(Type.String({ description: 'What it is for.' })),
  permissions: List(Type.Object(Permissions.items.properties), { description: 'Permissions of the role.' }),
});
/** The permissions of a role, in requests. */
export const RolePermissions = GivenSlugs({ description: 'All permissions of the role.' });
export const roleIdExample = 'role_0mzc9k4q8r2wfXa1Bc2d';

/** The error for a role that does not exist. */
export const roleNotFound = (roleId: string) => new ApiError('NOT_FOUND', `role ${roleId} not found`);
