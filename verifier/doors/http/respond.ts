import { type ServerResponse, STATUS_CODES } from 'node:http';
import { systemClock } from '#shared/process/clock.ts';
import { flattenString } from '#shared/process/flatten-string.ts';
import { type ApiError, errorBody, errorBodyV2, RETRY_AFTER_SECONDS } from '#shared/rules/errors.ts';

/** The content type of RFC 9457. */
export const PROBLEM_TYPE = 'application/problem+json';

/**
 * Returns the body of a refusal in a form that a gateway may pass on to its client (RFC 9457). The body
 * reveals nothing about what is behind the gateway.
 * @param problem.detail text for humans
 */
export function problemBody(problem: {
  status: number;
  code: string;
  detail?: string;
  cost?: number;
  remaining?: number;
  requestId: string;
}): string {
  return JSON.stringify({ title: STATUS_CODES[problem.status], ...problem });
}

/** The content type of all answers except those to gateways. */
const JSON_TYPE = 'application/json; charset=utf-8';

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

/** Responses as text, written without `node:http` but identical to its responses byte for byte. */

/**
 * Returns a refusal in the contract's form, as `respond.ts` sends it.
 * @param bodyOf creates the body, in the form of v1 or v2 of the interface
 */
export function refusalAsJson(
  error: ApiError,
  requestId: string,
  keepAliveS: number | undefined,
  bodyOf: typeof errorBody | typeof errorBodyV2 = errorBody,
): string {
  const body = JSON.stringify(bodyOf(error.code, error.message, requestId));
  const lines = retryLine(error) + JSON_LINE;
  return head(error.status, requestId, lines, Buffer.byteLength(body), keepAliveS) + body;
}

/** Returns a refusal in the form of RFC 9457, in ASCII only. */
export function refusalAsProblem(error: ApiError, requestId: string, keepAliveS: number | undefined): string {
  const { status, code } = error;
  const body = problemBody({ status, code, requestId });
  return head(status, requestId, retryLine(error) + PROBLEM_LINE, body.length, keepAliveS) + body;
}

/**
 * Returns the lines that `node:http` adds to a head: `Date` if it is missing, then `Connection` and
 * `Keep-Alive`.
 */
export function addedLines(isDated: boolean, keepAliveS: number | undefined): string {
  const { date, connection } = makeEnds(keepAliveS);
  return isDated ? connection : date + connection;
}

export const JSON_LINE = `Content-Type: ${JSON_TYPE}\r\n`;
const PROBLEM_LINE = `Content-Type: ${PROBLEM_TYPE}\r\n`;

const retryLine = ({ code }: ApiError) =>
  code === 'SERVICE_UNAVAILABLE' ? `Retry-After: ${RETRY_AFTER_SECONDS}\r\n` : '';

/**
 * Returns the head of a response that has a request id and may not be cached.
 * @param lines further header lines, each with its line end
 * @param keepAliveS seconds for which the connection then stays open; undefined = it is closed
 */
export function head(
  status: number,
  requestId: string,
  lines: string,
  bytes: number,
  keepAliveS: number | undefined,
): string {
  return `${STARTS[status]}${requestId}\r\nCache-Control: no-store\r\n${lines}Content-Length: ${bytes}${makeEnds(keepAliveS).both}`;
}

/** The beginning of a response for each status. */
const STARTS = Object.fromEntries(
  Object.entries(STATUS_CODES).map(([status, reason]) => [
    status,
    flattenString(`HTTP/1.1 ${status} ${reason}\r\nX-Request-Id: `),
  ]),
);

/**
 * Creates the end of a head: the date, and whether the connection stays open. It is built once a second for
 * each of the two cases.
 */
const endsOf = () => ({
  s: 0,
  keepAliveS: undefined as number | undefined,
  date: '',
  connection: '',
  both: '',
});
const [closing, keptOpen] = [endsOf(), endsOf()];

function makeEnds(keepAliveS: number | undefined): typeof closing {
  const ends = keepAliveS === undefined ? closing : keptOpen;
  const nowS = Math.floor(systemClock.wallMs() / 1000);
  if (nowS !== ends.s || keepAliveS !== ends.keepAliveS) {
    const connection = keepAliveS === undefined ? 'close' : `keep-alive\r\nKeep-Alive: timeout=${keepAliveS}`;
    ends.s = nowS;
    ends.keepAliveS = keepAliveS;
    ends.date = flattenString(`Date: ${new Date(nowS * 1000).toUTCString()}\r\n`);
    ends.connection = flattenString(`Connection: ${connection}\r\n`);
    ends.both = flattenString(`\r\n${ends.date}${ends.connection}\r\n`);
  }
  return ends;
}
