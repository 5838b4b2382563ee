import {
  type Granularity,
  LENGTH_MS,
  RETENTION,
  USAGE_COLUMNS,
  type UsageField,
} from '#shared/protocol/records/usage.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { UNIX_MS_MIN, UNIX_MS_RULE } from '#shared/rules/unix-ms.ts';
import { SERIES_MAX } from '../subjects/usage/operations.ts';

const TEXT = /^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?Z?)?$/;
const UNITS = { minute: 60_000, hour: LENGTH_MS.hour, day: LENGTH_MS.day, week: 7 * LENGTH_MS.day } as const;
const UNIT_NAMES = ['minute', 'minutes', 'hour', 'hours', 'day', 'days', 'week', 'weeks'] as const;
const EXPECTED = "a time, such as now() - INTERVAL 7 DAY or '2026-11-25 10:00:00' (in UTC),";

/** The functions that return the beginning of an hour or a day. */
const STARTS = { tostartofhour: 'hour', tostartofday: 'day', todate: 'day' } as const;
const START_NAMES = ['tostartofhour', 'tostartofday', 'todate'] as const;

/** Returns the start of the hour or day of a time. */
const startOf = (timeMs: number, unit: Granularity): number =>
  Math.floor(timeMs / LENGTH_MS[unit]) * LENGTH_MS[unit];

/**
 * Reads a time, Unix milliseconds.
 * @param canBeNumber true if the query's table has its times as numbers
 */
function momentIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const start = reader.takeWord(...START_NAMES);
  if (start === undefined) return differenceIn(reader, nowMs, canBeNumber);
  reader.symbol('(');
  const timeMs = differenceIn(reader, nowMs, canBeNumber);
  reader.symbol(')');
  return startOf(timeMs, STARTS[start]);
}

/** Reads a time, perhaps less an interval. */
function differenceIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const timeMs = pointIn(reader, nowMs, canBeNumber);
  if (!reader.takeSymbol('-')) return timeMs;
  reader.words('interval');
  const number = reader.takeNumber() ?? reader.fail('a number');
  const unit = reader.takeWord(...UNIT_NAMES) ?? reader.fail('MINUTE, HOUR, DAY or WEEK');
  return timeMs - number * UNITS[unit.replace(/s$/, '') as keyof typeof UNITS];
}

function pointIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const word = reader.takeWord('now', 'today', 'yesterday', 'todatetime');
  if (word === 'todatetime') {
    reader.symbol('(');
    const timeMs = textTimeIn(reader);
    reader.symbol(')');
    return timeMs;
  }
  if (word !== undefined) {
    reader.symbol('(');
    reader.symbol(')');
    if (word === 'now') return nowMs;
    return startOf(nowMs, 'day') - (word === 'today' ? 0 : LENGTH_MS.day);
  }
  const number = canBeNumber ? reader.takeNumber() : undefined;
  if (number === undefined) return textTimeIn(reader);
  if (number > 0 && number < UNIX_MS_MIN) throw new ApiError('BAD_REQUEST', `query: time: ${UNIX_MS_RULE}`);
  return number;
}

function textTimeIn(reader: Reader): number {
  const text = reader.takeText() ?? reader.fail(EXPECTED);
  const [, year, month, day, hour = 0, minute = 0, second = 0, fraction = ''] = TEXT.exec(text) ?? [];
  const parts = [year, Number(month) - 1, day, hour, minute, second, fraction.padEnd(3, '0')].map(Number);
  const [y = Number.NaN, ...rest] = parts;
  const timeMs = Date.UTC(y, ...(rest as [number, number, number, number, number, number]));
  return Number.isNaN(timeMs) ? reader.fail(EXPECTED) : timeMs;
}

/** A part of a query. `text` is in lower case, except that of a quoted text. */
interface Token {
  readonly kind: 'word' | 'number' | 'text' | 'symbol' | 'end';
  readonly text: string;
  /** The word as it was written. */
  readonly written: string;
  /** Position of its first character, from 1. */
  readonly position: number;
}

const SPACE = /(?:\s+|--[^\n]*(?:\n|$))+/y;
const FORMS = [
  ['word', /[A-Za-z][A-Za-z0-9_]{0,63}(?![A-Za-z0-9_])/y],
  ['number', /[0-9]{1,15}(?![A-Za-z0-9_.])/y],
  ['text', /'(?:[^'\\]|'')*'/y],
  ['symbol', /<=|>=|!=|<>|[=<>(),*;-]/y],
] as const;

