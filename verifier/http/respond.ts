import { type ServerResponse, STATUS_CODES } from 'node:http';
import { type ApiError, errorBody, errorBodyV2, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { PROBLEM_TYPE, problemBody } from './problem.ts';

/** The content type of all answers except those to gateways. */
export const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * Time for which the server reads on after it refused a request whose body is still arriving, in
 * milliseconds.
 */
export const LINGER_MS = 1000;
/** Bytes of a refused body that the server reads and discards before it cuts the connection. */
const LINGER_BYTES_MAX = 1_048_576;

/**
 * Answers with a complete body.
 * @param type content type; undefined = no body
 */
export function answer(
  response: ServerResponse,
  status: number,
  type: string | undefined,
  body: string,
): void {
  const lingering = mayBeLong(response);
  if (lingering) response.shouldKeepAlive = false;
  if (type !== undefined) response.setHeader('Content-Type', type);
  // Sets the phrase too: if writing another head failed, its phrase would still be set.
  response.writeHead(status, STATUS_CODES[status] ?? '', { 'Content-Length': Buffer.byteLength(body) });
  if (!lingering) return void response.end(body);
  response.write(body);
  linger(response);
}

/** Does the same as `answer`, in JSON. */
export function answerJson(response: ServerResponse, status: number, body: string): void {
  answer(response, status, JSON_TYPE, body);
}

/** Sets the headers of every answer from this process. */
export function identify(response: ServerResponse, requestId: string): void {
  response.setHeader('X-Request-Id', requestId).setHeader('Cache-Control', 'no-store');
}

/**
 * Answers with an error.
 * @param isProblem true = in the form of RFC 9457 and without the message, for any client, as always below
 * `/authz/`; false = in the contract's form
 */
export function answerError(
  response: ServerResponse,
  error: ApiError,
  requestId: string,
  isProblem: boolean,
): void {
  identify(response, requestId);
  if (error.code === 'SERVICE_UNAVAILABLE') response.setHeader('Retry-After', RETRY_AFTER_SECONDS);
  if (error.code === 'UNAUTHORIZED') response.setHeader('WWW-Authenticate', 'Bearer');
  const { type, body } = errorBodyOf(error, requestId, isProblem, response.req.url ?? '');
  answer(response, error.status, type, body);
}

function errorBodyOf(
  { code, status, message }: ApiError,
  requestId: string,
  isProblem: boolean,
  url: string,
): { type: string; body: string } {
  if (isProblem || url.startsWith('/authz/'))
    return { type: PROBLEM_TYPE, body: problemBody({ status, code, requestId }) };
  const bodyOf = url.startsWith('/v2/') ? errorBodyV2 : errorBody;
  return { type: JSON_TYPE, body: JSON.stringify(bodyOf(code, message, requestId)) };
}

/** Returns true if much of the request may still arrive. Node skips a short rest by itself. */
function mayBeLong({ req: request }: ServerResponse): boolean {
  if (request.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  return coding !== undefined || expect !== undefined || Number(length) > request.readableHighWaterMark;
}

/**
 * Reads on for a while before the connection is closed. If a connection is closed with unread bytes, the
 * kernel sends a reset, which can overtake the answer.
 */
function linger(response: ServerResponse): void {
  const request = response.req;
  let bytes = 0;
  const end = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, LINGER_MS);
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES_MAX) end();
  });
  request.once('end', end).once('close', end).resume();
}
