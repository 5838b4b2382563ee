import { scheduler } from 'node:timers/promises';
import { backoffMs } from '#shared/process/clock.ts';
import { VERIFIER_ID_HEADER } from '#shared/protocol/records/verifier-status.ts';
import { ERRORS } from '#shared/rules/errors.ts';
import { AdminError, exchange, reasonOf } from '../client/exchange.ts';
import { OPERATION_KINDS, type OperationKind } from '../client/interface.ts';
import { CliError, EXIT_OF } from './exit.ts';

/** Longer than the 60 s for which a control plane may wait for a change. */
const CALL_MS_MAX = 75_000;

/** An operation that every control plane has and that never answers 404. */
const ALWAYS_THERE = 'apis.listApis';

/**
 * Calls one process over HTTP. Follows no redirect, so that the root key goes nowhere else, and never repeats
 * a call.
 */
export class Client {
  readonly base: URL;
  /** The clock of the server that answered last: its `Date` header as Unix milliseconds, in whole seconds. */
  dateMs: number | undefined;
  readonly #service: 'control plane' | 'verifier';
  readonly #rootKey: string | undefined;
  readonly #beforeChange: (place: string) => void;
  readonly #waitMs: number;

  /**
   * @param beforeChange is told the server of each change before that is sent
   * @param waitMs how long a call may take
   */
  constructor(
    base: URL,
    service: 'control plane' | 'verifier',
    rootKey?: string,
    beforeChange: (place: string) => void = () => undefined,
    waitMs = CALL_MS_MAX,
  ) {
    this.base = base;
    this.#service = service;
    this.#rootKey = rootKey;
    this.#beforeChange = beforeChange;
    this.#waitMs = waitMs;
  }

