import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { ApiError } from '#shared/rules/errors.ts';
import type { Caller } from '../core/callers/root-keys.ts';
import { Fields, List } from '../core/schema/primitives.ts';
import type { CostlyReads } from '../core/serve/turns.ts';
import { countsOf, type SourceFields, type SourceStores } from '../subjects/usage/operations.ts';
import type { UsagePeriod } from '../subjects/usage/usage.ts';
import { onlyV2 } from './face.ts';
import {
  granularityOf,
  type IdColumn,
  parseUsageQuery,
  QUERY_LENGTH_MAX,
  rowsOf,
  type Series,
  type UsageQuery,
} from './usage-query.ts';

export const queryVerifications = onlyV2({
  name: 'analytics.getVerifications',
  kind: 'query',
  summary: 'Ask for counts of verifications in SQL',
  description:
    'Answers a SELECT from counts that are kept by hour for two days and by day for a month; control-plane/subjects/usage/README.md says which. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_analytics'],
  authorizesItself: true,
  request: Fields({
    query: Type.String({ minLength: 1, maxLength: QUERY_LENGTH_MAX, description: 'A SELECT.' }),
  }),
  data: List(Type.Object({}, { additionalProperties: Type.Union([Type.String(), Type.Integer()]) }), {
    description: 'One object per row, with the names of the SELECT. Times are Unix milliseconds.',
  }),
  example: {
    query:
      "SELECT outcome, SUM(count) AS total FROM key_verifications_per_day_v1 WHERE key_space_id = 'shop' AND time >= now() - INTERVAL 7 DAY GROUP BY outcome ORDER BY total DESC",
  },
  errors: ['NOT_FOUND'],
  async handle(
    { request, caller },
    { clock, costlyReads, ...stores }: SourceStores & { clock: Clock; costlyReads: CostlyReads },
  ) {
    const nowMs = clock.wallMs();
    const query = parseUsageQuery(request.query, nowMs);
    const granularity = granularityOf(query, nowMs);
    return costlyReads.run(caller.id, async () => ({
      data: rowsOf(query, granularity, await seriesOf(query, { granularity, nowMs }, caller, stores)),
    }));
  },
});

const refusal = (message: string) => new ApiError('BAD_REQUEST', `query: ${message}`);
/** The columns that name what is counted, as conditions on them are refused. */
const FIELDS: SourceFields = {
  ...{ apiIds: 'query: key_space_id', keyIds: 'query: key_id', externalIds: 'query: external_id' },
  whole: 'query',
  severalApis: "key_space_id = '…' or IN",
  severalKeys: 'key_id',
};

/** Reads the counts that a query needs. Rejects with ApiError, also if the caller may not read one of them. */
async function seriesOf(
  query: UsageQuery,
  period: UsagePeriod,
  caller: Caller,
  stores: SourceStores,
): Promise<Series[]> {
  checkIds(query);
  const named = {
    apiIds: idsIn(query, 'key_space_id', 'api_id'),
    keyIds: idsIn(query, 'key_id'),
    externalIds: idsIn(query, 'external_id'),
  };
  const sources = await countsOf(named, FIELDS, period, caller, stores);
  return sources.map(({ apiId, keyId, externalId, buckets }) => ({
    ids: {
      ...{ key_space_id: apiId, api_id: apiId },
      ...(keyId === undefined ? {} : { key_id: keyId }),
      ...(externalId === undefined ? {} : { external_id: externalId }),
    },
    buckets,
  }));
}

/** Returns the ids that the query names in a column; undefined if it has no condition on it. */
function idsIn({ conditions }: UsageQuery, ...columns: readonly IdColumn[]): ReadonlySet<string> | undefined {
  const lists = conditions.flatMap((condition) =>
    'ids' in condition && columns.includes(condition.column) ? [condition.ids] : [],
  );
  const [first, ...others] = lists;
  return first && new Set(first.filter((id) => others.every((list) => list.includes(id))));
}

/** Throws BAD_REQUEST if a query needs counts by key or by identity without naming them. */
function checkIds(query: UsageQuery): void {
  const [keyIds, externalIds] = [idsIn(query, 'key_id'), idsIn(query, 'external_id')];
  if (keyIds && externalIds) throw refusal('external_id: must be absent if there is a condition on key_id');
  for (const { column } of query.groups) {
    if (column === 'external_id' && !externalIds)
      throw refusal(
        "external_id: name the identities by external_id = '…' or IN, since counts are kept by key",
      );
    if (column === 'key_id' && !keyIds && !externalIds)
      throw refusal("key_id: name the keys by key_id = '…' or IN, or their identity by external_id");
  }
}
