/** The length of a period of the calendar. */
export type Period = 'hour' | 'day' | 'week' | 'month';

/** When a period of the calendar begins; absent = the first day, at 00:00 UTC. */
export interface Anchor {
  /** Day of the month, 1 to 31. A shorter month begins on its last day. */
  readonly day?: number;
  /** Day of the week, 1 to 7; 1 = Monday. */
  readonly weekday?: number;
  readonly hour?: number;
  /** Minutes by which the local time is ahead of UTC. */
  readonly offsetMinutes?: number;
}

/** The longest that a period can be, in milliseconds. */
export const LONGEST_MS: Readonly<Record<Period, number>> = {
  hour: 3_600_000,
  day: 86_400_000,
  week: 7 * 86_400_000,
  month: 31 * 86_400_000,
};

/** JSON Schema of an anchor. */
export const ANCHOR_SCHEMA = {
  type: 'object',
  properties: {
    day: {
      ...{ type: 'integer', minimum: 1, maximum: 31 },
      description: 'Only of months: the first day, default 1. A shorter month begins on its last day.',
    },
    weekday: {
      ...{ type: 'integer', minimum: 1, maximum: 7 },
      description: 'Only of weeks: the first day, 1 = Monday, the default, to 7 = Sunday.',
    },
    hour: { type: 'integer', minimum: 0, maximum: 23, description: 'The hour, default 0.' },
    offsetMinutes: {
      ...{ type: 'integer', minimum: -720, maximum: 840 },
      description: 'Minutes by which the local time is ahead of UTC, default 0.',
    },
  },
  additionalProperties: false,
  description: 'When a period begins; absent: at 00:00 UTC.',
};

/** Returns the periods of a calendar as `periodOf` in credits.lua reads them. */
export function calendarOf(period: Period, anchor: Anchor = {}): string {
  const { day, weekday, hour = 0, offsetMinutes = 0 } = anchor;
  const shift = 3600 * hour - 60 * offsetMinutes;
  return `${period[0]}${day ?? weekday ?? ''}${shift === 0 ? '' : shift > 0 ? `+${shift}` : shift}`;
}

/** Returns the field of an anchor that does not fit its period, and the rule; undefined = it fits. */
export function anchorFault(
  period: Period,
  { day, weekday, hour }: { readonly [Name in keyof Anchor]?: number | undefined } = {},
): string | undefined {
  if (day !== undefined && period !== 'month') return 'anchor.day: allowed only for months';
  if (weekday !== undefined && period !== 'week') return 'anchor.weekday: allowed only for weeks';
  if (hour !== undefined && period === 'hour')
    return 'anchor.hour: not allowed for hours; offsetMinutes moves their beginning';
  return undefined;
}
