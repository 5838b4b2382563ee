import { ERROR_DOCS_PATH, ERRORS, type ErrorCode } from './errors.ts';

const RETRIED: ReadonlySet<string> = new Set<ErrorCode>(['RATE_LIMITED', 'SERVICE_UNAVAILABLE']);
const RETRY_AFTER = { 'Retry-After': { description: 'Seconds.', schema: { type: 'integer' } } };

/** Schemas of errors, the same in every OpenAPI document of ours; its `components`. */
export const errorComponents = {
  schemas: {
    Error: {
      type: 'object',
      description: 'Every error, on every path.',
      properties: {
        error: {
          type: 'object',
          properties: {
            code: { type: 'string', enum: Object.keys(ERRORS), description: 'Never renamed, never reused.' },
            message: { type: 'string', description: 'For people; names the field and the rule.' },
            docs: { type: 'string', description: 'Where the code is explained.' },
            requestId: { type: 'string', description: 'As in X-Request-Id.' },
          },
          required: ['code', 'message', 'docs', 'requestId'],
        },
      },
      required: ['error'],
    },
  },
  responses: Object.fromEntries(
    Object.entries(ERRORS).map(([code, [, meaning]]) => [
      code,
      {
        description: `${code}. ${meaning}`,
        ...(RETRIED.has(code) ? { headers: RETRY_AFTER } : {}),
        content: {
          'application/json': {
            schema: { $ref: '#/components/schemas/Error' },
            example: {
              error: {
                code,
                message: '…',
                docs: `${ERROR_DOCS_PATH}#${code}`,
                requestId: '0mzc9k4q8r2wfXa1',
              },
            },
          },
        },
      },
    ]),
  ),
};

/** The `responses` of an operation that can end in these errors. */
export function errorResponses(codes: readonly ErrorCode[]): Record<string, { readonly $ref: string }> {
  return Object.fromEntries(
    codes.map((code) => [String(ERRORS[code][0]), { $ref: `#/components/responses/${code}` }]),
  );
}

/** Errors that any request can end in. */
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
