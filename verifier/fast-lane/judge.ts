import { ApiError } from '#shared/contract/errors.ts';
import { newRequestId } from '#shared/contract/request-id.ts';
import { questionAbout } from '../core/question/question.ts';
import type { Lane } from './lane.ts';
import type { LaneRequest } from './lane-request.ts';
import type { Output } from './reply.ts';

/**
 * `decided`: the request has its verdict; `undecided`: it must be looked up; `partial`: it is not here whole; `for Node`: it is
 * not common.
 */
export type Judgement = 'decided' | 'undecided' | 'partial' | 'for Node';

/** Reads the request at `at` into `request`, and judges it where it is whole. */
export function judge(
  { closing, reader, options }: Lane,
  bytes: Buffer,
  at: number,
  request: LaneRequest,
): Judgement {
  if (closing) return 'for Node';
  const completeness = reader.read(bytes, at, request);
  if (completeness !== 'whole') return completeness;
  try {
    request.verdict = options.verifier.decide(request);
  } catch {
    // A bug of ours: the reference meets it again, and reports it.
    return 'for Node';
  }
  return request.verdict === undefined ? 'undecided' : 'decided';
}

/** Adds the reply to a request that was decided. */
export function reply(
  output: Output,
  { replies, head, verdict }: LaneRequest,
  keepAliveS: number | undefined,
): void {
  if (verdict === undefined) throw new Error('the request was not decided');
  replies.addVerdict(output, verdict, head.requestId || newRequestId(), keepAliveS);
}

/**
 * Adds the reply to a request, once it was looked up. Resolves with false on a bug of ours: the reference meets it again, and
 * reports it.
 */
export async function replyByLookUp(
  lane: Lane,
  request: LaneRequest,
  output: Output,
  connection: { readonly keepAliveS: number | undefined },
): Promise<boolean> {
  const { replies } = request;
  const requestId = request.head.requestId || newRequestId();
  try {
    const verdict = await lane.options.verifier.lookUp(questionAbout(request.key, request));
    replies.addVerdict(output, verdict, requestId, connection.keepAliveS);
  } catch (error) {
    if (!(error instanceof ApiError)) return false;
    output.text += replies.refusal(error, requestId, connection.keepAliveS);
    output.isAscii = false;
  }
  return true;
}
