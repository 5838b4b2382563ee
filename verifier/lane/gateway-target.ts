import { type AuthzPath, DIALECTS, parseAuthzPath } from '../http/dialects.ts';
import { follows } from './head.ts';
import { gatewayReplies, type Replies } from './reply.ts';

/** The target of a gateway's request. */
interface GatewayTarget extends Pick<AuthzPath, 'apiId' | 'requirements'> {
  readonly replies: Replies;
}

/**
 * The targets of gateways' requests. Remembers the last one, because a gateway sends the same target again
 * and again.
 */
export class GatewayTargets {
  readonly #replies: ReadonlyMap<unknown, Replies>;
  #bytes: Buffer = Buffer.from(' ');
  #last: GatewayTarget | undefined;

  constructor(withMeta: boolean) {
    this.#replies = new Map(DIALECTS.map((dialect) => [dialect, gatewayReplies(dialect.answers, withMeta)]));
  }

  /** Returns the target between two places; undefined = not a valid target. */
  at(bytes: Buffer, from: number, to: number): GatewayTarget | undefined {
    if (to - from === this.#bytes.length && follows(bytes, from, this.#bytes)) return this.#last;
    const path = pathOf(bytes.toString('latin1', from, to));
    const replies = path && this.#replies.get(path.dialect);
    if (path === undefined || replies === undefined) return undefined;
    this.#bytes = Buffer.from(bytes.subarray(from, to));
    this.#last = { apiId: path.apiId, requirements: path.requirements, replies };
    return this.#last;
  }
}

/** Returns the path of a valid target. The reference refuses the others. */
function pathOf(target: string): AuthzPath | undefined {
  try {
    return parseAuthzPath(target);
  } catch {
    return undefined;
  }
}
