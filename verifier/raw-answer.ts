import { STATUS_CODES } from 'node:http';
import { systemClock } from '#shared/clock.ts';
import { type ApiError, errorBody, RETRY_AFTER_SECONDS } from '#shared/errors.ts';
import { JSON_TYPE } from './answer.ts';
import { authzAnswer } from './authz.ts';
import type { Entry } from './cache.ts';
import { PROBLEM_TYPE, problemBody } from './problem.ts';
import { type Verdict, verdictBody } from './verdict.ts';

/**
 * Responses as text, written without `node:http` and byte for byte as it sends those of `answer.ts` and `authz.ts`.
 * `keepAliveS`: how long the connection then stays open, seconds; undefined = it is closed.
 */
export interface RawAnswers {
  /** The answer to a question that was decided. */
  decided(verdict: Verdict, requestId: string, keepAliveS: number | undefined): string;
  /** The answer to one that was not. */
  refused(error: ApiError, requestId: string, keepAliveS: number | undefined): string;
}

/** To a client of verifyKey, or to anybody whose question could not be read. */
export const rawJson: RawAnswers = {
  decided(verdict, requestId, keepAliveS) {
    const body = verdictBody(verdict, requestId);
    const bytes = verdict.entry?.details === undefined ? body.length : Buffer.byteLength(body);
    return head(200, requestId, JSON_LINE, bytes, keepAliveS) + body;
  },
  refused(error, requestId, keepAliveS) {
    const body = JSON.stringify(errorBody(error.code, error.message, requestId));
    const lines = retryLine(error) + JSON_LINE;
    return head(error.status, requestId, lines, Buffer.byteLength(body), keepAliveS) + body;
  },
};

/** To a gateway. ASCII throughout. */
export function rawAuthz(withMeta: boolean): RawAnswers {
  return {
    decided(verdict, requestId, keepAliveS) {
      const { code, entry } = verdict;
      if (code === 'VALID' && entry !== undefined && entry.details === undefined) {
        return head(200, requestId, plainIdentity(entry, withMeta), 0, keepAliveS);
      }
      const { status, headers, body } = authzAnswer(verdict, requestId, withMeta);
      let lines = body === '' ? '' : PROBLEM_LINE;
      for (let i = headers.length - 1; i >= 0; i--)
        lines = `${headers[i]?.[0]}: ${headers[i]?.[1]}\r\n${lines}`;
      return head(status, requestId, lines, body.length, keepAliveS) + body;
    },
    refused(error, requestId, keepAliveS) {
      const { status, code } = error;
      const body = problemBody({ status, code, requestId });
      return head(status, requestId, retryLine(error) + PROBLEM_LINE, body.length, keepAliveS) + body;
    },
  };
}

/** The lines of `identityHeaders` for a key without details, as almost all are. */
const plainIdentity = ({ keyId, epoch }: Entry, withMeta: boolean) =>
  `X-Key-Id: ${keyId}\r\nX-Key-Api-Id: ${epoch.apiId}\r\nX-Key-Name: \r\nX-Key-External-Id: \r\n${withMeta ? 'X-Key-Meta: {}\r\n' : ''}`;

/** The lines that `node:http` adds to a head: `Date` where it has none yet, then what becomes of the connection. */
export function addedLines(isDated: boolean, keepAliveS: number | undefined): string {
  const { date, connection } = makeEnds(keepAliveS);
  return isDated ? connection : date + connection;
}

const JSON_LINE = `Content-Type: ${JSON_TYPE}\r\n`;
const PROBLEM_LINE = `Content-Type: ${PROBLEM_TYPE}\r\n`;

const retryLine = ({ code }: ApiError) =>
  code === 'SERVICE_UNAVAILABLE' ? `Retry-After: ${RETRY_AFTER_SECONDS}\r\n` : '';

/** @param lines header lines besides those that every answer has, with their ends */
function head(
  status: number,
  requestId: string,
  lines: string,
  bytes: number,
  keepAliveS: number | undefined,
): string {
  return `${STARTS[status]}${requestId}\r\nCache-Control: no-store\r\n${lines}Content-Length: ${bytes}${makeEnds(keepAliveS).both}`;
}

/** How an answer begins, by its status. */
const STARTS = Object.fromEntries(
  Object.entries(STATUS_CODES).map(([status, reason]) => [
    status,
    inOne(`HTTP/1.1 ${status} ${reason}\r\nX-Request-Id: `),
  ]),
);

/** How a head ends: the date, and what becomes of the connection; made once a second for either of the two. */
const endsOf = () => ({
  s: 0,
  keepAliveS: undefined as number | undefined,
  date: '',
  connection: '',
  both: '',
});
const [closing, lasting] = [endsOf(), endsOf()];

function makeEnds(keepAliveS: number | undefined): typeof closing {
  const ends = keepAliveS === undefined ? closing : lasting;
  const nowS = Math.floor(systemClock.wallMs() / 1000);
  if (nowS !== ends.s || keepAliveS !== ends.keepAliveS) {
    const connection = keepAliveS === undefined ? 'close' : `keep-alive\r\nKeep-Alive: timeout=${keepAliveS}`;
    ends.s = nowS;
    ends.keepAliveS = keepAliveS;
    ends.date = inOne(`Date: ${new Date(nowS * 1000).toUTCString()}\r\n`);
    ends.connection = inOne(`Connection: ${connection}\r\n`);
    ends.both = inOne(`\r\n${ends.date}${ends.connection}\r\n`);
  }
  return ends;
}

/** The same text, in one piece: V8 keeps a concatenation as its parts, and puts them together at every use. */
function inOne(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}
