import { ANCHOR_SCHEMA, type Anchor, anchorFault, calendarOf, LONGEST_MS, type Period } from './calendar.ts';
import { type Thresholds, thresholdsFault, thresholdsSchema } from './credits.ts';

/** The maximum number of calls with one limit of a key, per window. */
export interface RateLimit {
  readonly name: string;
  /** Number of calls in a window, or the sum of their costs. */
  readonly limit: number;
  /** Length of the windows, in milliseconds; of a period of the calendar the longest. They follow the clock of Redis. */
  readonly duration: number;
  /** Present = a quota: each window is a period of the calendar, and nothing of the period before counts in it. */
  readonly interval?: Period;
  readonly anchor?: Anchor;
  /** Only of a quota. */
  readonly thresholds?: Thresholds;
  /** True = verifiers may answer from slices of the limit, without asking Redis at each call. */
  readonly async: boolean;
  /** True = the limit applies to each verification; absent = only to those that name it. */
  readonly autoApply?: boolean;
  /** Only of a role's limit: all keys of an identity share it; absent = each key with the role has its own. */
  readonly per?: 'identity';
}

/** A key's limit `default`. */
export type DefaultLimit = Omit<RateLimit, 'name' | 'autoApply' | 'per'>;

/** A limit in the form in which users set it: with either `duration` or `interval`. */
export type LimitInput = Omit<DefaultLimit, 'async' | 'duration'> & {
  readonly duration?: number;
  readonly async?: boolean;
};

/** A limit with a name, in the form in which users set it. */
export type NamedLimit = LimitInput &
  Pick<RateLimit, 'name' | 'autoApply'> & { readonly per?: 'key' | 'identity' };

/** The limit that applies to each verification. Other limits apply if the question names them, or if they have `autoApply`. */
export const DEFAULT_LIMIT = 'default';
/** Matches a limit's name, which appears unescaped in names in Redis and in header fields. */
export const LIMIT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
export const LIMIT_MAX = 1_000_000_000;
export const CONCURRENCY_MAX = 1_000_000;
export const DURATION_MIN_MS = 1000;
export const DURATION_MAX_MS = 31 * 86_400_000;
/** Maximum number of rate limits of a key besides the default limit, of its concurrency limits, and of limits in one question. */
export const LIMITS_MAX = 8;

interface Row {
  /** JSON Schema of the field in requests, with its meaning for the documentation. */
  readonly schema: object;
  /** JSON Schema in answers, if it differs. */
  readonly view?: object;
  /** Limits that have the field, if not all have it. */
  readonly of?: 'named' | 'role';
  /** True = only limits with `interval` have it; false = only those without, in the form in which users set them. */
  readonly isOfQuota?: boolean;
  /** True = it cannot be left out of requests. */
  readonly isRequired?: true;
  /** Returns what Redis stores, if not the value as it was set; undefined = nothing. */
  readonly stored?: (limit: NamedLimit) => unknown;
}

const oneOf = (values: readonly string[], description: string) => ({
  anyOf: values.map((value) => ({ type: 'string', const: value })),
  description,
});

/**
 * The fields of a rate limit, in their order in Redis. This is their only definition: requests, answers, the form in Redis and the
 * texts for people are derived from its rows. A new field goes after `async`, and needs `RateLimit` above.
 */
