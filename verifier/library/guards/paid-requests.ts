import { LIMITS_MAX } from '#shared/contract/credits.ts';
import type { KeyVerifier, QuestionOptions, ValidKey } from '../key-verifier.ts';
import { fixedOptions } from '../questions.ts';

/** The payment of one request to the guards that it has passed. */
export class Payment {
  /** Private, so that printing the request does not show its key. */
  readonly #key: string;
  readonly #verifier: KeyVerifier;
  /** Options of the last guard's question. */
  readonly #options: QuestionOptions | undefined;
  /** Verdict of the last guard. */
  readonly #verdict: ValidKey;
  /** The payment to earlier guards; undefined = there was none. */
  readonly #earlier: Payment | undefined;

  constructor(
    key: string,
    verifier: KeyVerifier,
    options: QuestionOptions | undefined,
    verdict: ValidKey,
    earlier: Payment | undefined,
  ) {
    this.#key = key;
    this.#verifier = verifier;
    this.#options = options;
    this.#verdict = verdict;
    this.#earlier = earlier;
  }

  isFor(key: string): boolean {
    return key === this.#key;
  }

  /** Returns the credits paid so far, if the key has credits. */
  cost(): number {
    return (this.#options?.remaining?.cost ?? 1) + (this.#earlier?.cost() ?? 0);
  }

  /** Returns the amounts taken so far from the limits that applied, by name. */
  limitCosts(): Map<string, number> {
    const costs = this.#earlier?.limitCosts() ?? new Map<string, number>();
    const ownCosts = new Map(this.#options?.ratelimits?.map(({ name, cost = 1 }) => [name, cost]));
    for (const { name } of this.#verdict.ratelimits ?? [])
      costs.set(name, (costs.get(name) ?? 0) + (ownCosts.get(name) ?? (this.#earlier ? 0 : 1)));
    return costs;
  }

  /**
   * Returns the options for a further guard's question: of credits and limits it takes only what was not paid
   * yet.
   */
  question(options: QuestionOptions | undefined): QuestionOptions {
    const rest = Math.max(0, (options?.remaining?.cost ?? 1) - this.cost());
    const costs = this.limitCosts();
    const named = (options?.ratelimits ?? []).map((limit) => ({
      ...limit,
      cost: Math.max(0, (limit.cost ?? 1) - (costs.get(limit.name) ?? 0)),
    }));
    const names = new Set(named.map(({ name }) => name));
    // Limits that apply to each question would take again.
    const others = [...costs.keys()].filter((name) => !names.has(name)).map((name) => ({ name, cost: 0 }));
    const ratelimits = [...named, ...others].slice(0, LIMITS_MAX);
    const takesNothing = rest === 0 && ratelimits.every(({ cost }) => cost === 0);
    return fixedOptions(
      { ...options, remaining: { cost: rest }, ...(ratelimits.length > 0 ? { ratelimits } : {}) },
      takesNothing,
    );
  }

  /** Adds the credits and limits of the first verdict to a later verdict, which may lack them. */
  completeVerdict(verdict: ValidKey): ValidKey {
    const { remaining, ratelimit, ratelimits } = this.#verdict;
    return {
      ...(remaining === undefined ? {} : { remaining }),
      ...(ratelimit === undefined ? {} : { ratelimit }),
      ...(ratelimits === undefined ? {} : { ratelimits }),
      ...verdict,
    };
  }

  /** Watches the key of the request, by the rules of the last guard. */
  watch(signal: AbortSignal): AbortSignal {
    const { apiId, permissions, clientIp } = this.#options ?? {};
    return this.#verifier.watch(this.#key, {
      ...(apiId === undefined ? {} : { apiId }),
      ...(permissions === undefined ? {} : { permissions }),
      ...(clientIp === undefined ? {} : { clientIp }),
      signal,
    });
  }
}

const PAYMENT = Symbol('keyfence.payment');

/** Returns the last payment of a request; undefined = no guard let it pass with a key. */
export const lastPayment = (carrier: Carrier): Payment | undefined => (carrier as PaidRequest)[PAYMENT];

/** Returns the payment that a request made with `key`; undefined = no guard let it pass with that key. */
export function paymentOf(carrier: Carrier, key: string): Payment | undefined {
  const payment = lastPayment(carrier);
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
