import { type Static, type TSchemaOptions, Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import { SLUG, SLUGS_MAX } from '#shared/rules/slugs.ts';
import { Id } from './primitives.ts';

const Slug = (description: string) => Type.String({ pattern: SLUG.source, description });

/** Schema of a key's permissions. */
export const Slugs = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Slug('Letters, digits and `_:.*-`. `*` stands for itself.'), {
      maxItems: SLUGS_MAX,
      ...options,
    }),
  );

/**
 * Schema of permissions in calls about permissions: a slug, or an object as clients of the v1 SDK send it.
 */
export const GivenSlugs = (options: TSchemaOptions) =>
  Type.Array(
    Type.Union([
      Slug('The permission.'),
      Type.Object(
        {
          id: Type.Optional(Slug('The permission; takes precedence over `slug` and `name`.')),
          slug: Type.Optional(Slug('Another name of `name`, which it takes precedence over.')),
          name: Type.Optional(Slug('The same.')),
          create: Type.Optional(
            Type.Boolean({ description: 'No effect: permissions need not exist before they are used.' }),
          ),
        },
        { additionalProperties: false },
      ),
    ]),
    { maxItems: SLUGS_MAX, ...options },
  );

/** Returns the permissions that a call names. Throws BAD_REQUEST if one has no name. */
export function slugsIn(references: Static<ReturnType<typeof GivenSlugs>>): string[] {
  return references.map((reference, i) => {
    const slug =
      typeof reference === 'string' ? reference : (reference.id ?? reference.slug ?? reference.name);
    if (slug === undefined) throw new ApiError('BAD_REQUEST', `permissions.${i}: give its id, slug or name`);
    return slug;
  });
}

/** Rules of a role's name; it appears unescaped in JSON, and a list of names is separated by commas. */
export const ROLE_NAME = {
  pattern: '^[A-Za-z0-9_:.*-]+( [A-Za-z0-9_:.*-]+)*$',
  maxLength: 100,
};

/** Schema of a role's name. */
export const RoleName = Type.String({
  ...ROLE_NAME,
  description: 'A name that no other role has: letters, digits, `_:.*-`, and single spaces between them.',
});

export const ROLE_ID = /^role_[A-Za-z0-9_-]{1,75}$/;

/** Schema of a role's id. */
export const RoleId = Type.String({
  pattern: ROLE_ID.source,
  description: "A role's id, as createRole returned it.",
});

/** Schema of roles in calls about a key: a name, or an object as clients of the v1 SDK send it. */
export const GivenRoles = (options: TSchemaOptions) =>
  Type.Array(
    Type.Union([
      RoleName,
      Type.Object({ id: RoleId }, { additionalProperties: false }),
      Type.Object({ name: RoleName }, { additionalProperties: false }),
    ]),
    { maxItems: SLUGS_MAX, ...options },
  );

/** A role in a call about a key. */
export type GivenRole = Static<ReturnType<typeof GivenRoles>>[number];

/** Permissions of a key or a role. */
export const Permissions = Type.Array(
  Type.Object({ id: Id('the permission: itself'), name: Type.String({ description: 'The same.' }) }),
  { description: 'All current permissions.', examples: [[{ id: 'files.read', name: 'files.read' }]] },
);
