import { STATUS_CODES } from 'node:http';
import { systemClock } from '#shared/clock.ts';
import { type ApiError, errorBody, RETRY_AFTER_SECONDS } from '#shared/errors.ts';
import { JSON_TYPE } from './answer.ts';
import { authzAnswer } from './authz.ts';
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
  const connection = keepAliveS === undefined ? 'close' : `keep-alive\r\nKeep-Alive: timeout=${keepAliveS}`;
  return (
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nX-Request-Id: ${requestId}\r\nCache-Control: no-store\r\n${lines}` +
    `Content-Length: ${bytes}\r\nDate: ${date()}\r\nConnection: ${connection}\r\n\r\n`
  );
}

let dateS = 0;
let dateText = '';

/** The `Date` header, made once a second. */
function date(): string {
  const nowS = Math.floor(systemClock.wallMs() / 1000);
  if (nowS !== dateS) {
    dateS = nowS;
    dateText = new Date(nowS * 1000).toUTCString();
  }
  return dateText;
}
