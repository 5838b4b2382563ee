import { ApiError } from '#shared/errors.ts';
import { newRequestId } from '#shared/request-id.ts';
import { DEFAULT_REQUIREMENTS } from '../core/requirements.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Lane } from './lane.ts';
import { type ParsedQuestion, parseQuestion } from './parse-question.ts';
import { type RawAnswers, rawJson } from './reply.ts';

/** The question in hand: filled by `judge`, read before anything else runs. */
export const inHand: ParsedQuestion = {
  key: '',
  apiId: undefined,
  tags: undefined,
  requirements: DEFAULT_REQUIREMENTS,
  isRecheck: false,
  requestId: '',
  fromGateway: false,
  knows429: true,
  isLast: false,
  length: 0,
};

/** The verdict on the request at `at`, which is in hand then; undefined = it must be looked up. */
export function judge(
  { closing, options }: Lane,
  bytes: Buffer,
  at: number,
): Verdict | undefined | 'begun' | 'for Node' {
  if (closing) return 'for Node';
  const result = parseQuestion(bytes, at, options.limits.BODY_BYTES_MAX, options.authz, inHand);
  if (result !== 'whole') return result;
  try {
    return options.answers.decide(inHand);
  } catch {
    // A bug of ours: the reference meets it again, and reports it.
    return 'for Node';
  }
}

/** The reply that tells the verdict on the question in hand. */
export function replyTo(lane: Lane, verdict: Verdict, keepAliveS: number | undefined): string {
  return form(lane).decided(verdict, inHand.requestId || newRequestId(), keepAliveS);
}

/**
 * The reply to the question in hand, once it was looked up; undefined = a bug of ours: the reference meets it again, and
 * reports it.
 */
export function replyByLookUp(
  lane: Lane,
  connection: { readonly keepAliveS: number | undefined },
): Promise<string | undefined> {
  const raw = form(lane);
  const requestId = inHand.requestId || newRequestId();
  return lane.options.answers.lookUp({ ...inHand }).then(
    (verdict) => raw.decided(verdict, requestId, connection.keepAliveS),
    (error) => (error instanceof ApiError ? raw.refused(error, requestId, connection.keepAliveS) : undefined),
  );
}

/** In which form the question in hand is answered. */
function form(lane: Lane): RawAnswers {
  if (!inHand.fromGateway) return rawJson;
  return inHand.knows429 ? lane.rawAuthz : lane.rawAuthRequest;
}
