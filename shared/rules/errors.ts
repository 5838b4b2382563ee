import { isWellFormed } from './key-format.ts';

/** All errors that a client can get: the status, the meaning and what to do, for the documentation. */
export const ERRORS = {
  BAD_REQUEST: [400, 'The body, the query or a field is invalid. The message names the field and the rule.'],
  UNAUTHORIZED: [
    401,
    'The root key is missing, malformed, unknown or disabled. Send `Authorization: Bearer <root key>`.',
  ],
  INSUFFICIENT_PERMISSIONS: [403, 'The root key is known but lacks the permission that the message names.'],
  NOT_FOUND: [
    404,
    'The path, API or key does not exist, or the root key has no permission at all on that API.',
  ],
  HOLD_UNKNOWN: [
    404,
    'No such hold is open at this verifier: it was released more than a minute ago, or its time was over; or another verifier has it, which the message names.',
  ],
  METHOD_NOT_ALLOWED: [
    405,
    'The path does not accept this method. The `Allow` header names the accepted methods.',
  ],
  REQUEST_TIMEOUT: [408, 'The request did not arrive completely in time. Send it again.'],
  CONFLICT: [
    409,
    'The id is in use or still being deleted; or the secret already exists; or a failover lost the write, and another write may have taken its place; or its Idempotency-Key belongs to another call, or to one in progress. Read the current state before you try again.',
  ],
  VERIFIERS_TOO_OLD: [
    409,
    'The verifiers that the message names are too old for a feature that this write uses. Nothing was written. Upgrade them, then send the write again.',
  ],
  PAYLOAD_TOO_LARGE: [413, 'The body is larger than the limit that the message names.'],
  URI_TOO_LONG: [414, 'The path or query is longer than the limit.'],
  UNSUPPORTED_MEDIA_TYPE: [415, 'Send the body as `application/json`.'],
  EXPECTATION_FAILED: [417, 'The only supported value of the header `Expect` is `100-continue`.'],
  RATE_LIMITED: [429, 'There were too many requests. Try again after `Retry-After` seconds.'],
  HEADERS_TOO_LARGE: [431, 'The request headers are larger than the limit.'],
  INTERNAL_SERVER_ERROR: [500, 'This is a bug in Keyfence. The log has the details under the `requestId`.'],
  SERVICE_UNAVAILABLE: [
    503,
    'The process cannot reach Redis, is not yet in sync with Redis, or is shedding load. Unless the message says that nothing was changed, the outcome of a write is unknown. Try again after `Retry-After` seconds.',
  ],
  BAD_GATEWAY: [502, 'The verifier got no answer from the API behind it. Only in proxy mode.'],
  GATEWAY_TIMEOUT: [504, 'The API behind the verifier did not answer in time. Only in proxy mode.'],
} as const satisfies Record<string, readonly [status: number, meaning: string]>;

/** A code by which clients distinguish errors. It is never renamed and never reused. */
export type ErrorCode = keyof typeof ERRORS;

/** An error for the client. The message must not contain a secret. Only the log shows `cause`. */
export class ApiError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'ApiError';
    this.code = code;
  }

  get status(): number {
    return ERRORS[this.code][0];
  }
}

/** Returns the error for an outage: no decision was possible. Clients get 503 with `Retry-After`. */
export function unavailable(message: string, cause?: unknown): ApiError {
  return new ApiError('SERVICE_UNAVAILABLE', message, cause === undefined ? undefined : { cause });
}

/** Seconds that a client should wait after a 503. */
export const RETRY_AFTER_SECONDS = 1;

/** The path at which both processes serve the meaning of every code. */
export const ERROR_DOCS_PATH = '/docs/errors';

/**
 * Returns the body of every error response. Messages repeat ids and field names from the request. If a caller
 * put a key in their place, it is removed. `details` lists the refused fields of a bad request.
 * @param base the server's address as its caller knows it, before the path of the documentation
 */
export function errorBody(code: ErrorCode, message: string, requestId: string, base = '') {
  const text = withoutKeys(message);
  const details = code === 'BAD_REQUEST' ? { details: text.split('\n').map(refusedField) } : {};
  return { error: { code, message: text, ...details, docs: `${base}${ERROR_DOCS_PATH}#${code}`, requestId } };
}

/**
 * Returns the body of an error response in v2 of the interface.
 * @param base as for `errorBody`
 */
export function errorBodyV2(code: ErrorCode, message: string, requestId: string, base = '') {
  const [status] = ERRORS[code];
  const detail = withoutKeys(message);
  const title = code.replaceAll(
    /_?([A-Z])([A-Z]*)/g,
    (_word, first, rest) => ` ${first}${rest.toLowerCase()}`,
  );
  const error = { title: title.trim(), detail, status, type: `${base}${ERROR_DOCS_PATH}#${code}` };
  if (code !== 'BAD_REQUEST') return { meta: { requestId }, error };
  const errors = detail.split('\n').map((line) => {
    const { field, rule, ...fix } = refusedField(line);
    return { location: field === 'body' ? field : `body.${field}`, message: rule, ...fix };
  });
  return { meta: { requestId }, error: { ...error, errors } };
}

/**
 * Takes a line of the message of a bad request apart: it names the field before a colon, and after a semicolon the fix.
 * A line without a field is about the whole body.
 */
function refusedField(line: string): { field: string; rule: string; fix?: string } {
  const [, field = 'body', text = line] = /^([\w.-]+): (.*)$/s.exec(line) ?? [];
  const [rule = text, ...fixes] = text.split('; ');
  return { field, rule, ...(fixes.length > 0 ? { fix: fixes.join('; ') } : {}) };
}

const withoutKeys = (message: string) =>
  message.replace(/[0-9A-Za-z_]{28,}/g, (word) => (isWellFormed(word) ? '[a key]' : word));

/** Returns the HTML that explains each error code. */
export const errorSections = (): string =>
  Object.entries(ERRORS)
    .map(
      ([code, [status, meaning]]) =>
        `<section id="${code}"><h2>${code} <small>${status}</small></h2><p>${meaning.replaceAll('<', '&lt;')}</p></section>`,
    )
    .join('');

/** Returns the page at `ERROR_DOCS_PATH` of a process without a dashboard. */
export function errorDocsHtml(): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Keyfence errors</title><h1>Errors</h1>${errorSections()}</html>\n`;
}

/**
 * Converts a thrown value to the error for the client. Returns an ApiError unchanged. Anything else is a bug
 * in this process: it is logged here, under the only message that the runbook names, and the client gets 500.
 */
export function toApiError(
  err: unknown,
  log: { error(fields: object, message: string): void },
  request: { readonly requestId?: string; readonly traceId?: string | undefined } = {},
): ApiError {
  if (err instanceof ApiError) return err;
  log.error({ ...request, err }, UNHANDLED);
  return new ApiError('INTERNAL_SERVER_ERROR', 'something went wrong on our side', { cause: err });
}

/** Log message of an unexpected error. */
export const UNHANDLED = 'unhandled error';