const UNDERSTOOD =
  'understood are SELECT columns and sums FROM key_verifications_v1, key_verifications_per_hour_v1 or key_verifications_per_day_v1 WHERE conditions joined by AND GROUP BY columns ORDER BY columns LIMIT number; see control-plane/subjects/usage/README.md';

/** Reads a query from its beginning to its end. It never repeats the query, which could contain a secret. */
class Reader {
  readonly #tokens: readonly Token[];
  #next = 0;

  constructor(query: string) {
    this.#tokens = tokensOf(query);
  }

  /** Takes the next word if it is one of these, which are in lower case. */
  takeWord<Word extends string>(...words: readonly Word[]): Word | undefined {
    return this.#takeIf('word', words);
  }

  takeSymbol<Symbol extends string>(...symbols: readonly Symbol[]): Symbol | undefined {
    return this.#takeIf('symbol', symbols);
  }

  /** Takes a number, or a number in quotes. */
  takeNumber(): number | undefined {
    const { kind, text } = this.#token;
    if (kind !== 'number' && !(kind === 'text' && /^[0-9]{1,15}$/.test(text))) return undefined;
    this.#next++;
    return Number(text);
  }

  takeText(): string | undefined {
    const { kind, text } = this.#token;
    if (kind !== 'text') return undefined;
    this.#next++;
    return text;
  }

  /** Takes these words. */
  words(...words: readonly string[]): void {
    for (const word of words) if (this.takeWord(word) === undefined) this.fail(word.toUpperCase());
  }

  symbol(symbol: string): void {
    if (this.takeSymbol(symbol) === undefined) this.fail(`a ${symbol}`);
  }

  /** Takes a name that the query introduces, as it was written. */
  name(): string {
    const { kind, written } = this.#token;
    if (kind !== 'word') this.fail('a name');
    this.#next++;
    return written;
  }

  /** Takes items that are separated by commas. Throws BAD_REQUEST if they are more than `max`. */
  list<Item>(clause: string, max: number, item: () => Item): Item[] {
    const items = [item()];
    while (this.takeSymbol(',')) {
      if (items.length === max) throw new ApiError('BAD_REQUEST', `query: ${clause}: at most ${max} items`);
      items.push(item());
    }
    return items;
  }

  end(): void {
    this.takeSymbol(';');
    if (this.#token.kind !== 'end') this.fail('the end');
  }

  /** Throws BAD_REQUEST: something else is in this place. */
  fail(expected: string): never {
    const { kind, position } = this.#token;
    const place = kind === 'end' ? 'the end' : `character ${position}`;
    throw new ApiError('BAD_REQUEST', `query: at ${place}, ${expected} is required; ${UNDERSTOOD}`);
  }

  get #token(): Token {
    return this.#tokens[this.#next] ?? { kind: 'end', text: '', written: '', position: 0 };
  }

  #takeIf<Text extends string>(kind: Token['kind'], texts: readonly Text[]): Text | undefined {
    const token = this.#token;
    const text = token.kind === kind ? texts.find((each) => each === token.text) : undefined;
    if (text !== undefined) this.#next++;
    return text;
  }
}

function tokensOf(query: string): Token[] {
  const tokens: Token[] = [];
  for (let at = skipSpace(query, 0); at < query.length; ) {
    const token = tokenAt(query, at);
    tokens.push(token);
    at = skipSpace(query, at + token.written.length);
  }
  return tokens;
}

function tokenAt(query: string, at: number): Token {
  for (const [kind, form] of FORMS) {
    form.lastIndex = at;
    const written = form.exec(query)?.[0];
    if (written === undefined) continue;
    const text = kind === 'text' ? written.slice(1, -1).replaceAll("''", "'") : written.toLowerCase();
    return { kind, text, written, position: at + 1 };
  }
  throw new ApiError(
    'BAD_REQUEST',
    `query: character ${at + 1} begins no word, number or text; ${UNDERSTOOD}`,
  );
}

function skipSpace(query: string, at: number): number {
  SPACE.lastIndex = at;
  return at + (SPACE.exec(query)?.[0].length ?? 0);
}

