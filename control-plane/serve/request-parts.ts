import { type TProperties, Type } from 'typebox';
import { API_ID } from '#shared/contract/api-id.ts';
import { MOMENT_PATTERN } from '#shared/contract/unix-ms.ts';
import { FIELDS } from './schemas/field-schemas.ts';

/** Parts that requests have in common. */

/** Schema of a request that refuses unknown fields. */
export const Fields = <Properties extends TProperties>(fields: Properties) =>
  Type.Object(fields, { additionalProperties: false });

export const ApiId = Type.String({ pattern: API_ID.source, description: 'The API that keys belong to.' });
export const KeyId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "A key's id, as createKey returned it.",
});
export const { name: Name, externalId: ExternalId, ownerId: OwnerId } = FIELDS;
/** The maximum wait for a change: `waitMs`. */
export const WaitMs = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: 60_000,
    description: 'Maximum time to wait for the change to be complete, ms.',
  }),
);
/** A change's sequence in a query, where all values are strings. */
export const SequenceText = Type.String({
  pattern: '^[1-9][0-9]{0,14}$',
  description: 'The `sequence` in the response to the change.',
});

export const OperationId = (description: string) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]{16,64}$', description });

export const Prefix = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_]{1,16}$', description });
export const Bytes = (description: string) => Type.Integer({ minimum: 16, maximum: 255, description });

/** Number of items in a page, as a string in a query. */
export const Limit = (items: string) =>
  Type.String({
    pattern: '^([1-9][0-9]?|100)$',
    default: '100',
    description: `${items} per page, 1..100.`,
  });
export const PageCursor = (form: { pattern: string } | { minLength: number; maxLength: number }) =>
  Type.Optional(Type.String({ ...form, description: 'Cursor from the previous page.' }));

/** The text for which a listing is searched. */
export const Search = (where: string) =>
  Type.Optional(
    Type.String({ maxLength: 256, description: `Part of ${where}, in any case. \`''\` finds all.` }),
  );

export const Moment = (description: string) =>
  Type.Optional(Type.String({ pattern: MOMENT_PATTERN, description: `Unix milliseconds; ${description}` }));
/** Returns the Unix milliseconds of a `Moment`. */
export const timeOf = (ms: string | undefined) => (ms === undefined ? undefined : Number(ms));
/** The period of a usage report. */
export const period = {
  granularity: Type.Union([Type.Literal('hour'), Type.Literal('day')], {
    default: 'day',
    description: 'Hours and days are those of UTC.',
  }),
  start: Moment('default: as far back as counts are kept.'),
  end: Moment('default: now.'),
};
