import { ApiError, errorBodyV2 } from '#shared/rules/errors.ts';
import type { Release } from '../../core/ports.ts';
import type { Question } from '../../core/question.ts';
import type { Verdict } from '../../core/verdict.ts';
import { verdictBody, verdictBodyV2 } from '../../core/verdict-body.ts';
import type { AuthzSettings } from '../http/authz.ts';
import { type GatewayAnswers, readableByPage } from '../http/gateway-answer.ts';
import { head, JSON_LINE, PROBLEM_TYPE, refusalAsJson, refusalAsProblem } from '../http/respond.ts';
import { releaseBody } from '../http/verify-key.ts';

/** Responses that wait to be written to a client. Each connection has one such object and reuses it. */
export class Output {
  text = '';
  /** True if every character is one byte, which makes encoding the text cheaper. */
  isAscii = true;

  clear(): void {
    this.text = '';
    this.isAscii = true;
  }
}

/**
 * Responses as text, written without `node:http` but identical byte for byte to those of `verify-key.ts` and
 * `authz.ts`. `keepAliveS` is the number of seconds for which the connection then stays open; undefined = it
 * is closed.
 */
export interface Replies {
  /** Adds the answer to a question with a verdict. */
  addVerdict(
    output: Output,
    verdict: Verdict,
    requestId: string,
    keepAliveS: number | undefined,
    question: Pick<Question, 'presenter'>,
  ): void;
  /** Returns the answer to a question without a verdict. */
  refusal(error: ApiError, requestId: string, keepAliveS: number | undefined): string;
}

function addJson(
  output: Output,
  body: string,
  { entry }: Verdict,
  requestId: string,
  keepAliveS: number | undefined,
): void {
  const bytes = entry?.details === undefined ? body.length : Buffer.byteLength(body);
  if (bytes !== body.length) output.isAscii = false;
  output.text += head(200, requestId, JSON_LINE, bytes, keepAliveS) + body;
}

/** Replies to a client of verifyKey, or to a request that could not be read. */
export const jsonReplies: Replies = {
  addVerdict: (output, verdict, requestId, keepAliveS) =>
    addJson(output, verdictBody(verdict, requestId), verdict, requestId, keepAliveS),
  refusal: refusalAsJson,
};

/** Replies to a client of verifyKey in v2 of the interface. */
export const jsonRepliesV2: Replies = {
  addVerdict: (output, verdict, requestId, keepAliveS) =>
    addJson(output, verdictBodyV2(verdict, requestId), verdict, requestId, keepAliveS),
  refusal: (error, requestId, keepAliveS) => refusalAsJson(error, requestId, keepAliveS, errorBodyV2),
};

/** Adds the answer to a request that ends a hold, or the error. */
export function addRelease(
  output: Output,
  release: Release | ApiError,
  requestId: string,
  keepAliveS: number | undefined,
): void {
  if (release instanceof ApiError) {
    output.text += refusalAsJson(release, requestId, keepAliveS);
    output.isAscii = false;
    return;
  }
  const body = releaseBody(release, requestId);
  output.text += head(200, requestId, JSON_LINE, body.length, keepAliveS) + body;
}

/** Returns the replies to gateways with these answers. They are ASCII only. */
export function gatewayReplies(
  answers: GatewayAnswers,
  settings: Pick<AuthzSettings, 'sources' | 'withMeta' | 'stamps' | 'allowPreflight'>,
): Replies {
  const { allowPreflight } = settings;
  return {
    addVerdict(output, verdict, requestId, keepAliveS, question) {
      const { code, entry, spending } = verdict;
      const isPlain = code === 'VALID' && entry?.details === undefined && spending === undefined;
      if (isPlain && entry !== undefined && answers.plainLines) {
        output.text += head(200, requestId, answers.plainLines(verdict, entry, settings), 0, keepAliveS);
        return;
      }
      const plain = answers.answer(verdict, requestId, settings);
      const answer =
        code === 'VALID' ? plain : readableByPage(plain, verdict, question.presenter.origin, allowPreflight);
      const { status, allowances, body, type = PROBLEM_TYPE } = answer;
      const headers = allowances ? [...answer.headers, ...allowances] : answer.headers;
      let lines = body === '' ? '' : `Content-Type: ${type}\r\n`;
      for (let i = headers.length - 1; i >= 0; i--)
        lines = `${headers[i]?.[0]}: ${headers[i]?.[1]}\r\n${lines}`;
      output.text += head(status, requestId, lines, body.length, keepAliveS) + body;
    },
    refusal: refusalAsProblem,
  };
}