  /**
   * Calls one operation, such as `keys.getKey`; undefined values in `input` are not sent.
   * @param idempotencyKey makes a repeated call take effect once
   * @returns the response's body, trusted to have the documented shape. Rejects with CliError.
   */
  async call<T>(operation: string, input: object = {}, idempotencyKey?: string): Promise<T> {
    const kind = this.#kindOf(operation);
    if (kind === 'change') this.#beforeChange(this.place);
    try {
      return (await this.#exchange(operation, kind, input, idempotencyKey)) as T;
    } catch (error) {
      throw error instanceof AdminError ? await this.#meaningOf(error, operation) : error;
    }
  }

  /** A verifier's operations ask. */
  #kindOf(operation: string): OperationKind {
    if (this.#service === 'verifier') return 'question';
    return OPERATION_KINDS[operation as keyof typeof OPERATION_KINDS];
  }

  async #meaningOf(error: AdminError, operation: string): Promise<Error> {
    const { code, status = 0, message, requestId, retryAfterMs } = error;
    if (code === 'UNREACHABLE') return this.#outOfReach(error.cause, error.mayHaveChanged);
    if (code === 'NOT_KEYFENCE' || !(code in ERRORS)) {
      const text = `${this.place} answered ${status}, but not as a ${this.#service} does`;
      return new CliError(status < 500 ? 'CONFIG' : 'UNAVAILABLE', `${text}; check the address`);
    }
    if (status === 404 && !(await this.#isExpectedService(operation)))
      return new CliError('CONFIG', this.#isSomebodyElse());
    return new CliError(EXIT_OF[code], message, {
      code,
      ...(requestId ? { requestId } : {}),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  }

  /** Tells whether a 404 comes from the right service, so that the requested thing does not exist. */
  async #isExpectedService(operation: string): Promise<boolean> {
    // A verifier answers 200 about keys that do not exist.
    if (this.#service === 'verifier' || operation === ALWAYS_THERE) return false;
    try {
      await this.#exchange(ALWAYS_THERE, 'query', { limit: 1 });
    } catch (error) {
      if (error instanceof AdminError && error.code === 'UNREACHABLE') throw this.#outOfReach(error.cause);
      return !(error instanceof AdminError && error.status === 404);
    }
    return true;
  }

  /** The address of the service, as people write it. */
  get place(): string {
    return `${this.base.origin}${this.#path}`;
  }

  /** The prefix of all paths, without a slash at the end; usually empty. */
  get #path(): string {
    return this.base.pathname.replace(/\/+$/, '');
  }

  #isSomebodyElse(): string {
    const service = this.#service;
    const [setting, otherService] =
      service === 'verifier' ? ['KEYFENCE_VERIFIER_URL', 'a control plane'] : ['KEYFENCE_URL', 'a verifier'];
    if (this.#path !== '') {
      const without = `unless a proxy adds the path ${this.#path}, set ${setting}=${this.base.origin}`;
      return `there is no ${service} at ${this.place}: ${without}`;
    }
    return `${this.place} is not a ${service}; it answers as ${otherService} does: set ${setting} to the address of the ${service}`;
  }

  /** The verifier's id, as in the list of the fleet; undefined if the verifier does not report it. */
  async verifierId(): Promise<string | undefined> {
    const url = new URL(`${this.#path}/openapi.json`, this.base);
    const options: RequestInit = { redirect: 'error', signal: AbortSignal.timeout(this.#waitMs) };
    const fail = (error: unknown) => {
      throw this.#outOfReach(error);
    };
    const response = await fetch(url, options).catch(fail);
    await response.arrayBuffer().catch(fail);
    return response.headers.get(VERIFIER_ID_HEADER) ?? undefined;
  }

  #exchange(
    operation: string,
    kind: OperationKind,
    input: object,
    idempotencyKey?: string,
  ): Promise<unknown> {
    const headers: Record<string, string> = {
      ...(this.#rootKey ? { authorization: `Bearer ${this.#rootKey}` } : {}),
      ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
    };
    const route = {
      ...{ base: this.base, headers, signal: AbortSignal.timeout(this.#waitMs) },
      fetch: async (url: URL, init: RequestInit) => {
        const response = await fetch(url, init);
        this.dateMs = Date.parse(response.headers.get('date') ?? '') || undefined;
        return response;
      },
    };
    return exchange(route, operation, kind, input);
  }

  #outOfReach(error: unknown, mayHaveChanged = false): CliError {
    const reason = reasonOf(error);
    const outcome = mayHaveChanged
      ? '; whether the call took effect is unknown, so check before trying again'
      : '';
    const place = `the ${this.#service} at ${this.place}`;
    return new CliError('UNAVAILABLE', `${place} is out of reach (${reason})${adviceOn(reason)}${outcome}`, {
      cause: error,
    });
  }
}

/** Returns what to set if Node, unlike curl, does not use this machine's proxy or certificates by itself; '' = nothing. */
function adviceOn(reason: string): string {
  if (/CERT|UNABLE_TO_/.test(reason))
    return ': set NODE_EXTRA_CA_CERTS to a file with the certificate of its authority';
  if (/^(ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|UND_ERR_CONNECT_TIMEOUT)$/.test(reason))
    return ': if a proxy leads there, set NODE_USE_ENV_PROXY=1 beside HTTPS_PROXY';
  return '';
}

const RETRY_FIRST_MS = 200;
const RETRY_MAX_MS = 5000;
/** About a minute and a half in total, and longer if the server asks for it. */
const RETRIES_MAX = 20;
/** About a second in total: short enough for a person at a terminal. */
export const RETRIES_FEW = 3;

/**
 * Calls an operation that may be repeated: while the server is unreachable, cannot decide or asks to retry
 * later, reports that and retries. Rejects with the last failure after `retriesMax` retries, or soon after
 * `stop`.
 */
export async function callPatiently<T>(
  client: Client,
  operation: string,
  input: object,
  stop: AbortSignal,
  say: (text: string) => void,
  retriesMax = RETRIES_MAX,
  idempotencyKey?: string,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await client.call<T>(operation, input, idempotencyKey);
    } catch (error) {
      if (!(error instanceof CliError) || error.exit !== 'UNAVAILABLE') throw error;
      if (attempt === retriesMax || stop.aborted) throw error;
      const ownMs = backoffMs(attempt, RETRY_FIRST_MS, RETRY_MAX_MS, Math.random);
      say(`${error.message}; trying again`);
      // If `stop` aborts during the wait, the next attempt is the last.
      await scheduler.wait(Math.max(error.retryAfterMs ?? 0, ownMs), { signal: stop }).catch(() => undefined);
    }
  }
}
