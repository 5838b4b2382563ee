import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { SLUG } from '#shared/contract/slugs.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import type { CataloguedPermission } from '../permissions.ts';

export const Slug = (description: string) => Type.String({ pattern: SLUG.source, description });
export const PermissionId = Slug('The permission: its slug.');

export const PermissionView = Type.Object({
  id: Id('the permission: its slug'),
  name: Type.String({ description: 'Its name.' }),
  slug: Type.String({ description: 'The permission itself, as keys and roles have it.' }),
  description: Type.Optional(Type.String({ description: 'What it is for.' })),
});
/** A permission as responses show it. */
export const permissionView = (permission: CataloguedPermission) => ({ id: permission.slug, ...permission });

/** The error for a permission that is not in the catalogue. */
export const permissionNotFound = (slug: string) => new ApiError('NOT_FOUND', `permission ${slug} not found`);
