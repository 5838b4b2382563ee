import type { RedisNodes } from '#shared/redis/redis.ts';
import { pendingSignIn } from '#shared/redis/redis-keys.ts';
import { hashSecret } from '#shared/rules/key-format.ts';

/** A sign-in ends if the provider has not sent the browser back in this time. */
export const SIGN_IN_MS_MAX = 10 * 60_000;

/** The secrets of a sign-in by which its answer is checked. */
export interface SignInCheck {
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
}

/** A sign-in that its browser finished, and may load again. */
const FINISHED = 'finished';

/**
 * Sign-ins that wait for the identity provider. Each can be taken once, and only by the browser in which it
 * began, which may have several.
 */
export class PendingSignIns {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** @param browser random text in a cookie of the browser */
  async add(browser: string, check: SignInCheck): Promise<void> {
    const record = recordOf(browser, check.state);
    await this.#nodes.run(record, (redis) => redis.set(record, JSON.stringify(check), 'PX', SIGN_IN_MS_MAX));
  }

  /** @returns undefined if it began in another browser, was taken already, is over, or never was */
  async take(browser: string, state: string): Promise<SignInCheck | typeof FINISHED | undefined> {
    const record = recordOf(browser, state);
    const text = await this.#nodes.run(record, (redis) => redis.getdel(record));
    if (text === FINISHED) await this.finish(browser, state);
    return text === null || text === FINISHED ? (text ?? undefined) : (JSON.parse(text) as SignInCheck);
  }

  /** Notes that a sign-in that was taken led to a session. */
  async finish(browser: string, state: string): Promise<void> {
    const record = recordOf(browser, state);
    await this.#nodes.run(record, (redis) => redis.set(record, FINISHED, 'PX', SIGN_IN_MS_MAX));
  }
}

const recordOf = (browser: string, state: string) =>
  pendingSignIn(hashSecret(JSON.stringify([browser, state])));
