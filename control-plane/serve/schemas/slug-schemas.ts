import { type Static, type TSchemaOptions, Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { SLUG, SLUGS_MAX } from '#shared/contract/slugs.ts';

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
          slug: Type.Optional(Slug('The same; takes precedence over `name`.')),
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
