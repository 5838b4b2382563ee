import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { USAGE_COLUMNS } from '#shared/protocol/records/usage.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import { codesWhere } from '#shared/rules/verdict-codes.ts';
import type { Apis } from '../../core/apis/apis.ts';
import type { Caller } from '../../core/callers/root-keys.ts';
import { keyIdExample } from '../../core/keys/key-answer.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { KeyView } from '../../core/records/key-view.ts';
import { ExternalId } from '../../core/schema/key-fields.ts';
import {
  ApiId,
  Count,
  Fields,
  KeyId,
  List,
  period,
  Time,
  timeOf,
  usageCounts,
} from '../../core/schema/primitives.ts';
import { absence, apiNotFound, lack, recordNotFound, requireApi } from '../../core/serve/authorization.ts';
import { operation } from '../../core/serve/operation.ts';
import type { CostlyReads } from '../../core/serve/turns.ts';
import type { UsageBucket, UsagePeriod, UsageView } from './usage.ts';

/** Parts by which counts are told apart, each with its field in a row. */
const GROUPS = { time: 'time', code: 'code', api: 'apiId', key: 'keyId', identity: 'externalId' } as const;
type Group = keyof typeof GROUPS;
const ROWS_MAX = 10_000;
const oneOf = Object.keys(GROUPS).join('|');

