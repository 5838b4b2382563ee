import { type TSchemaOptions, Type } from 'typebox';
import {
  DEFAULT_LIMIT,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
} from '#shared/contract/credits.ts';
import { ApiError } from '#shared/contract/errors.ts';

/** The size of a limit. */
export const LIMIT_SIZE = {
  limit: Type.Integer({
    minimum: 1,
    maximum: LIMIT_MAX,
    description: 'Maximum number of verifications, or maximum total cost, in a window.',
  }),
  duration: Type.Integer({
    minimum: DURATION_MIN_MS,
    maximum: DURATION_MAX_MS,
    description: 'Length of a window, milliseconds.',
  }),
};
const limit = {
  ...LIMIT_SIZE,
  async: Type.Optional(
    Type.Boolean({
      description:
        'true (default): verifiers answer from slices of the limit and rarely ask Redis. false: they ask Redis each time. Neither lets more through than the limit.',
    }),
  ),
};
const strict = { additionalProperties: false } as const;

/** Schema of a key's default limit. */
export const Ratelimit = (options: TSchemaOptions) => Type.Object(limit, { ...strict, ...options });
/** Schema of a key's other limits. */
export const Ratelimits = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(
      Type.Object(
        {
          name: Type.String({
            pattern: LIMIT_NAME.source,
            description: `The name by which verifications request this limit. Not \`${DEFAULT_LIMIT}\`, which is set as \`ratelimit\`.`,
          }),
          ...limit,
          autoApply: Type.Optional(
            Type.Boolean({
              description:
                'true: each verification obeys it, and takes 1 of it unless it names the limit with another cost. false, the default: those that name it.',
            }),
          ),
        },
        strict,
      ),
      { maxItems: LIMITS_MAX, ...options },
    ),
  );

/** Throws BAD_REQUEST if two limits have the same name, or one has the name of the default limit. */
export function checkLimits(limits: readonly { readonly name: string }[] | null | undefined): void {
  const names = (limits ?? []).map(({ name }) => name);
  if (names.includes(DEFAULT_LIMIT))
    throw new ApiError(
      'BAD_REQUEST',
      `ratelimits: must not name a limit ${DEFAULT_LIMIT}; set that one as ratelimit`,
    );
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new ApiError('BAD_REQUEST', `ratelimits: must contain ${twice} only once`);
}
