import { Type } from 'typebox';
import { API_ID } from '#shared/api-id.ts';
import { FIELDS } from '../../core/field-schemas.ts';

/** Parts that requests have in common. */

export const strict = { additionalProperties: false } as const;

export const ApiId = Type.String({ pattern: API_ID.source, description: 'The API that keys belong to.' });
export const KeyId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "A key's id, as createKey returned it.",
});
export const { name: Name, externalId: ExternalId, ownerId: OwnerId } = FIELDS;
export const WaitMs = Type.Integer({
  minimum: 0,
  maximum: 60_000,
  description: 'Longest time to hold the answer until the change is complete, ms.',
});

export const OperationId = (description: string) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]{16,64}$', description });

export const Moment = (description: string) =>
  Type.Optional(Type.String({ pattern: '^[0-9]{1,15}$', description: `Unix milliseconds; ${description}` }));
export const Prefix = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_]{1,16}$', description });
export const Bytes = (description: string) => Type.Integer({ minimum: 16, maximum: 255, description });

export const period = {
  granularity: Type.Union([Type.Literal('hour'), Type.Literal('day')], {
    default: 'day',
    description: 'Hours and days begin as those of UTC do.',
  }),
  start: Moment('as far back as is kept.'),
  end: Moment('now.'),
};