const query = operation({
  name: 'usage.query',
  id: 'queryUsage',
  kind: 'query',
  summary: 'Count verdicts of several APIs or keys',
  description:
    'Adds up what is kept: hours for two days, days for a month. Counts all APIs that the root key may read, or the named API, key, or identity, of which the present keys count (up to 200,000; up to 100 with `key` in `groupBy`). Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_analytics'],
  authorizesItself: true,
  request: Fields({
    groupBy: Type.Optional(
      Type.String({
        pattern: `^(${oneOf})(,(${oneOf})){0,4}$`,
        description: `The parts that rows tell apart, separated by commas: ${Object.keys(GROUPS).join(', ')}. Absent = one sum.`,
      }),
    ),
    ...period,
    apiId: Type.Optional(ApiId),
    keyId: Type.Optional(KeyId),
    externalId: Type.Optional(ExternalId),
    code: Type.Optional(
      Type.Union(
        codesWhere(({ usage }) => usage !== undefined).map((code) => Type.Literal(code)),
        { description: 'Only this verdict.' },
      ),
    ),
  }),
  response: Type.Object({
    rows: List(
      Type.Object({
        time: Type.Optional(Time('When the hour or day began')),
        code: Type.Optional(Type.String({ description: 'The verdict.' })),
        apiId: Type.Optional(Type.String()),
        keyId: Type.Optional(Type.String()),
        externalId: Type.Optional(Type.String({ description: 'The identity.' })),
        count: Count('Number of verdicts.'),
      }),
      {
        description: `One for each combination that occurs, in order of time, then the highest count first; at most ${ROWS_MAX}. A row has the fields of \`groupBy\`.`,
      },
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { groupBy: 'code', apiId: 'shop' },
  async handle({ request, caller }, needs: SourceStores & { clock: Clock; costlyReads: CostlyReads }) {
    const { clock, costlyReads, ...stores } = needs;
    const { groupBy = '', granularity, start, end, apiId, keyId, externalId, code } = request;
    const groups = [...new Set(groupBy.split(',').filter(Boolean))] as Group[];
    const named = { apiIds: only(apiId), keyIds: only(keyId), externalIds: only(externalId) };
    if (keyId && externalId) throw refusal('externalId: must be absent if there is a keyId');
    if (groups.includes('identity') && !externalId)
      throw refusal('groupBy: name the identity by externalId, since counts are kept by key');
    if (groups.includes('key') && !keyId && !externalId)
      throw refusal('groupBy: name the key by keyId, or its identity by externalId');
    const span = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    return costlyReads.run(caller.id, async () => {
      const counts =
        groups.includes('key') || !externalId
          ? await countsOf(named, FIELDS, span, caller, stores)
          : await countsOfIdentity(named, externalId, span, caller, stores);
      await stores.usage.watch([...new Set(counts.toSorted(mostUsed).map((each) => each.apiId))]);
      return { rows: rowsOf(counts, groups, code) };
    });
  },
});

export const getVerifications = operation({
  name: 'keys.getVerifications',
  kind: 'query',
  summary: 'See how often a key was verified',
  description:
    'Hours go back two days, days go back a month. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId, ...period }),
  response: Type.Object({
    verifications: List(Type.Object({ time: Time('When the hour or day began'), ...usageCounts }), {
      description: 'In order of time, including those without verifications.',
    }),
  }),
  errors: ['NOT_FOUND'],
  example: { keyId: keyIdExample },
  async handle({ apiId, request }, { keys, usage, clock }: { keys: Keys; usage: UsageView; clock: Clock }) {
    const { keyId, granularity, start, end } = request;
    if ((await keys.lastSequence(apiId, keyId)) === undefined) throw await recordNotFound(keys, apiId, keyId);
    const span = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    await usage.watch([apiId]);
    return { verifications: await usage.series(apiId, keyId, span) };
  },
});

export const getApiVerifications = operation({
  name: 'apis.getVerifications',
  kind: 'query',
  id: 'getApiVerifications',
  summary: 'See how often keys of an API were verified',
  description:
    'By minute of the last hour, by hour or by day like keys.getVerifications, for all keys of the API together, including deleted ones; or by day and by the tags of verifyKey. Verifiers report up to their USAGE_PERIOD_MS late.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  request: Fields({
    apiId: ApiId,
    ...period,
    granularity: Type.Union([Type.Literal('minute'), Type.Literal('hour'), Type.Literal('day')], {
      default: 'day',
      description: 'Minutes are those of the last hour. All are those of UTC.',
    }),
    tag: Type.Optional(
      Type.String({ minLength: 1, maxLength: 128, description: 'Only verdicts with this tag, by day.' }),
    ),
    groupBy: Type.Optional(Type.Literal('tag', { description: 'One sum per tag over the whole period.' })),
    limit: Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      default: '1000',
      description: 'Maximum number of tags listed separately, 1..1000; the others are summed up as `other`.',
    }),
  }),
  response: Type.Object({
    verifications: List(
      Type.Object({
        time: Type.Optional(Time('When the minute, hour or day began; absent if grouped by tag')),
        tag: Type.Optional(Type.String({ description: 'Present if grouped by tag.' })),
        other: Type.Optional(
          Type.Literal(true, {
            description:
              'The sum of all tags not listed separately: those after the first 1,000 of a day, and those beyond `limit`.',
          }),
        ),
        ...usageCounts,
      }),
      {
        description: 'In order of time; if grouped by tag, the most used first and `other` last.',
      },
    ),
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
  async handle(
    { request, caller },
    {
      apis,
      usage,
      clock,
      costlyReads,
    }: { apis: Apis; usage: UsageView; clock: Clock; costlyReads: CostlyReads },
  ) {
    const { apiId, granularity, start, end, tag, groupBy, limit } = request;
    const byTag = groupBy === 'tag';
    if ((byTag || tag !== undefined) && granularity !== 'day')
      throw new ApiError('BAD_REQUEST', 'granularity: must be day; tags are counted by day');
    if (byTag && tag !== undefined)
      throw new ApiError('BAD_REQUEST', 'tag: must be absent if groupBy is given');
    if (!(await apis.get(apiId))) throw apiNotFound(apiId);
    const span = { granularity, nowMs: clock.wallMs(), startMs: timeOf(start), endMs: timeOf(end) };
    if (byTag) {
      const verifications = () => usage.byTag(apiId, Number(limit), span);
      return { verifications: await costlyReads.run(caller.id, verifications) };
    }
    if (tag !== undefined) return { verifications: await usage.seriesOfTag(apiId, tag, span) };
    await usage.watch([apiId]);
    return { verifications: await usage.series(apiId, undefined, span) };
  },
});