export const LIMIT_FIELDS = {
  name: {
    schema: {
      type: 'string',
      pattern: LIMIT_NAME.source,
      description: `The name by which verifications request this limit. Not \`${DEFAULT_LIMIT}\`, which is a key's own \`ratelimit\`.`,
    },
    of: 'named',
    isRequired: true,
  },
  limit: {
    schema: {
      ...{ type: 'integer', minimum: 1, maximum: LIMIT_MAX },
      description: 'Maximum number of verifications, or maximum total cost, in a window.',
    },
    isRequired: true,
  },
  duration: {
    schema: {
      ...{ type: 'integer', minimum: DURATION_MIN_MS, maximum: DURATION_MAX_MS },
      description:
        'Length of a window, milliseconds. In answers also beside `interval`: the longest that a period can be.',
    },
    isOfQuota: false,
    stored: ({ interval, duration = 0 }) => (interval ? LONGEST_MS[interval] : duration),
  },
  interval: {
    schema: oneOf(
      Object.keys(LONGEST_MS),
      'Instead of `duration`: a quota. Each period of the calendar has `limit`, and nothing of the period before counts in it.',
    ),
    isOfQuota: true,
  },
  anchor: { schema: ANCHOR_SCHEMA, isOfQuota: true },
  thresholds: { schema: thresholdsSchema('Only with `interval`', 'quota.low'), isOfQuota: true },
  async: {
    schema: {
      type: 'boolean',
      description:
        'true (default): verifiers answer from slices of the limit and rarely ask Redis. false: they ask Redis each time. Neither lets more through than the limit.',
    },
    stored: ({ async = true }) => async,
  },
  autoApply: {
    schema: {
      type: 'boolean',
      description:
        'true: each verification obeys it, and takes 1 of it unless it names the limit with another cost. false, the default: those that name it.',
    },
    of: 'named',
    stored: ({ autoApply }) => autoApply || undefined,
  },
  per: {
    schema: oneOf(
      ['key', 'identity'],
      'key, the default: each key with the role has the limit for itself. identity: all keys of one identity share it.',
    ),
    view: { type: 'string', const: 'identity' },
    of: 'role',
    stored: ({ per }) => (per === 'identity' ? per : undefined),
  },
} as const satisfies Readonly<Record<keyof RateLimit, Row>>;

const rows = Object.entries(LIMIT_FIELDS) as [keyof RateLimit, Row][];
const namesOf = (has: (row: Row) => boolean) =>
  rows.flatMap(([name, row]) => (has(row) ? [name] : [])).join(', ');
/** The fields of each form of a limit, for the documentation. */
export const LIMIT_FORMS = {
  windows: namesOf(({ of, isOfQuota }) => of === undefined && isOfQuota !== true),
  periods: namesOf(({ of, isOfQuota }) => of === undefined && isOfQuota !== false),
  named: namesOf(({ of }) => of !== 'role'),
} as const;

/** Returns what Redis stores of a limit, with the defaults of its optional fields. */
function storedLimit(input: LimitInput | NamedLimit, has: (row: Row) => boolean): object {
  const limit = input as NamedLimit;
  const stored = rows.flatMap(([name, row]) => {
    if (!has(row) || (row.isOfQuota && !limit.interval)) return [];
    const value = row.stored ? row.stored(limit) : limit[name];
    return value === undefined ? [] : [[name, value]];
  });
  return Object.fromEntries(stored);
}
/** Returns a limit with the defaults of its optional fields. */
export const wholeLimit = (limit: LimitInput): DefaultLimit =>
  storedLimit(limit, ({ of }) => of === undefined) as DefaultLimit;
/** Returns a named limit with the defaults of its optional fields. Leaves out `autoApply` and `per` where they are the defaults. */
export const wholeNamedLimit = (limit: NamedLimit): RateLimit => storedLimit(limit, () => true) as RateLimit;

/** Tells whether the text of a limit, or of several, in Redis has a quota. */
export const hasQuota = (text: string): boolean => /"interval":/.test(text);

/** Returns the fields of a limit that do not go together, and the rule; undefined = they do. */
export function limitFault({ duration, interval, ...of }: LimitInput): string | undefined {
  if (interval === undefined && duration === undefined) return 'duration: give this or interval';
  if (interval === undefined && of.anchor) return 'anchor: allowed only with interval';
  if (interval === undefined && of.thresholds) return 'thresholds: allowed only with interval';
  const fault = thresholdsFault(of.thresholds);
  if (fault || interval === undefined) return fault;
  // Answers show the longest period, and may be sent back.
  if (duration !== undefined && duration !== LONGEST_MS[interval])
    return 'duration: give either this or interval';
  return anchorFault(interval, of.anchor);
}

