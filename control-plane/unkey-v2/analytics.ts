import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import type { Apis } from '../apis/apis.ts';
import type { Caller } from '../callers/root-keys.ts';
import type { Keys } from '../keys/keys.ts';
import type { KeyView } from '../records/key-view.ts';
import { Fields, List } from '../schema/primitives.ts';
import { absence, apiNotFound, lack, requireApi } from '../serve/authorization.ts';
import type { CostlyReads } from '../serve/turns.ts';
import type { UsagePeriod, UsageView } from '../usage/usage.ts';
import {
  granularityOf,
  type IdColumn,
  parseUsageQuery,
  QUERY_LENGTH_MAX,
  rowsOf,
  SERIES_MAX,
  type Series,
  type UsageQuery,
} from '../usage/usage-query.ts';
import { onlyV2 } from './face.ts';

export const queryVerifications = onlyV2({
  name: 'analytics.getVerifications',
  kind: 'query',
  summary: 'Ask for counts of verifications in SQL',
  description:
    'Answers a SELECT from counts that are kept by hour for two days and by day for a month; control-plane/usage/README.md says which. Verifiers report up to their USAGE_PERIOD_MS late.',
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
    { clock, costlyReads, ...stores }: QueryStores & { clock: Clock; costlyReads: CostlyReads },
  ) {
    const nowMs = clock.wallMs();
    const query = parseUsageQuery(request.query, nowMs);
    const granularity = granularityOf(query, nowMs);
    return costlyReads.run(caller.id, async () => ({
      data: rowsOf(query, granularity, await seriesOf(query, { granularity, nowMs }, caller, stores)),
    }));
  },
});

/** The stores that a query reads. */
interface QueryStores {
  readonly apis: Apis;
  readonly keys: Keys;
  readonly usage: UsageView;
  readonly view: KeyView;
}

const ACTION = 'read_analytics';
const refusal = (message: string) => new ApiError('BAD_REQUEST', `query: ${message}`);

/** The API or the key that has the counts, and the ids by which rows show it. */
interface Source {
  readonly apiId: string;
  readonly keyId?: string;
  readonly externalId?: string;
}

/**
 * Reads the counts that a query needs: those of the keys that it names, of the keys of the identities that it
 * names, or of APIs as a whole. Rejects with ApiError, also if the caller may not read one of them.
 */
async function seriesOf(
  query: UsageQuery,
  period: UsagePeriod,
  caller: Caller,
  stores: QueryStores,
): Promise<Series[]> {
  checkIds(query);
  const sources = await sourcesOf(query, caller, stores);
  return Promise.all(
    sources.map(async ({ apiId, keyId, externalId }) => ({
      ids: {
        ...{ key_space_id: apiId, api_id: apiId },
        ...(keyId === undefined ? {} : { key_id: keyId }),
        ...(externalId === undefined ? {} : { external_id: externalId }),
      },
      buckets: await stores.usage.series(apiId, keyId, period),
    })),
  );
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

async function sourcesOf(query: UsageQuery, caller: Caller, stores: QueryStores): Promise<Source[]> {
  const apiIds = idsIn(query, 'key_space_id', 'api_id');
  for (const apiId of apiIds ?? []) await checkApi(apiId, caller, stores);
  const keyIds = idsIn(query, 'key_id');
  if (keyIds) {
    const keys = await Promise.all([...keyIds].map((keyId) => keySource(keyId, caller, stores)));
    return keys.filter(({ apiId }) => apiIds?.has(apiId) ?? true);
  }
  const all = apiIds ? [...apiIds] : await readableApis(caller, stores);
  const externalIds = idsIn(query, 'external_id');
  if (!externalIds) return all.map((apiId) => ({ apiId }));
  const sources: Source[] = [];
  for (const apiId of all)
    for (const externalId of externalIds) {
      // One more than can be read, so that too many are noticed.
      const page = await stores.view.ids(apiId, externalId, SERIES_MAX + 1 - sources.length);
      sources.push(...(page?.keyIds ?? []).map((keyId) => ({ apiId, keyId, externalId })));
      if (sources.length > SERIES_MAX)
        throw refusal(
          `external_id: the identities have more than ${SERIES_MAX} keys; name fewer, or keys by key_id`,
        );
    }
  return sources;
}

async function checkApi(apiId: string, caller: Caller, { apis }: QueryStores): Promise<void> {
  if (!API_ID.test(apiId)) throw refusal('key_space_id: is not the id of an API');
  requireApi(caller, apiId, ACTION);
  if (!(await apis.get(apiId))) throw apiNotFound(apiId);
}

async function keySource(keyId: string, caller: Caller, { keys }: QueryStores): Promise<Source> {
  if (!/^[A-Za-z0-9_-]{1,80}$/.test(keyId)) throw refusal('key_id: is not the id of a key');
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw absence(caller, `key ${keyId}`);
  requireApi(caller, apiId, ACTION, `key ${keyId}`);
  return { apiId, keyId };
}

/** The APIs that the caller may read. Rejects with BAD_REQUEST if they are too many. */
async function readableApis(caller: Caller, { apis }: QueryStores): Promise<string[]> {
  const readableIds = caller.permissions.apisWith(ACTION);
  if (readableIds?.length === 0) throw lack(caller, `api.*.${ACTION}`);
  const page = readableIds ? await apis.among(readableIds, '', SERIES_MAX) : await apis.list('', SERIES_MAX);
  if (page.next !== undefined)
    throw refusal(`there are more than ${SERIES_MAX} APIs; name some by key_space_id = '…' or IN`);
  return page.apis.map(({ id }) => id);
}
