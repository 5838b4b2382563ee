import type { Question } from '../core/question/question.ts';
import { DEFAULT_REQUIREMENTS } from '../core/question/requirements.ts';
import type { Verdict } from '../core/verdict/verdict.ts';
import { jsonReplies, type Replies } from './reply.ts';
import { Head } from './scan-head.ts';

/** The request that a connection is about. Each connection has one, which is filled again and again. */
export class LaneRequest implements Question {
  readonly head = new Head();
  key = '';
  apiId: string | undefined = undefined;
  readonly tags = undefined;
  requirements = DEFAULT_REQUIREMENTS;
  readonly isRecheck = false;
  /** Answers in the form that its client expects. */
  replies: Replies = jsonReplies;
  /** True if the connection is closed after the answer. */
  isLast = false;
  /** Bytes of the whole request; 0 = so much is not known yet. */
  length = 0;
  /** Set by `judge` where it is decided. */
  verdict: Verdict | undefined = undefined;
}
