import { DEFAULT_REQUIREMENTS, type Question } from '../core/question.ts';
import type { Verdict } from '../core/verdict.ts';
import { Head } from './head.ts';
import { jsonReplies, type Replies } from './reply.ts';

/** The current request of a connection. Each connection has one such object and reuses it. */
export class LaneRequest implements Question {
  readonly head = new Head();
  key = '';
  apiId: string | undefined = undefined;
  clientIp: string | undefined = undefined;
  readonly tags = undefined;
  requirements = DEFAULT_REQUIREMENTS;
  readonly isRecheck = false;
  allowedApis: ReadonlySet<string> | undefined = undefined;
  /** Answers in the form that the client expects. */
  replies: Replies = jsonReplies;
  /** True if the connection is closed after the answer. */
  isLast = false;
  /** Length of the whole request, in bytes; 0 = not known yet. */
  length = 0;
  /** The id in the answer; `''` = the client's, or a new one. */
  requestId = '';
  /** The verdict, set by `judge` if it is in memory. */
  verdict: Verdict | undefined = undefined;
}
