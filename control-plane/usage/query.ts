import type { Granularity } from '#shared/contract/usage.ts';

/** A question about usage, as it was written in SQL. */

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
export const ROWS_MAX = 10_000;
/** Maximum number of rows before `LIMIT`, all of which are put in order. */
export const GROUPS_MAX = 20_000;
/** Maximum numbers of columns of the result and of conditions: each is work for every count that is read. */
export const OUTPUTS_MAX = 20;
export const CONDITIONS_MAX = 20;
/** Maximum number of series of counts that one query reads. */
export const SERIES_MAX = 100;

/** Tells whether two dimensions are the same. */
export const isSameDimension = (a: Dimension, b: Dimension): boolean =>
  a.column === b.column && a.unit === b.unit;

/** Tells whether a condition admits an outcome. */
export const admits = ({ outcomes, isNegated }: OutcomeCondition, outcome: string): boolean =>
  outcomes.includes(outcome) !== isNegated;
