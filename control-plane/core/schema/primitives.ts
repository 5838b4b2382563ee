import { type TArrayOptions, type TProperties, type TSchema, Type } from 'typebox';
import { perUsageField } from '#shared/protocol/records/usage.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import { MOMENT_PATTERN } from '#shared/rules/unix-ms.ts';

export const Sequence = Type.Integer({
  minimum: 0,
  description: "The sequence number of a change in its API's log.",
});

export const Durable = Type.Boolean({
  description:
    'true: the change survives a crash or power cut of its Redis server, and a failover: the server has it on disk, all its replicas have it, and nothing is evicted.',
});

export const Time = (description: string) =>
  Type.Integer({ description: `${description}, Unix milliseconds.` });

export const List = <Item extends TSchema>(item: Item, options: TArrayOptions = {}) =>
  Type.Immutable(Type.Array(item, options));

export const Id = (thing: string) => Type.String({ description: `The id of ${thing}.` });

/** Schema of a request that refuses unknown fields. */
export const Fields = <Properties extends TProperties>(fields: Properties) =>
  Type.Object(fields, { additionalProperties: false });

export const ApiId = Type.String({ pattern: API_ID.source, description: 'The API that keys belong to.' });

export const KeyId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "A key's id, as createKey returned it.",
});

export const OperationId = (description: string) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]{16,64}$', description });

export const Prefix = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_]{1,16}$', description });

export const Bytes = (description: string) => Type.Integer({ minimum: 16, maximum: 255, description });

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

export const Count = (description: string) => Type.Integer({ minimum: 0, description });

/** The secret of a new key. */
export const Secret = Type.String({
  description:
    'The secret, which is shown only once. Redis has its digest, and for a day, encrypted, the answer to an Idempotency-Key.',
});

/** Counts of verdicts. */
export const usageCounts = perUsageField(({ code, sentence }) =>
  Count(`Number of ${code} verdicts. ${sentence}`),
);
