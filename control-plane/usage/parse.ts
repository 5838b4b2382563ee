import { ApiError } from '#shared/contract/errors.ts';
import { USAGE_COLUMNS } from '#shared/contract/usage.ts';
import { momentIn, START_NAMES, STARTS } from './moment.ts';
import {
  COLUMNS,
  CONDITIONS_MAX,
  type Condition,
  type Dimension,
  type Expression,
  ID_COLUMNS,
  isSameDimension,
  OUTPUTS_MAX,
  type OutcomeCondition,
  type Output,
  ROWS_MAX,
  SERIES_MAX,
  type Table,
  type UsageQuery,
} from './query.ts';
import { Reader } from './reader.ts';

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
    throw refusal('minutes are not counted; use key_verifications_per_hour_v1');
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
