import {
  CREDITS_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
} from '#shared/credits.ts';
import { ApiError } from '#shared/errors.ts';
import { ORDINARY, type Price } from '../core/allowance.ts';
import { type AskedLimit, ownLimit } from '../core/limits.ts';

/** Reads what a request costs from the body of verifyKey. Throws ApiError BAD_REQUEST naming the field and the rule. */
export function priceOf(body: Readonly<Record<string, unknown>>): Price {
  const { remaining, ratelimits } = body;
  if (remaining === undefined && ratelimits === undefined) return ORDINARY;
  return { cost: creditsOf(remaining), limits: limitsOf(ratelimits) };
}

function creditsOf(remaining: unknown): number {
  if (remaining === undefined) return 1;
  const { cost = 1, ...others } = objectOf('remaining', remaining);
  refuseOthers('remaining', others);
  return wholeNumber('remaining.cost', cost, 0, CREDITS_MAX);
}

function limitsOf(ratelimits: unknown): AskedLimit[] {
  if (ratelimits === undefined) return [];
  if (!Array.isArray(ratelimits) || ratelimits.length > LIMITS_MAX)
    throw new ApiError('BAD_REQUEST', `ratelimits: must be a list of at most ${LIMITS_MAX}`);
  const limits = ratelimits.map((each: unknown, i) => limitOf(`ratelimits.${i}`, each));
  const names = limits.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new ApiError('BAD_REQUEST', `ratelimits: ${twice} is there twice`);
  return limits;
}

function limitOf(path: string, given: unknown): AskedLimit {
  const { name, cost = 1, limit, duration, ...others } = objectOf(path, given);
  refuseOthers(path, others);
  if (typeof name !== 'string' || !LIMIT_NAME.test(name))
    throw new ApiError('BAD_REQUEST', `${path}.name: must match ${LIMIT_NAME.source}`);
  const asked = { name, cost: wholeNumber(`${path}.cost`, cost, 0, LIMIT_MAX) };
  if (limit === undefined && duration === undefined) return asked;
  if (limit === undefined || duration === undefined)
    throw new ApiError('BAD_REQUEST', `${path}: limit and duration only together`);
  const most = wholeNumber(`${path}.limit`, limit, 1, LIMIT_MAX);
  const durationMs = wholeNumber(`${path}.duration`, duration, DURATION_MIN_MS, DURATION_MAX_MS);
  return { ...asked, own: ownLimit(name, most, durationMs) };
}

function objectOf(path: string, value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ApiError('BAD_REQUEST', `${path}: must be an object`);
  return value as Record<string, unknown>;
}

function wholeNumber(path: string, value: unknown, from: number, to: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= from && value <= to) return value;
  throw new ApiError('BAD_REQUEST', `${path}: must be a whole number from ${from} to ${to}`);
}

function refuseOthers(path: string, others: object): void {
  const [stray] = Object.keys(others);
  if (stray !== undefined) throw unknown(`${path}.${stray}`, 'field');
}

const NAME_SHOWN_MAX = 64;

/** The error of a field or parameter that there is not. */
export const unknown = (name: string, kind: string) =>
  new ApiError('BAD_REQUEST', `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}`);
