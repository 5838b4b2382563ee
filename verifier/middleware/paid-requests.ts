import { DEFAULT_LIMIT } from '#shared/contract/credits.ts';
import type { KeyVerdict, QuestionOptions, ValidKey } from '../library/key-verifier.ts';
import { fixedOptions } from '../library/questions.ts';

/** Payment of a request to the guards that it has passed. */
export class Payment {
  /** Private, so that nothing that shows the request shows its key. */
  readonly #key: string;
  /** Credits, where the key has any. */
  readonly cost: number;
  readonly #verdict: ValidKey;

  constructor(key: string, cost: number, verdict: ValidKey) {
    this.#key = key;
    this.cost = cost;
    this.#verdict = verdict;
  }

  isFor(key: string): boolean {
    return key === this.#key;
  }

  /** The question of a further guard: it costs what the request has not paid yet, and takes nothing more of the rate limit. */
  question(options: QuestionOptions | undefined, cost: number): QuestionOptions {
    const rest = Math.max(0, cost - this.cost);
    const isLimited = this.#verdict.ratelimits?.some(({ name }) => name === DEFAULT_LIMIT) === true;
    const ratelimits = isLimited ? { ratelimits: [{ name: DEFAULT_LIMIT, cost: 0 }] } : {};
    return fixedOptions({ ...options, remaining: { cost: rest }, ...ratelimits }, rest === 0);
  }

  /** The verdict on that question with what only the first one told: what is left. */
  completeVerdict(verdict: KeyVerdict): KeyVerdict {
    if (verdict.code !== 'VALID') return verdict;
    const { remaining, ratelimit, ratelimits } = this.#verdict;
    return {
      ...(remaining === undefined ? {} : { remaining }),
      ...(ratelimit === undefined ? {} : { ratelimit }),
      ...(ratelimits === undefined ? {} : { ratelimits }),
      ...verdict,
    };
  }
}

const PAYMENT = Symbol('keyfence.payment');

/** Returns what a request has paid by a key; undefined = no guard let it pass by that one. */
export function paymentOf(carrier: Carrier, key: string): Payment | undefined {
  const payment = (carrier as PaidRequest)[PAYMENT];
  return payment?.isFor(key) ? payment : undefined;
}

/** Remembers a payment as long as the request lives. */
export function notePayment(carrier: Carrier, payment: Payment): void {
  (carrier as PaidRequest)[PAYMENT] = payment;
}

/** The object by which all guards of a request know it again, such as Node's request. */
export type Carrier = object;

interface PaidRequest {
  [PAYMENT]?: Payment;
}