export const usageOperations = [query] as const;

const totalOf = ({ buckets }: Counts): number =>
  buckets.reduce((sum, bucket) => sum + USAGE_COLUMNS.reduce((n, { field }) => n + bucket[field], 0), 0);
const mostUsed = (a: Counts, b: Counts) => totalOf(b) - totalOf(a);

const refusal = (message: string) => new ApiError('BAD_REQUEST', message);
const only = (id: string | undefined) => (id === undefined ? undefined : new Set([id]));
const FIELDS: SourceFields = {
  ...{ apiIds: 'apiId', keyIds: 'keyId', externalIds: 'externalId' },
  ...{ whole: 'apiId', severalApis: 'apiId', severalKeys: 'keyId' },
};

interface Row {
  readonly time?: number;
  readonly code?: string;
  readonly apiId?: string;
  readonly keyId?: string;
  readonly externalId?: string;
  count: number;
}

function rowsOf(counts: readonly Counts[], groups: readonly Group[], code: string | undefined): Row[] {
  const columns = USAGE_COLUMNS.filter((column) => code === undefined || column.code === code);
  const rows = new Map<string, Row>(groups.length === 0 ? [['{}', { count: 0 }]] : []);
  for (const { buckets, ...ids } of counts)
    for (const bucket of buckets)
      for (const column of columns) {
        const count = bucket[column.field];
        if (count === 0) continue;
        const cell: Omit<Row, 'count'> = { ...ids, time: bucket.time, code: column.code };
        const part: Omit<Row, 'count'> = Object.fromEntries(
          groups.map((group) => [GROUPS[group], cell[GROUPS[group]]]),
        );
        const name = JSON.stringify(part);
        const row = rows.get(name) ?? { ...part, count: 0 };
        row.count += count;
        rows.set(name, row);
        if (rows.size > ROWS_MAX)
          throw refusal(`groupBy: the answer has more than ${ROWS_MAX} rows; name an API or a shorter time`);
      }
  return [...rows.values()].sort((a, b) => (a.time ?? 0) - (b.time ?? 0) || b.count - a.count);
}

/** Maximum number of APIs and keys whose counts one query reads. */
export const SERIES_MAX = 100;
const ACTION = 'read_analytics';

interface ApiPage {
  readonly apis: readonly { readonly id: string }[];
  readonly next?: string | undefined;
}

/** The stores that a query reads. */
export interface SourceStores {
  readonly apis: {
    get(apiId: string): Promise<object | undefined>;
    list(after: string, limit: number): Promise<ApiPage>;
    among(ids: readonly string[], after: string, limit: number): Promise<ApiPage>;
  };
  readonly keys: { apiOf(keyId: string): Promise<string | undefined> };
  readonly usage: UsageView;
  readonly view: KeyView;
}

type Named = { readonly [kind in 'apiIds' | 'keyIds' | 'externalIds']: ReadonlySet<string> | undefined };
/** The words of errors: the field of each kind of ids, that of all APIs, and how to name several. */
export type SourceFields = Readonly<Record<keyof Named | 'whole' | 'severalApis' | 'severalKeys', string>>;

/** The API or the key that has the counts, and the identity by which it was named. */
interface Source {
  readonly apiId: string;
  readonly keyId?: string;
  readonly externalId?: string;
}

/** The counts of one API, or of one key. */
interface Counts extends Source {
  readonly buckets: readonly UsageBucket[];
}

/**
 * Reads the counts of the named keys, of the keys of the named identities, or of APIs as a whole. Rejects with
 * ApiError, also if the caller may not read one of them.
 */
export async function countsOf(
  named: Named,
  fields: SourceFields,
  span: UsagePeriod,
  caller: Caller,
  stores: SourceStores,
): Promise<Counts[]> {
  const sources = await sourcesOf(named, fields, caller, stores);
  return Promise.all(
    sources.map(async (source) => ({
      ...source,
      buckets: await stores.usage.series(source.apiId, source.keyId, span),
    })),
  );
}