const KEYWORDS = ['from', 'where', 'group', 'order', 'limit', 'as', 'and'] as const;
/** The outcomes that are counted. No count meets a condition on another text. */
const OUTCOMES: readonly string[] = USAGE_COLUMNS.map(({ code }) => code);
const refusal = (message: string) => new ApiError('BAD_REQUEST', `query: ${message}`);

/** Reads a query in SQL. Throws BAD_REQUEST that says which queries are understood. */
export function parseUsageQuery(text: string, nowMs: number): UsageQuery {
  const reader = new Reader(text);
  reader.words('select');
  const selections = reader.list('SELECT', OUTPUTS_MAX, () => selectionIn(reader));
  reader.words('from');
  const table = tableIn(reader);
  const outputs = selections.map(({ output, counted }) => checked(output, counted, table));
  const conditions = reader.takeWord('where') ? conditionsIn(reader, table, nowMs) : [];
  const groups = reader.takeWord('group') ? groupsIn(reader, outputs) : [];
  const order = reader.takeWord('order') ? orderIn(reader, outputs) : [];
  const limit = reader.takeWord('limit') ? { limit: limitIn(reader) } : {};
  reader.end();
  checkOutputs(outputs, groups);
  return { table, outputs, conditions, groups, order, ...limit };
}

/** The subject of a sum: `rows` of verifications, or the `count` of a row of counts. */
type Counted = 'rows' | 'count' | undefined;

function tableIn(reader: Reader): Table {
  const table = reader.takeWord(
    'key_verifications_v1',
    'key_verifications_per_hour_v1',
    'key_verifications_per_day_v1',
    'key_verifications_per_minute_v1',
    'key_verifications_per_month_v1',
  );
  if (table === undefined) reader.fail('the name of a table');
  if (table === 'key_verifications_per_minute_v1')
    throw refusal(
      'minutes are counted only by API, see apis.getVerifications; use key_verifications_per_hour_v1',
    );
  if (table === 'key_verifications_per_month_v1')
    throw refusal('months are not counted, and days are kept for 31 days; use key_verifications_per_day_v1');
  return table;
}

function selectionIn(reader: Reader): { readonly output: Output; readonly counted: Counted } {
  const { expression, name, counted } = expressionIn(reader);
  const alias = reader.takeWord('as') ? reader.name() : undefined;
  const output = { name: alias ?? name ?? reader.fail('AS and a name for the sum'), expression };
  return { output, counted };
}

type Selection = { readonly expression: Expression; readonly name?: string; readonly counted?: Counted };

function expressionIn(reader: Reader): Selection {
  const sum = reader.takeWord('count', 'sum', 'countif', 'sumif');
  if (sum === undefined) {
    const { dimension, name } = dimensionIn(reader) ?? reader.fail('a column, COUNT(*) or SUM(count)');
    return { expression: { dimension }, name };
  }
  reader.symbol('(');
  const selection = { count: countIn, sum: sumIn, countif: countIfIn, sumif: sumIfIn }[sum](reader);
  reader.symbol(')');
  return selection;
}

function countIn(reader: Reader): Selection {
  reader.takeSymbol('*');
  return { expression: { total: {} }, name: 'count()', counted: 'rows' };
}

function sumIn(reader: Reader): Selection {
  if (reader.takeWord('count')) return { expression: { total: {} }, name: 'sum(count)', counted: 'count' };
  reader.words('case', 'when');
  const condition = outcomeIn(reader);
  reader.words('then');
  const counted =
    reader.takeWord('count') ?? (reader.takeNumber() === 1 ? 'rows' : reader.fail('count or 1'));
  reader.words('else');
  if (reader.takeNumber() !== 0) reader.fail('0');
  reader.words('end');
  return { expression: { total: { condition } }, counted };
}

function countIfIn(reader: Reader): Selection {
  return { expression: { total: { condition: outcomeIn(reader) } }, counted: 'rows' };
}

function sumIfIn(reader: Reader): Selection {
  reader.words('count');
  reader.symbol(',');
  return { expression: { total: { condition: outcomeIn(reader) } }, counted: 'count' };
}

/** Reads a column, or the hour or day of `time`. */
function dimensionIn(reader: Reader): { readonly dimension: Dimension; readonly name: string } | undefined {
  const start = reader.takeWord(...START_NAMES);
  if (start === undefined) {
    const column = reader.takeWord(...COLUMNS);
    return column === undefined ? undefined : { dimension: { column }, name: column };
  }
  reader.symbol('(');
  reader.words('time');
  reader.symbol(')');
  const name = {
    tostartofhour: 'toStartOfHour(time)',
    tostartofday: 'toStartOfDay(time)',
    todate: 'toDate(time)',
  };
  return { dimension: { column: 'time', unit: STARTS[start] }, name: name[start] };
}

