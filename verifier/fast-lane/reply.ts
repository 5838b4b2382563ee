import type { ApiError } from '#shared/errors.ts';
import type { Entry } from '../core/key-cache.ts';
import { type Verdict, verdictBody } from '../core/verdict.ts';
import { authzAnswer } from '../endpoints/authz.ts';
import { head, JSON_LINE, PROBLEM_LINE, refusalAsJson, refusalAsProblem } from '../http/raw-head.ts';

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

/** The answer that `decided` wrote last: as ASCII alone it is sent without being read once more. */
export const written = { isAscii: true };

/** To a client of verifyKey, or to anybody whose question could not be read. */
export const rawJson: RawAnswers = {
  decided(verdict, requestId, keepAliveS) {
    const body = verdictBody(verdict, requestId);
    const bytes = verdict.entry?.details === undefined ? body.length : Buffer.byteLength(body);
    written.isAscii = bytes === body.length;
    return head(200, requestId, JSON_LINE, bytes, keepAliveS) + body;
  },
  refused: refusalAsJson,
};

/** To a gateway. ASCII throughout. */
export function rawAuthz(withMeta: boolean, knows429 = true): RawAnswers {
  return {
    decided(verdict, requestId, keepAliveS) {
      const { code, entry } = verdict;
      written.isAscii = true;
      if (code === 'VALID' && entry !== undefined && entry.details === undefined) {
        return head(200, requestId, plainIdentity(entry, withMeta), 0, keepAliveS);
      }
      const { status, headers, body } = authzAnswer(verdict, requestId, withMeta, knows429);
      let lines = body === '' ? '' : PROBLEM_LINE;
      for (let i = headers.length - 1; i >= 0; i--)
        lines = `${headers[i]?.[0]}: ${headers[i]?.[1]}\r\n${lines}`;
      return head(status, requestId, lines, body.length, keepAliveS) + body;
    },
    refused: refusalAsProblem,
  };
}

/** The lines of `identityHeaders` for a key without details, as almost all are. */
const plainIdentity = ({ keyId, epoch }: Entry, withMeta: boolean) =>
  `X-Key-Id: ${keyId}\r\nX-Key-Api-Id: ${epoch.apiId}\r\nX-Key-Name: \r\nX-Key-External-Id: \r\n${withMeta ? 'X-Key-Meta: {}\r\n' : ''}`;
