import {
  CREDITS_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
} from '#shared/credits.ts';
import { type AskedLimit, ownLimit } from './allowances/limits.ts';
import { type Query, readQuery } from './permissions.ts';
import { DEFAULT_REQUIREMENTS, type Requirements } from './question.ts';

/** Makes the error of a wrong question. */
type Refusal = (message: string) => Error;

/**
 * Reads what a question says that its request costs, and what it needs. Throws what `refusal` makes of a message, which names the field and the
 * rule, never the value.
 * @param kind of its parts, for the message about one that there is not
 */
export function requirementsOf(
  { remaining, ratelimits, authorization, permissions }: GivenRequirements,
  refusal: Refusal,
  kind: string,
): Requirements {
  const isPriced = remaining !== undefined || ratelimits !== undefined;
  if (!isPriced && authorization === undefined && permissions === undefined) return DEFAULT_REQUIREMENTS;
  const reader = new RequirementsReader(refusal, kind);
  return {
    cost: reader.credits(remaining),
    limits: reader.limits(ratelimits),
    permissions:
      authorization === undefined
        ? reader.permissions('permissions', permissions)
        : reader.authorization(authorization),
  };
}

/** Parts of a question; the permissions are in one of two places. */
interface GivenRequirements {
  readonly remaining?: unknown;
  readonly ratelimits?: unknown;
  readonly authorization?: unknown;
  readonly permissions?: unknown;
}

class RequirementsReader {
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

  authorization(given: unknown): Query {
    const { permissions, ...others } = this.#object('authorization', given);
    this.#refuseOthers('authorization', others);
    const query = this.permissions('authorization.permissions', permissions);
    if (query === undefined) throw this.#refusal('authorization.permissions: required');
    return query;
  }

  permissions(path: string, given: unknown): Query | undefined {
    if (given === undefined) return undefined;
    const read = readQuery(given);
    if ('fault' in read) throw this.#refusal(`${path}: ${read.fault}`);
    return read.query;
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