/** Returns a column of the result, whose sum must suit the table. */
function checked(output: Output, counted: Counted, table: Table): Output {
  const isRaw = table === 'key_verifications_v1';
  if (counted === 'rows' && !isRaw)
    throw refusal(`COUNT counts the rows of ${table}, each of which has a count; use SUM(count)`);
  if (counted === 'count' && isRaw) throw refusal(`${table} has no column count; use COUNT(*)`);
  return output;
}

function conditionsIn(reader: Reader, table: Table, nowMs: number): Condition[] {
  const conditions = [conditionIn(reader, table, nowMs)];
  while (reader.takeWord('and')) {
    if (conditions.length === CONDITIONS_MAX) throw refusal(`WHERE: at most ${CONDITIONS_MAX} conditions`);
    conditions.push(conditionIn(reader, table, nowMs));
  }
  return conditions;
}

function conditionIn(reader: Reader, table: Table, nowMs: number): Condition {
  if (reader.takeWord('time')) {
    const comparison = reader.takeSymbol('=', '>', '>=', '<', '<=') ?? reader.fail('=, >, >=, < or <=');
    const isRaw = table === 'key_verifications_v1';
    if (isRaw && comparison === '=')
      throw refusal(`${table}: the time of one verification is not kept; use >=`);
    return { column: 'time', comparison, timeMs: momentIn(reader, nowMs, isRaw) };
  }
  const column = reader.takeWord(...ID_COLUMNS);
  if (column === undefined) return { column: 'outcome', ...outcomeIn(reader) };
  const { texts: ids, isNegated } = membershipIn(reader);
  if (isNegated) throw refusal(`${column}: only = and IN are understood`);
  return { column, ids };
}

function outcomeIn(reader: Reader): OutcomeCondition {
  reader.words('outcome');
  const { texts, isNegated } = membershipIn(reader);
  return { outcomes: OUTCOMES.filter((outcome) => texts.includes(outcome)), isNegated };
}

/** Reads `= text`, `!= text`, `IN (texts)` or `NOT IN (texts)`. */
function membershipIn(reader: Reader): { readonly texts: readonly string[]; readonly isNegated: boolean } {
  const text = () => reader.takeText() ?? reader.fail('a text in single quotes');
  const comparison = reader.takeSymbol('=', '!=', '<>');
  if (comparison) return { texts: [text()], isNegated: comparison !== '=' };
  const isNegated = reader.takeWord('not') !== undefined;
  reader.words('in');
  reader.symbol('(');
  const texts = reader.list('IN', SERIES_MAX, text);
  reader.symbol(')');
  return { texts, isNegated };
}

function groupsIn(reader: Reader, outputs: readonly Output[]): Dimension[] {
  reader.words('by');
  const groups: Dimension[] = [];
  reader.list('GROUP BY', OUTPUTS_MAX, () => {
    const group = groupIn(reader, outputs);
    if (groups.some((other) => isSameDimension(group, other)))
      throw refusal(`GROUP BY: ${group.column} must be there once`);
    groups.push(group);
  });
  return groups;
}

function groupIn(reader: Reader, outputs: readonly Output[]): Dimension {
  const output = outputIn(reader, outputs);
  if (output && 'dimension' in output.expression) return output.expression.dimension;
  if (output) throw refusal(`GROUP BY: ${output.name} is a sum`);
  return dimensionIn(reader)?.dimension ?? reader.fail('a column');
}

function orderIn(reader: Reader, outputs: readonly Output[]): UsageQuery['order'] {
  reader.words('by');
  return reader.list('ORDER BY', OUTPUTS_MAX, () => {
    const output = outputIn(reader, outputs) ?? sameOutputIn(reader, outputs);
    return { output: outputs.indexOf(output), isDescending: reader.takeWord('asc', 'desc') === 'desc' };
  });
}

/** Takes the name of a column of the result. */
const outputIn = (reader: Reader, outputs: readonly Output[]): Output | undefined => {
  const name = reader.takeWord(...outputs.map((output) => output.name.toLowerCase()));
  return outputs.find((output) => output.name.toLowerCase() === name);
};

