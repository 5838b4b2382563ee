import type { Clock } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Scope, SharedLog } from '#shared/protocol/follower/shared-log.ts';
import { rootKeyFrom } from '#shared/protocol/records/root-keys-record.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { ROOT_KEYS_ID } from '#shared/rules/key-format.ts';

/** The permissions for calls about keys, and for calls about limits without a key. */
export const PERMISSIONS = { keys: 'api.<apiId>.verify_key', limits: 'root.*.check_rate_limit' } as const;

/** The callers of a verifier that asks for root keys. It knows root keys from memory, as it knows keys. */
export class Callers {
  readonly #sharedLog: Pick<SharedLog, 'scopes' | 'readRecord'>;
  readonly #deadlines: Deadlines<(error: unknown) => void>;

  /** @param options.waitMs longest wait for Redis, in milliseconds */
  constructor(options: {
    sharedLog: Pick<SharedLog, 'scopes' | 'readRecord'>;
    clock: Clock;
    waitMs: number;
    tooSlow: () => Error;
  }) {
    const { sharedLog, clock, waitMs, tooSlow } = options;
    this.#sharedLog = sharedLog;
    this.#deadlines = new Deadlines(clock, waitMs, (fail) => fail(tooSlow()));
  }

  /**
   * Returns what the holder of this root key may ask, if memory may be used at this very instant. undefined =
   * ask `admit`, which says why.
   */
  scopeOf(rootKey: string): Scope | undefined {
    return this.#sharedLog.scopes?.of(rootKey);
  }

  /**
   * Resolves with what a caller may ask. Rejects with UNAUTHORIZED, with INSUFFICIENT_PERMISSIONS if it may ask
   * nothing of this kind, or with SERVICE_UNAVAILABLE.
   * @param authorization the header
   */
  async admit(authorization: string | undefined, kind: keyof typeof PERMISSIONS): Promise<Scope> {
    const rootKey = rootKeyFrom(authorization);
    let { scopes } = this.#sharedLog;
    if (scopes === undefined) {
      await this.#read();
      ({ scopes } = this.#sharedLog);
      if (scopes === undefined)
        throw unavailable('no control plane has published its root keys yet, or Redis does not answer');
    }
    const scope = scopes.of(rootKey);
    if (scope === undefined)
      throw new ApiError('UNAUTHORIZED', 'Authorization: the root key is unknown or disabled');
    if (scope[kind]) return scope;
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key lacks the permission ${PERMISSIONS[kind]}`);
  }

  /** Begins to follow root keys, so that the first caller need not wait. */
  prepare(): void {
    this.#read().catch(() => undefined);
  }

  #read(): Promise<void> {
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.begin(reject);
      this.#sharedLog
        .readRecord(ROOT_KEYS_ID)
        .finally(() => this.#deadlines.end(deadline))
        .then(resolve, reject);
    });
  }
}
