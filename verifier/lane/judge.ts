import { ApiError } from '#shared/contract/errors.ts';
import { newRequestId } from '#shared/contract/request-id.ts';
import { questionAbout } from '../core/question.ts';
import { type RefusalLog, routeOf, type Verdict } from '../core/verdict.ts';
import type { Lane } from './lane.ts';
import type { LaneRequest } from './lane-request.ts';
import type { Output } from './reply.ts';

/**
 * The result of reading a request. `decided`: it has its verdict; `undecided`: it needs a look-up; `partial`:
 * it has not completely arrived; `for Node`: it is not a common request.
 */
export type Judgement = 'decided' | 'undecided' | 'partial' | 'for Node';

/** Reads the request at `at` into `request`, and decides it if it is complete. */
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
    // A bug in the lane: the reference meets the same error and reports it.
    return 'for Node';
  }
  const { verdict } = request;
  if (verdict === undefined) return 'undecided';
  request.requestId = '';
  if (verdict.code !== 'VALID' && options.refusals !== undefined)
    note(options.refusals, request, verdict, bytes, at);
  return 'decided';
}

/** Notes a refusal under the id that the answer will have. */
function note(refusals: RefusalLog, request: LaneRequest, verdict: Verdict, bytes: Buffer, at: number): void {
  if (verdict.code === 'NOT_FOUND') return;
  request.requestId = request.head.requestId || newRequestId();
  const { requestId, clientIp } = request;
  refusals.note(verdict, { requestId, clientIp, route: routeIn(bytes, at, request.length) });
}

/** Returns the client's request as a gateway tells it in its headers; undefined = it does not. */
function routeIn(bytes: Buffer, at: number, length: number): string | undefined {
  if (bytes[at] !== GET) return undefined;
  const head = bytes.toString('latin1', at, at + length);
  const [, method] = /\r\nx-(?:original|forwarded)-method: *([^\r]+)\r/i.exec(head) ?? [];
  const [, target] = /\r\nx-(?:original|forwarded)-uri: *([^\r]+)\r/i.exec(head) ?? [];
  return routeOf(method, target);
}

/** The first byte of a gateway's request. */
const GET = 71;

/** Adds the reply to a decided request. */
export function reply(
  output: Output,
  { replies, head, requestId, verdict }: LaneRequest,
  keepAliveS: number | undefined,
): void {
  if (verdict === undefined) throw new Error('the request was not decided');
  replies.addVerdict(output, verdict, requestId || head.requestId || newRequestId(), keepAliveS);
}

/**
 * Adds the reply to a request after its look-up. Resolves with false after a bug in the lane; the reference
 * then meets the same error and reports it.
 */
export async function replyByLookUp(
  lane: Lane,
  request: LaneRequest,
  output: Output,
  bytes: Buffer,
  connection: { readonly keepAliveS: number | undefined },
): Promise<boolean> {
  const { replies } = request;
  const route = lane.options.refusals && routeIn(bytes, 0, bytes.length);
  const requestId = request.head.requestId || newRequestId();
  try {
    const verdict = await lane.options.verifier.lookUp(questionAbout(request.key, request));
    lane.options.refusals?.note(verdict, { requestId, clientIp: request.clientIp, route });
    replies.addVerdict(output, verdict, requestId, connection.keepAliveS);
  } catch (error) {
    if (!(error instanceof ApiError)) return false;
    output.text += replies.refusal(error, requestId, connection.keepAliveS);
    output.isAscii = false;
  }
  return true;
}