/** Maximum number of keys of an identity whose counts one query adds up: of 100,000, Redis adds up within 1.5 s, a millisecond at a time. */
const IDENTITY_KEYS_MAX = 200_000;

/** Adds up the counts of an identity's keys in each API. Rejects with ApiError. */
async function countsOfIdentity(
  { apiIds }: Named,
  externalId: string,
  span: UsagePeriod,
  caller: Caller,
  stores: SourceStores,
): Promise<Counts[]> {
  const sources = await sourcesOf(
    { apiIds, keyIds: undefined, externalIds: undefined },
    FIELDS,
    caller,
    stores,
  );
  const counts: Counts[] = [];
  let unreadMax = IDENTITY_KEYS_MAX;
  for (const { apiId } of sources) {
    const { buckets, keys } = await stores.usage.seriesOfIdentity(apiId, externalId, unreadMax, span);
    unreadMax -= keys;
    if (unreadMax < 0)
      throw refusal(
        `externalId: the identity has more than ${IDENTITY_KEYS_MAX.toLocaleString('en')} keys; name an API by apiId, or a key by keyId`,
      );
    counts.push({ apiId, externalId, buckets });
  }
  return counts;
}

async function sourcesOf(
  { apiIds, keyIds, externalIds }: Named,
  fields: SourceFields,
  caller: Caller,
  stores: SourceStores,
): Promise<Source[]> {
  for (const apiId of apiIds ?? []) await checkApi(apiId, fields, caller, stores);
  if (keyIds) {
    const keys = await Promise.all([...keyIds].map((keyId) => keySource(keyId, fields, caller, stores)));
    return keys.filter(({ apiId }) => apiIds?.has(apiId) ?? true);
  }
  const all = apiIds ? [...apiIds] : await readableApis(fields, caller, stores);
  if (!externalIds) return all.map((apiId) => ({ apiId }));
  const sources: Source[] = [];
  for (const apiId of all)
    for (const externalId of externalIds) {
      // One more than can be read, so that too many are noticed.
      const page = await stores.view.ids(apiId, externalId, SERIES_MAX + 1 - sources.length);
      sources.push(...(page?.keyIds ?? []).map((keyId) => ({ apiId, keyId, externalId })));
      if (sources.length > SERIES_MAX)
        throw refusal(
          `${fields.externalIds}: the identities have more than ${SERIES_MAX} keys; name fewer, or keys by ${fields.severalKeys}`,
        );
    }
  return sources;
}

async function checkApi(
  apiId: string,
  fields: SourceFields,
  caller: Caller,
  { apis }: SourceStores,
): Promise<void> {
  if (!API_ID.test(apiId)) throw refusal(`${fields.apiIds}: is not the id of an API`);
  requireApi(caller, apiId, ACTION);
  if (!(await apis.get(apiId))) throw apiNotFound(apiId);
}

async function keySource(
  keyId: string,
  fields: SourceFields,
  caller: Caller,
  { keys }: SourceStores,
): Promise<Source> {
  if (!/^[A-Za-z0-9_-]{1,80}$/.test(keyId)) throw refusal(`${fields.keyIds}: is not the id of a key`);
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw absence(caller, `key ${keyId}`);
  requireApi(caller, apiId, ACTION, `key ${keyId}`);
  return { apiId, keyId };
}

/** The APIs that the caller may read. Rejects with BAD_REQUEST if they are too many. */
async function readableApis(fields: SourceFields, caller: Caller, { apis }: SourceStores): Promise<string[]> {
  const readableIds = caller.permissions.apisWith(ACTION);
  if (readableIds?.length === 0) throw lack(caller, `api.*.${ACTION}`);
  const page = readableIds ? await apis.among(readableIds, '', SERIES_MAX) : await apis.list('', SERIES_MAX);
  if (page.next !== undefined)
    throw refusal(
      `${fields.whole}: there are more than ${SERIES_MAX} APIs; name some by ${fields.severalApis}`,
    );
  return page.apis.map(({ id }) => id);
}
