import { LIMITS_MAX } from '#shared/contract/credits.ts';
import type { KeyVerdict, QuestionOptions, ValidKey } from '../library/key-verifier.ts';
import { fixedOptions } from '../library/questions.ts';

/** The payment of one request to the guards that it has passed. */
export class Payment {
  /** Private, so that printing the request does not show its key. */
  readonly #key: string;
  /** Credits paid, if the key has credits. */
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

  /**
   * Returns the options for a further guard's question. They cost only the credits not yet paid, and take
   * nothing more from the rate limit.
   */
  question(options: QuestionOptions | undefined, cost: number): QuestionOptions {
    const rest = Math.max(0, cost - this.cost);
    // A guard names no limits, so these are the default limit and the limits with `autoApply`.
    const paid = this.#verdict.ratelimits?.slice(0, LIMITS_MAX).map(({ name }) => ({ name, cost: 0 })) ?? [];
    const ratelimits = paid.length > 0 ? { ratelimits: paid } : {};
    return fixedOptions({ ...options, remaining: { cost: rest }, ...ratelimits }, rest === 0);
  }

  /** Adds the credits and limits of the first verdict to a later verdict, which lacks them. */
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

/** Returns the payment that a request made with `key`; undefined = no guard let it pass with that key. */
export function paymentOf(carrier: Carrier, key: string): Payment | undefined {
  const payment = (carrier as PaidRequest)[PAYMENT];
  return payment?.isFor(key) ? payment : undefined;
}

/** Remembers a payment as long as the request lives. */
export function notePayment(carrier: Carrier, payment: Payment): void {
  (carrier as PaidRequest)[PAYMENT] = payment;
}

/** An object by which all guards recognize the same request, such as Node's request. */
export type Carrier = object;

interface PaidRequest {
  [PAYMENT]?: Payment;
}
