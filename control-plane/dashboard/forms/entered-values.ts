import type {
  ConcurrencyInput,
  DefaultLimit,
  Interval,
  LimitInput,
  NamedLimit,
} from '#shared/protocol/records/credits.ts';
import { parseExactly } from '#shared/rules/json.ts';
import { InvalidField } from '../api/client.ts';

export const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;
export const LIMIT = /^(\d{1,10})\s*\/\s*(\d{1,10})(ms|[smhd])(\s+exact)?$/;
export const QUOTA = /^(\d{1,10})\s*\/\s*(hour|day|week|month)(\s+exact)?(?:\s+(\{.*\}))?$/;

/** Formats a rate limit as people enter it, such as `100/10s`, or a quota, such as `1000/month {"day":5,"thresholds":[80]}`. */
export function limitText({
  limit,
  duration = 1,
  interval,
  anchor,
  thresholds,
  async = true,
}: LimitInput): string {
  if (interval) {
    const rest = anchor || thresholds ? ` ${JSON.stringify({ ...anchor, thresholds })}` : '';
    return `${limit}/${interval}${async ? '' : ' exact'}${rest}`;
  }
  const [unit, ms] = Object.entries(UNITS).find(([, each]) => duration % each === 0) ?? ['ms', 1];
  return `${limit}/${duration / ms}${unit}${async ? '' : ' exact'}`;
}

/** Formats named rate limits, one per line. */
export const limitsText = (limits: readonly NamedLimit[]): string =>
  limits.map((limit) => `${limit.name} ${limitText(limit)}`).join('\n');

/** Parses the form that `limitText` writes. Throws a Failure that names the field. */
export function limitOf(field: string, text: string): LimitInput {
  const [, quota, interval, isExact, rest = '{}'] = QUOTA.exec(text) ?? [];
  if (interval) {
    const { thresholds, ...anchor } = parseObject(field, rest) as Pick<LimitInput, 'thresholds'>;
    return {
      limit: Number(quota),
      interval: interval as Interval,
      ...(Object.keys(anchor).length > 0 ? { anchor } : {}),
      ...(thresholds ? { thresholds } : {}),
      async: isExact === undefined,
    };
  }
  const [, limit, amount, unit, exact] = LIMIT.exec(text) ?? [];
  if (limit === undefined || amount === undefined || unit === undefined)
    throw new InvalidField(field, 'must be a number of calls and a time');
  const duration = Number(amount) * UNITS[unit as keyof typeof UNITS];
  return { limit: Number(limit), duration, async: exact === undefined };
}

/** Parses the form that `limitsText` writes. Throws a Failure that names the field. */
export const limitsOf = (field: string, text: string): NamedLimit[] =>
  text.split('\n').flatMap((line) => {
    const [name, ...rest] = line.trim().split(/\s+/);
    return name ? [{ name, ...limitOf(`${field}: ${name}`, rest.join(' ')) }] : [];
  });

/** Formats concurrency limits, one per line, such as `jobs 3`. */
export const concurrencyText = (limits: readonly ConcurrencyInput[]): string =>
  limits.map(({ name, limit }) => `${name} ${limit}`).join('\n');

/** Parses the form that `concurrencyText` writes. Throws a Failure that names the field. */
export const concurrencyOf = (field: string, text: string): ConcurrencyInput[] =>
  text.split('\n').flatMap((line) => {
    if (line.trim() === '') return [];
    const [, name, limit] = /^\s*(\S+)\s+(\d{1,10})\s*$/.exec(line) ?? [];
    if (name === undefined)
      throw new InvalidField(field, 'must be a name and a number a line, such as jobs 3');
    return [{ name, limit: Number(limit) }];
  });

/** Parses a JSON object that a user entered. Throws a Failure that names the field. */
export function parseObject(name: string, text: string): object {
  try {
    const value = parseExactly(text, () => {
      throw new Error('has a whole number of more than 53 bits; write it as a string');
    });
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch (error) {
    throw new InvalidField(name, (error as Error).message);
  }
  throw new InvalidField(name, 'must be a JSON object, such as {"plan": "pro"}');
}

/** Parses names that a user entered, separated by commas or lines. */
export const namesOf = (text: string): string[] =>
  text
    .split(/[,\n]/)
    .map((name) => name.trim())
    .filter((name) => name !== '');

/** Parses slugs that a user entered, separated by commas or spaces. */
export const slugsOf = (text: string): string[] => text.split(/[\s,]+/).filter((slug) => slug !== '');

const LENGTHS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
  ['millisecond', 1],
] as const;

/** Formats a limit, such as "5,000 a day" or "100 in 10 seconds". */
export function limitInWords({ limit, duration, interval, async = true }: DefaultLimit): string {
  if (interval) return `${limit.toLocaleString()} each calendar ${interval}${async ? '' : ', exact'}`;
  const [unit, ms] = LENGTHS.find(([, each]) => duration % each === 0) ?? LENGTHS[4];
  const count = duration / ms;
  const window =
    count === 1 ? `a${unit === 'hour' ? 'n' : ''} ${unit}` : `in ${count.toLocaleString()} ${unit}s`;
  return `${limit.toLocaleString()} ${window}${async ? '' : ', exact'}`;
}
