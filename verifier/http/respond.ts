import { type ServerResponse, STATUS_CODES } from 'node:http';
import { type ApiError, errorBody, errorBodyV2, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { PROBLEM_TYPE, problemBody } from './problem.ts';

/** The content type of all but a gateway's answers. */
export const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * Time for which a connection is kept to read what a client still sends after its request was refused, milliseconds.
 */
export const LINGER_MS = 1000;
/** Bytes of a refused body that are read and thrown away before the connection is cut. */
const LINGER_BYTES_MAX = 1_048_576;

/**
 * Answers with a whole body.
 * @param type content type; undefined = there is no body
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
  // The phrase too: where another head could not be written, that one's is still there.
  response.writeHead(status, STATUS_CODES[status] ?? '', { 'Content-Length': Buffer.byteLength(body) });
  if (!lingering) return void response.end(body);
  response.write(body);
  linger(response);
}

/** As `answer`, in JSON. */
export function answerJson(response: ServerResponse, status: number, body: string): void {
  answer(response, status, JSON_TYPE, body);
}

/** Sets the headers that every answer of ours has. */
export function identify(response: ServerResponse, requestId: string): void {
  response.setHeader('X-Request-Id', requestId).setHeader('Cache-Control', 'no-store');
}

/**
 * An error: in the contract's shape, or for any client.
 * @param isProblem whether it is for any client, as those of `/authz/` always are: RFC 9457, without our message
 */
export function answerError(
  response: ServerResponse,
  error: ApiError,
  requestId: string,
  isProblem: boolean,
): void {
  identify(response, requestId);
  if (error.code === 'SERVICE_UNAVAILABLE') response.setHeader('Retry-After', RETRY_AFTER_SECONDS);
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

/** Tells whether much may still come of a request that is being answered; a short rest is left to Node to skip. */
function mayBeLong({ req: request }: ServerResponse): boolean {
  if (request.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  return coding !== undefined || expect !== undefined || Number(length) > request.readableHighWaterMark;
}

/**
 * Reads on for a while before the connection is closed: closing it with unread bytes makes the kernel send a
 * reset, which can overtake the answer.
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