/** Reads an expression that is one of those selected. */
function sameOutputIn(reader: Reader, outputs: readonly Output[]): Output {
  const { expression } = expressionIn(reader);
  const same = outputs.find((output) => JSON.stringify(output.expression) === JSON.stringify(expression));
  if (!same) throw refusal('ORDER BY: must be a column of the result');
  return same;
}

function limitIn(reader: Reader): number {
  const limit = reader.takeNumber();
  if (limit === undefined || limit < 1 || limit > ROWS_MAX) throw refusal(`LIMIT: must be 1..${ROWS_MAX}`);
  return limit;
}

function checkOutputs(outputs: readonly Output[], groups: readonly Dimension[]): void {
  const names = outputs.map(({ name }) => name.toLowerCase());
  if (new Set(names).size < names.length)
    throw refusal('SELECT: each column needs a name of its own; use AS');
  if (KEYWORDS.some((word) => names.includes(word))) throw refusal('AS: the name must not be a word of SQL');
  for (const { name, expression } of outputs)
    if ('dimension' in expression && !groups.some((group) => isSameDimension(group, expression.dimension)))
      throw refusal(`SELECT: ${name} must be in GROUP BY, since only counts are kept`);
}

/** The tables, with the length of their periods; verifications themselves are not kept, only their counts. */
export const TABLES = {
  key_verifications_v1: undefined,
  key_verifications_per_hour_v1: 'hour',
  key_verifications_per_day_v1: 'day',
} as const satisfies Record<string, Granularity | undefined>;
/** Name of a table. */
export type Table = keyof typeof TABLES;

/** Columns by which counts can be grouped. `key_space_id` and `api_id` are both the id of the API. */
export const COLUMNS = ['time', 'outcome', 'key_space_id', 'api_id', 'key_id', 'external_id'] as const;
/** Name of a column by which counts can be grouped. */
export type Column = (typeof COLUMNS)[number];
/** Columns with the ids of things of which only named ones are read. */
export const ID_COLUMNS = ['key_space_id', 'api_id', 'key_id', 'external_id'] as const;
/** Name of a column with ids. */
export type IdColumn = (typeof ID_COLUMNS)[number];

/** A column, or the hour or day in which `time` is. */
export interface Dimension {
  readonly column: Column;
  readonly unit?: Granularity;
}
/** A condition on the outcome. */
export interface OutcomeCondition {
  readonly outcomes: readonly string[];
  /** True: none of the outcomes. */
  readonly isNegated: boolean;
}
/** The number of verifications that meet a condition; without one, of all. */
export interface Total {
  readonly condition?: OutcomeCondition;
}
/** The content of a column of the result. */
export type Expression = { readonly dimension: Dimension } | { readonly total: Total };
/** A column of the result. */
export interface Output {
  readonly name: string;
  readonly expression: Expression;
}

/** Comparison of times. */
export type Comparison = '=' | '>' | '>=' | '<' | '<=';
/** Condition of a query; all must be met. */
export type Condition =
  | { readonly column: 'time'; readonly comparison: Comparison; readonly timeMs: number }
  | ({ readonly column: 'outcome' } & OutcomeCondition)
  | { readonly column: IdColumn; readonly ids: readonly string[] };

/** A query, whose parts suit each other. */
export interface UsageQuery {
  readonly table: Table;
  readonly outputs: readonly Output[];
  readonly conditions: readonly Condition[];
  readonly groups: readonly Dimension[];
  /** The order of the rows, by columns of the result. */
  readonly order: readonly { readonly output: number; readonly isDescending: boolean }[];
  /** Maximum number of rows, if the query has a LIMIT. */
  readonly limit?: number;
}

export const QUERY_LENGTH_MAX = 4000;
const ROWS_MAX = 10_000;
/** Maximum number of rows before `LIMIT`, all of which are put in order. */
export const GROUPS_MAX = 20_000;
/** Maximum numbers of columns of the result and of conditions: each is work for every count that is read. */
const OUTPUTS_MAX = 20;
const CONDITIONS_MAX = 20;

/** Tells whether two dimensions are the same. */
const isSameDimension = (a: Dimension, b: Dimension): boolean => a.column === b.column && a.unit === b.unit;

/** Tells whether a condition admits an outcome. */
const admits = ({ outcomes, isNegated }: OutcomeCondition, outcome: string): boolean =>
  outcomes.includes(outcome) !== isNegated;

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
