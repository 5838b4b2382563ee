import { ERRORS, type ErrorCode, errorBody, errorBodyV2 } from './errors.ts';

const RETRYABLE: ReadonlySet<string> = new Set<ErrorCode>(['RATE_LIMITED', 'SERVICE_UNAVAILABLE']);
const RETRY_AFTER = { 'Retry-After': { description: 'Seconds.', schema: { type: 'integer' } } };

const CODE = { type: 'string', enum: Object.keys(ERRORS), description: 'Never renamed, never reused.' };
const REQUEST_ID = { type: 'string', description: 'The same as in X-Request-Id.' };
const EXAMPLE_ID = '0mzc9k4q8r2wfXa1';
const strings = (descriptions: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(descriptions).map(([name, description]) => [name, { type: 'string', description }]),
  );
const object = (properties: object, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
});

const refused = (names: Readonly<Record<string, string>>, required: string[]) => ({
  type: 'array',
  items: object(strings(names), required),
  description: 'The refused fields, only for BAD_REQUEST.',
});
const schemaV1 = object({
  error: object(
    {
      code: CODE,
      ...strings({ message: 'For people; names the field and the rule.' }),
      details: refused({ field: 'The field.', rule: 'The rule.', fix: 'What to do.' }, ['field', 'rule']),
      ...strings({ docs: 'The page that explains the code.' }),
      requestId: REQUEST_ID,
    },
    ['code', 'message', 'docs', 'requestId'],
  ),
});
const problem = {
  ...strings({ title: 'The code, for people.', detail: 'Names the field and the rule.' }),
  status: { type: 'integer', description: 'The status of the response.' },
  type: { type: 'string', description: 'The page that explains the code.' },
};
const schemaV2 = object({
  meta: object({ requestId: REQUEST_ID }),
  error: object(
    {
      ...problem,
      errors: refused({ location: 'The field.', message: 'The rule.', fix: 'What to do.' }, [
        'location',
        'message',
      ]),
    },
    Object.keys(problem),
  ),
});

const components = (schema: object, example: (code: ErrorCode) => object) => ({
  schemas: { Error: { ...schema, description: 'Every error, on every path.' } },
  responses: Object.fromEntries(
    (Object.keys(ERRORS) as ErrorCode[]).map((code) => [
      code,
      {
        description: `${code}. ${ERRORS[code][1]}`,
        ...(RETRYABLE.has(code) ? { headers: RETRY_AFTER } : {}),
        content: {
          'application/json': { schema: { $ref: '#/components/schemas/Error' }, example: example(code) },
        },
      },
    ]),
  ),
});

/** The `components` with the errors' schemas, the same in all OpenAPI documents of the project. */
export const errorComponents = components(schemaV1, (code) => errorBody(code, '…', EXAMPLE_ID));
/** The same `components` for v2 of the interface. */
export const errorComponentsV2 = components(schemaV2, (code) => errorBodyV2(code, '…', EXAMPLE_ID));

/** Returns the `responses` of an operation with these errors. */
export function errorResponses(codes: readonly ErrorCode[]): Record<string, { readonly $ref: string }> {
  return Object.fromEntries(
    codes.map((code) => [String(ERRORS[code][0]), { $ref: `#/components/responses/${code}` }]),
  );
}

/** Errors that any request can get. */
export const ANY_REQUEST: readonly ErrorCode[] = [
  'BAD_REQUEST',
  'REQUEST_TIMEOUT',
  'EXPECTATION_FAILED',
  'HEADERS_TOO_LARGE',
  'INTERNAL_SERVER_ERROR',
  'SERVICE_UNAVAILABLE',
];
/** Further errors of requests with a body. */
export const ANY_BODY: readonly ErrorCode[] = ['PAYLOAD_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE'];

/** The largest integer of 32 bits, which generators take for the type of every integer without a format. */
const INT32_MAX = 2_147_483_647;

/**
 * Returns a copy of an OpenAPI document from which generators make clients that compile: each integer says how many bits
 * it needs, and a choice between values is one `enum`, and what may be null says so in its type.
 */
export function forGenerators<T>(document: T): T {
  return rewritten(document) as T;
}

function rewritten(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rewritten);
  if (typeof value !== 'object' || value === null) return value;
  const copy: Schema = Object.fromEntries(
    Object.entries(value).map(([name, part]) => [name, SAMPLES.has(name) ? part : rewritten(part)]),
  );
  if (copy.type === 'integer' && copy.format === undefined)
    copy.format = Number(copy.maximum) <= INT32_MAX ? 'int32' : 'int64';
  if ('const' in copy && typeof copy.type === 'string') {
    copy.enum = [copy.const];
    delete copy.const;
  }
  const types = new Set(Array.isArray(copy.anyOf) ? copy.anyOf.map(({ type }) => type) : []);
  if (copy.anyOf?.every((one) => Array.isArray(one.enum)) && types.size === 1) {
    const { anyOf, ...rest } = copy;
    return { type: [...types][0], enum: anyOf.flatMap((one) => one.enum ?? []), ...rest };
  }
  const [kind, other, ...more] = copy.anyOf ?? [];
  if (kind && other?.type === 'null' && more.length === 0 && typeof kind.type === 'string') {
    const { anyOf: _, ...rest } = copy;
    const values = kind.enum === undefined ? {} : { enum: [...kind.enum, null] };
    return { ...kind, ...values, ...rest, type: [kind.type, 'null'] };
  }
  return copy;
}

/** Names of the parts that are values and not schemas. */
const SAMPLES: ReadonlySet<string> = new Set(['example', 'examples', 'default', 'enum', 'const']);

interface Schema {
  type?: unknown;
  format?: unknown;
  maximum?: unknown;
  const?: unknown;
  enum?: readonly unknown[];
  anyOf?: readonly Schema[];
}
