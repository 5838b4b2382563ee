import {
  CREDITS_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
} from '#shared/credits.ts';
import { ORDINARY, type Price } from './allowance.ts';
import { type AskedLimit, ownLimit } from './limits.ts';

/** Makes the error of a wrong question. */
type Refusal = (message: string) => Error;

/**
 * Reads what a question says that its request costs. Throws what `refusal` makes of a message, which names the field and the
 * rule, never the value.
 * @param kind of its parts, for the message about one that there is not
 */
export function priceOf(
  { remaining, ratelimits }: { readonly remaining?: unknown; readonly ratelimits?: unknown },
  refusal: Refusal,
  kind: string,
): Price {
  if (remaining === undefined && ratelimits === undefined) return ORDINARY;
  const reader = new PriceReader(refusal, kind);
  return { cost: reader.credits(remaining), limits: reader.limits(ratelimits) };
}

class PriceReader {
  readonly #refusal: Refusal;
  readonly #kind: string;

  constructor(refusal: Refusal, kind: string) {
    this.#refusal = refusal;
    this.#kind = kind;
  }

  credits(given: unknown): number {
    if (given === undefined) return 1;
    const { cost = 1, ...others } = this.#object('remaining', given);
    this.#refuseOthers('remaining', others);
    return this.#wholeNumber('remaining.cost', cost, 0, CREDITS_MAX);
  }

  limits(given: unknown): AskedLimit[] {
    if (given === undefined) return [];
    if (!Array.isArray(given) || given.length > LIMITS_MAX)
      throw this.#refusal(`ratelimits: must be a list of at most ${LIMITS_MAX}`);
    const limits = given.map((each: unknown, i) => this.#limit(`ratelimits.${i}`, each));
    const names = limits.map(({ name }) => name);
    const twice = names.find((name, i) => names.indexOf(name) < i);
    if (twice !== undefined) throw this.#refusal(`ratelimits: ${twice} is there twice`);
    return limits;
  }

  #limit(path: string, given: unknown): AskedLimit {
    const { name, cost = 1, limit, duration, ...others } = this.#object(path, given);
    this.#refuseOthers(path, others);
    if (typeof name !== 'string' || !LIMIT_NAME.test(name))
      throw this.#refusal(`${path}.name: must match ${LIMIT_NAME.source}`);
    const asked = { name, cost: this.#wholeNumber(`${path}.cost`, cost, 0, LIMIT_MAX) };
    if (limit === undefined && duration === undefined) return asked;
    if (limit === undefined || duration === undefined)
      throw this.#refusal(`${path}: limit and duration only together`);
    const most = this.#wholeNumber(`${path}.limit`, limit, 1, LIMIT_MAX);
    const durationMs = this.#wholeNumber(`${path}.duration`, duration, DURATION_MIN_MS, DURATION_MAX_MS);
    return { ...asked, own: ownLimit(name, most, durationMs) };
  }

  #object(path: string, value: unknown): Record<string, unknown> {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw this.#refusal(`${path}: must be an object`);
    return value as Record<string, unknown>;
  }

  #wholeNumber(path: string, value: unknown, from: number, to: number): number {
    if (typeof value === 'number' && Number.isInteger(value) && value >= from && value <= to) return value;
    throw this.#refusal(`${path}: must be a whole number from ${from} to ${to}`);
  }

  #refuseOthers(path: string, others: object): void {
    const [stray] = Object.keys(others);
    if (stray !== undefined) throw this.#refusal(unknownPart(`${path}.${stray}`, this.#kind));
  }
}

const NAME_SHOWN_MAX = 64;

/** The message about a part of a question that there is not. */
export const unknownPart = (name: string, kind: string): string =>
  `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}`;
