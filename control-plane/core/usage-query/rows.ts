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

/** One number: the verifications with one outcome, in one hour or day of one series. */
interface Cell {
  readonly values: Readonly<Partial<Record<Column, Value>>>;
  readonly time: number;
  readonly outcome: string;
  readonly count: number;
}

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

/** Returns the rows of the result. Throws BAD_REQUEST if they are too many. */
export function rowsOf(query: UsageQuery, granularity: Granularity, series: readonly Series[]): Row[] {
  const { outputs, groups, order, limit } = query;
  const cells = cellsOf(series).filter((cell) => meets(query, granularity, cell));
  // Without GROUP BY there is one row, whatever is counted.
  const byGroup = new Map<string, Cell[]>(groups.length === 0 ? [['[]', []]] : []);
  for (const cell of cells) {
    const name = JSON.stringify(groups.map((dimension) => cellValue(cell, dimension)));
    const group = byGroup.get(name);
    if (group) group.push(cell);
    else byGroup.set(name, [cell]);
  }
  const rows = [...byGroup.values()].map((group) =>
    outputs.map(({ expression }) =>
      'dimension' in expression
        ? cellValue(group[0], expression.dimension)
        : sum(
            group.filter(
              ({ outcome }) => !expression.total.condition || admits(expression.total.condition, outcome),
            ),
          ),
    ),
  );
  rows.sort((a, b) => {
    for (const { output, isDescending } of order) {
      const difference = compare(a[output], b[output]);
      if (difference !== 0) return isDescending ? -difference : difference;
    }
    return 0;
  });
  if (limit === undefined && rows.length > ROWS_MAX)
    throw refusal(`the result has more than ${ROWS_MAX} rows; add LIMIT or a condition`);
  return rows
    .slice(0, limit)
    .map((values) => Object.fromEntries(outputs.map(({ name }, i) => [name, values[i] ?? ''])));
}

const refusal = (message: string) => new ApiError('BAD_REQUEST', `query: ${message}`);
const sum = (cells: readonly Cell[]) => cells.reduce((total, { count }) => total + count, 0);

function compare(a: Value = '', b: Value = ''): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function cellsOf(series: readonly Series[]): Cell[] {
  return series.flatMap(({ ids, buckets }) =>
    buckets.flatMap((bucket) =>
      USAGE_COLUMNS.flatMap(({ code, field }) => {
        const [time, count] = [bucket.time, bucket[field]];
        return count === 0 ? [] : [{ values: { ...ids, time, outcome: code }, time, outcome: code, count }];
      }),
    ),
  );
}

function cellValue(cell: Cell | undefined, { column, unit }: Dimension): Value {
  const value = cell?.values[column] ?? '';
  return unit === undefined || typeof value !== 'number' ? value : startOf(value, unit);
}

/** Tells whether the conditions on time and outcome admit a cell; those on ids determine the series. */
function meets(
  { table, conditions }: UsageQuery,
  granularity: Granularity,
  { time, outcome }: Cell,
): boolean {
  // Whole hours or days stand for the verifications in them: any that has a part in the time asked for counts.
  const length = TABLES[table] === undefined ? LENGTH_MS[granularity] : 1;
  return conditions.every((condition) => {
    if (condition.column === 'outcome') return admits(condition, outcome);
    if (condition.column !== 'time') return true;
    return COMPARISONS[condition.comparison](time, time + length - 1, condition.timeMs);
  });
}

/** Compare a span of milliseconds, from `first` to `last`, with a time. */
const COMPARISONS: Readonly<Record<Comparison, (first: number, last: number, timeMs: number) => boolean>> = {
  '=': (first, _last, timeMs) => first === timeMs,
  '>': (_first, last, timeMs) => last > timeMs,
  '>=': (_first, last, timeMs) => last >= timeMs,
  '<': (first, _last, timeMs) => first < timeMs,
  '<=': (first, _last, timeMs) => first <= timeMs,
};
