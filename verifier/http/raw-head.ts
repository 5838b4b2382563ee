import { STATUS_CODES } from 'node:http';
import { type ApiError, errorBody, type errorBodyV2, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import { systemClock } from '#shared/lang/clock.ts';
import { flattenString } from '#shared/lang/flatten-string.ts';
import { PROBLEM_TYPE, problemBody } from './problem.ts';
import { JSON_TYPE } from './respond.ts';

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
