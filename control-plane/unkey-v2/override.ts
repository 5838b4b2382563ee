import { Type } from 'typebox';
import { DURATION_MAX_MS, DURATION_MIN_MS, LIMIT_MAX } from '#shared/contract/credits.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { IDENTIFIER_MAX, type Override, WILDCARDS_MAX } from '#shared/redis/namespace-record.ts';
import { Id } from '../core/schemas/field-schemas.ts';

export const Namespace = Type.String({
  ...{ minLength: 1, maxLength: IDENTIFIER_MAX },
  description: 'The name of a group of rate limits. It needs not be created.',
});
export const Identifier = Type.String({
  ...{ minLength: 1, maxLength: IDENTIFIER_MAX },
  description: `The identifier, exactly; or a pattern, in which each \`*\` stands for any characters, at most ${WILDCARDS_MAX} times. If several match, the exact one applies, else the longest pattern.`,
});

const size = {
  limit: Type.Integer({
    ...{ minimum: 0, maximum: LIMIT_MAX },
    description: 'The maximum total cost in a window; 0 = nothing passes.',
  }),
  duration: Type.Integer({
    ...{ minimum: DURATION_MIN_MS, maximum: DURATION_MAX_MS },
    description: 'Length of a window, milliseconds.',
  }),
};

/** The fields of an override in requests. */
export const OVERRIDE_FIELDS = { namespace: Namespace, identifier: Identifier, ...size };

export const OverrideData = Type.Object({
  overrideId: Id('the override'),
  identifier: Type.String(),
  ...size,
});

/** An override in responses. */
export const overrideData = ({ id: overrideId, ...override }: Override) => ({ overrideId, ...override });

/** The error for an override that does not exist. */
export const overrideNotFound = () =>
  new ApiError('NOT_FOUND', 'the namespace has no override of this identifier; patterns count as written');
