import { ApiError } from '#shared/contract/errors.ts';
import {
  type Granularity,
  LENGTH_MS,
  RETENTION,
  USAGE_COLUMNS,
  type UsageField,
} from '#shared/contract/usage.ts';
import { startOf } from './moment.ts';
import {
  admits,
  type Column,
  type Comparison,
  type Dimension,
  type Expression,
  GROUPS_MAX,
  ROWS_MAX,
  TABLES,
  type UsageQuery,
} from './query.ts';

/** The counts of one API, or of one key. */
export interface Series {
  readonly ids: Readonly<Partial<Record<Exclude<Column, 'time' | 'outcome'>, string>>>;
  readonly buckets: readonly (Readonly<Record<UsageField, number>> & { readonly time: number })[];
}

type Value = string | number;
type Row = Readonly<Record<string, Value>>;

/** Says which verifications a count counts. */
type Cell = Readonly<Partial<Record<Column, Value>>>;

/**
 * Returns the kind of counts that a query reads. Throws BAD_REQUEST if counts for a part of its time are no
 * longer kept.
 */
export function granularityOf(
  { table, conditions, outputs, groups }: UsageQuery,
  nowMs: number,
): Granularity {
  const dimensions = [
    ...groups,
    ...outputs.flatMap(({ expression }) => ('dimension' in expression ? [expression.dimension] : [])),
  ];
  const from = Math.max(
    ...conditions.map((condition) =>
      condition.column === 'time' && !condition.comparison.startsWith('<')
        ? condition.timeMs
        : Number.NEGATIVE_INFINITY,
    ),
  );
  const keeps = (granularity: Granularity) => {
    const length = LENGTH_MS[granularity];
    const first = TABLES[table] === undefined ? Math.floor(from / length) : Math.ceil(from / length);
    return first > Math.floor(nowMs / length) - RETENTION[granularity];
  };
  const unit = TABLES[table];
  const needsHours = dimensions.some((dimension) => dimension.unit === 'hour');
  const granularity = unit ?? (needsHours || keeps('hour') ? 'hour' : 'day');
  if (unit === undefined && dimensions.some((dimension) => dimension.column === 'time' && !dimension.unit))
    throw refusal(
      'time: the time of one verification is not kept; use toStartOfHour(time) or toStartOfDay(time)',
    );
  if (unit === 'day' && needsHours) throw refusal('toStartOfHour: use key_verifications_per_hour_v1');
  if (from !== Number.NEGATIVE_INFINITY && !keeps(granularity))
    throw refusal(
      `time: hours are kept for ${RETENTION.hour} hours, days for ${RETENTION.day} days; use a later time${granularity === 'hour' ? ', or key_verifications_per_day_v1' : ''}`,
    );
  return granularity;
}

/**
 * Returns the rows of the result. Throws BAD_REQUEST as soon as they are too many. Its work is bounded, because series,
 * the periods of each, columns and conditions are.
 */
export function rowsOf(query: UsageQuery, granularity: Granularity, series: readonly Series[]): Row[] {
  const { outputs, groups, order, limit } = query;
  const groupsMax = limit === undefined ? ROWS_MAX : GROUPS_MAX;
  const columns = columnsOf(query);
  // Without GROUP BY there is one row of sums, whatever is counted.
  const byGroup = new Map<string, Value[]>(groups.length === 0 ? [['[]', outputs.map(() => 0)]] : []);
  for (const { ids, buckets } of series)
    for (const bucket of buckets.filter(({ time }) => isInTime(query, granularity, time)))
      for (const { code, field, sums } of columns) {
        const count = bucket[field];
        if (count === 0) continue;
        const cell = { ...ids, time: bucket.time, outcome: code };
        const name = JSON.stringify(groups.map((dimension) => cellValue(cell, dimension)));
        const row = byGroup.get(name) ?? outputs.map(({ expression }) => firstValue(cell, expression));
        for (const i of sums) row[i] = Number(row[i]) + count;
        byGroup.set(name, row);
        if (byGroup.size > groupsMax)
          throw refusal(
            `the result has more than ${groupsMax} rows${limit === undefined ? '; add LIMIT or' : ' before LIMIT; add'} a condition`,
          );
      }
  const rows = [...byGroup.values()];
  rows.sort((a, b) => {
    for (const { output, isDescending } of order) {
      const difference = compare(a[output], b[output]);
      if (difference !== 0) return isDescending ? -difference : difference;
    }
    return 0;
  });
  return rows
    .slice(0, limit)
    .map((values) => Object.fromEntries(outputs.map(({ name }, i) => [name, values[i] ?? ''])));
}

const refusal = (message: string) => new ApiError('BAD_REQUEST', `query: ${message}`);
const firstValue = (cell: Cell, expression: Expression): Value =>
  'dimension' in expression ? cellValue(cell, expression.dimension) : 0;

function compare(a: Value = '', b: Value = ''): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** The outcomes that the conditions admit, each with the places of the outputs that count it. */
function columnsOf({ conditions, outputs }: UsageQuery) {
  const isAsked = (code: string) =>
    conditions.every((condition) => condition.column !== 'outcome' || admits(condition, code));
  return USAGE_COLUMNS.filter(({ code }) => isAsked(code)).map(({ code, field }) => ({
    ...{ code, field },
    sums: outputs.flatMap(({ expression }, i) =>
      'total' in expression && (!expression.total.condition || admits(expression.total.condition, code))
        ? [i]
        : [],
    ),
  }));
}

function cellValue(cell: Cell, { column, unit }: Dimension): Value {
  const value = cell[column] ?? '';
  return unit === undefined || typeof value !== 'number' ? value : startOf(value, unit);
}

/** Tells whether the conditions on time admit an hour or a day; those on ids determine the series. */
function isInTime({ table, conditions }: UsageQuery, granularity: Granularity, time: number): boolean {
  // Whole hours or days stand for the verifications in them: any that has a part in the time asked for counts.
  const length = TABLES[table] === undefined ? LENGTH_MS[granularity] : 1;
  return conditions.every(
    (condition) =>
      condition.column !== 'time' ||
      COMPARISONS[condition.comparison](time, time + length - 1, condition.timeMs),
  );
}

/** Compare a span of milliseconds, from `first` to `last`, with a time. */
const COMPARISONS: Readonly<Record<Comparison, (first: number, last: number, timeMs: number) => boolean>> = {
  '=': (first, _last, timeMs) => first === timeMs,
  '>': (_first, last, timeMs) => last > timeMs,
  '>=': (_first, last, timeMs) => last >= timeMs,
  '<': (first, _last, timeMs) => first < timeMs,
  '<=': (first, _last, timeMs) => first <= timeMs,
};
