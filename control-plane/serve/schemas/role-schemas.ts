import { type Static, type TSchemaOptions, Type } from 'typebox';
import { SLUGS_MAX } from '#shared/contract/slugs.ts';

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
