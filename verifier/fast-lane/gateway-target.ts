import { type AuthzPath, DIALECTS, parseAuthzPath } from '../endpoints/dialects.ts';
import { gatewayReplies, type Replies } from './reply.ts';
import { follows } from './scan-head.ts';

/** A target at which a gateway asks. */
export interface GatewayTarget extends Pick<AuthzPath, 'apiId' | 'requirements'> {
  readonly replies: Replies;
}

/** Targets at which gateways ask: the last one is remembered, since a gateway sends the same again and again. */
export class GatewayTargets {
  readonly #replies: ReadonlyMap<unknown, Replies>;
  #bytes: Buffer = Buffer.from(' ');
  #last: GatewayTarget | undefined;

  constructor(withMeta: boolean) {
    this.#replies = new Map(DIALECTS.map((dialect) => [dialect, gatewayReplies(dialect.answers, withMeta)]));
  }

  /** Returns the target between two places; undefined = it is none. */
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

/** The path, where it asks for what there can be; the rest is for the reference to refuse. */
function pathOf(target: string): AuthzPath | undefined {
  try {
    return parseAuthzPath(target);
  } catch {
    return undefined;
  }
}