type Windows = Pick<RateLimit, 'duration' | 'interval' | 'anchor'>;
/** Returns the calendar whose periods are a limit's windows, or else their length in milliseconds; 0 = no windows. */
export const windowsOf = ({ duration, interval, anchor }: Windows): string | number =>
  interval ? calendarOf(interval, anchor) : duration;
/**
 * Returns the part of the name of a limit's pool that follows the id of its owner.
 * @param own the amount of a limit that a question defines: with another amount it is another limit
 */
export const poolSuffix = (limit: Windows & Pick<RateLimit, 'name'>, own?: number): string =>
  `${windowsOf(limit)}.${limit.name}${own === undefined ? '' : `.${own}`}`;
/** Returns the name of a limit's pool. */
export const poolName = (ownerId: string, suffix: string): string => `${ownerId}.${suffix}`;

/** A limit as verdicts show it. */
export interface ShownLimit {
  /** The default limit is named `default`. */
  readonly name: string;
  readonly limit: number;
  /** Length of the limit's windows, in milliseconds; of a quota the longest. */
  readonly duration: number;
  /** Present = a quota: its windows are periods of the calendar. */
  readonly interval?: Period;
}
export const shownLimit = ({ name, limit, duration, interval }: ShownLimit): ShownLimit => ({
  ...{ name, limit, duration },
  ...(interval ? { interval } : {}),
});
/** JSON Schema of its windows. */
export const SHOWN_WINDOWS = {
  duration: {
    ...{ type: 'integer', minimum: 0 },
    description: 'Length of its windows, in milliseconds; of a quota the longest.',
  },
  interval: { type: 'string', description: 'Only of a quota: hour, day, week or month.' },
} as const;

/** Units in which people give the length of a window, with their names. */
export const UNITS = {
  d: [86_400_000, 'day'],
  h: [3_600_000, 'hour'],
  m: [60_000, 'minute'],
  s: [1000, 'second'],
  ms: [1, 'millisecond'],
} as const;
/** Returns a length in its largest whole unit. */
function inUnits(ms: number) {
  const units = Object.entries(UNITS) as [keyof typeof UNITS, (typeof UNITS)[keyof typeof UNITS]][];
  const [unit, [unitMs, name]] = units.find(([, [each]]) => ms % each === 0) ?? ['ms', UNITS.ms];
  return { count: ms / unitMs, unit, name };
}

/** Formats the windows of a limit for people, as the command line takes them: `10s`, or `month` of a quota. */
export function windowText({ duration = 1, interval }: Pick<LimitInput, 'duration' | 'interval'>): string {
  const { count, unit } = inUnits(duration);
  return interval ?? `${count}${unit}`;
}

/** Matches `100/10s`, or `1000/month` of a quota, with what may follow. */
const TEXT =
  /^(?<limit>\d{1,10})\s*\/\s*(?:(?<amount>\d{1,10})(?<unit>ms|[smhd])|(?<period>hour|day|week|month))(?<exact>\s+exact)?(?:\s+(?<rest>\{.*\}))?(?<auto>\s+auto)?$/;
/** Takes apart the text of a limit as people enter it; undefined = it is none. */
export function limitParts(text: string) {
  const { limit, amount = '', unit, period, exact, rest, auto } = TEXT.exec(text)?.groups ?? {};
  if (limit === undefined) return undefined;
  const isOf = { isQuota: period !== undefined, isExact: exact !== undefined, isAuto: auto !== undefined };
  return { limit, amount, unit: unit ?? period ?? '', rest, ...isOf };
}

/**
 * Parses the text of a limit as people enter it; undefined = it is none.
 * @param objectOf parses the JSON in the text
 */
export function limitOfText(
  text: string,
  objectOf: (json: string) => object,
): (LimitInput & Pick<RateLimit, 'autoApply'>) | undefined {
  const { limit, amount, unit, rest, isQuota, isExact, isAuto } = limitParts(text) ?? {};
  if (limit === undefined) return undefined;
  const fields = Object.entries(rest === undefined ? {} : objectOf(rest));
  const isField = ([name]: readonly [string, unknown]) => name in LIMIT_FIELDS;
  const anchor = Object.fromEntries(fields.filter((field) => !isField(field)));
  return {
    limit: Number(limit),
    ...(isQuota
      ? { interval: unit as Period }
      : { duration: Number(amount) * UNITS[unit as keyof typeof UNITS][0] }),
    ...(Object.keys(anchor).length > 0 ? { anchor } : {}),
    ...Object.fromEntries(fields.filter(isField)),
    ...(isExact ? { async: false } : {}),
    ...(isAuto ? { autoApply: true } : {}),
  };
}

/** Formats a limit as people enter it: `100/10s`, or a quota, such as `1000/month exact {"day":5,"thresholds":[80]} auto`. */
export function limitText({ name: _name, per: _per, ...of }: LimitInput & Partial<NamedLimit>): string {
  const { limit, duration, interval, anchor, async, autoApply, ...more } = of;
  const rest = { ...anchor, ...more };
  const words = [
    `${limit}/${windowText(of)}`,
    ...(async === false ? ['exact'] : []),
    ...(Object.keys(rest).length > 0 ? [JSON.stringify(rest)] : []),
    ...(autoApply ? ['auto'] : []),
  ];
  return words.join(' ');
}

/** Formats a length of time for people, such as "90 days" or "1 hour". */
export function lengthInWords(ms: number): string {
  const { count, name } = inUnits(ms);
  return `${count.toLocaleString('en')} ${name}${count === 1 ? '' : 's'}`;
}

/** Formats the windows of a limit in words, such as "a day" or "in 10 seconds". */
export function windowInWords({ duration = 1, interval }: Pick<LimitInput, 'duration' | 'interval'>): string {
  const { count, name } = inUnits(duration);
  if (interval) return `each calendar ${interval}`;
  return count === 1 ? `a${name === 'hour' ? 'n' : ''} ${name}` : `in ${count.toLocaleString()} ${name}s`;
}

/** Formats a limit in words, such as "5,000 a day" or "100 in 10 seconds". */
export const limitInWords = ({ limit, async = true, ...of }: DefaultLimit): string =>
  `${limit.toLocaleString()} ${windowInWords(of)}${async ? '' : ', exact'}`;

/** Formats a limit with what is left of it, such as "60 a minute, 12 left". */
export const leftInWords = (
  { limit, ...of }: { readonly limit: number } & Parameters<typeof windowInWords>[0],
  remaining: number,
): string => `${limit.toLocaleString('en')} ${windowInWords(of)}, ${remaining.toLocaleString('en')} left`;

/** A rate limit or a concurrency limit in an answer. A limit of which something is left did apply. */
export type AnsweredLimit = Partial<RateLimit> & { readonly limit: number; readonly remaining?: number };
/** Formats a limit of an answer for a table, such as `requests 1,000/month per identity`. */
export function limitCell(limit: AnsweredLimit, count: (value: number) => string): string {
  const { name, duration, anchor, async, autoApply, per, remaining } = limit;
  const isOfTime = duration !== undefined;
  return [
    ...(name === undefined ? [] : [name]),
    isOfTime ? `${count(limit.limit)}/${windowText(limit)}` : count(limit.limit),
    ...(anchor ? ['from', ...Object.entries(anchor).flat()] : []),
    ...(per === 'identity' ? ['per identity'] : []),
    ...(async === false ? ['exact'] : []),
    ...(name !== undefined && isOfTime && !autoApply && remaining === undefined ? ['if asked'] : []),
  ].join(' ');
}

/** The maximum number of holds of a key at the same time, by name. */
export interface ConcurrencyLimit extends Pick<RateLimit, 'name' | 'per'> {
  readonly limit: number;
}
/** The same in the form in which users set it. */
export type ConcurrencyInput = Omit<ConcurrencyLimit, 'per'> & Pick<NamedLimit, 'per'>;

/** Returns a concurrency limit without `per` where it is the default. */
export const wholeConcurrency = ({ name, limit, per }: ConcurrencyInput): ConcurrencyLimit => ({
  ...{ name, limit },
  ...(per === 'identity' ? { per } : {}),
});
