import type { UsageField } from '#shared/protocol/records/usage.ts';
import { call, may } from '../api/client.ts';
import { COUNTERS, KINDS } from '../api/verdicts.ts';
import { DAY_MS, HOUR_MS } from './periods.tsx';

/** A period of counts by minute, hour or day; Unix milliseconds as text, the end included. */
export interface UsagePeriod {
  readonly granularity: 'minute' | 'hour' | 'day';
  readonly start: string;
  readonly end: string;
}

export const LENGTHS = { minute: 60_000, hour: HOUR_MS, day: DAY_MS } as const;

type Counts = Record<UsageField, number>;
const noCounts = () => Object.fromEntries(COUNTERS.map(({ field }) => [field, 0])) as Counts;

const APIS_MAX = '20';

/** Returns the APIs whose counts are added up. */
export const countedApis = async (): Promise<readonly string[]> =>
  (await call('apis.listApis', { limit: APIS_MAX })).apis
    .map(({ id }) => id)
    .filter((id) => may(`api.${id}.read_analytics`));

/** Loads the counts of the last hour by the minute, of the first APIs together. */
export async function minutesOfAll(): Promise<readonly (Counts & { time: number })[]> {
  const apiIds = await countedApis();
  const answers = await Promise.all(
    apiIds.map((apiId) => call('apis.getVerifications', { apiId, granularity: 'minute' })),
  );
  const minutes = new Map<number, Counts & { time: number }>();
  for (const { time = 0, ...counts } of answers.flatMap(({ verifications }) => verifications)) {
    const minute = minutes.get(time) ?? { time, ...noCounts() };
    for (const { field } of COUNTERS) minute[field] += counts[field];
    minutes.set(time, minute);
  }
  return [...minutes.values()].sort((a, b) => a.time - b.time);
}

/**
 * Loads the counts of all APIs together, also of hours and days without any.
 * @param externalId whose keys are counted; absent = all
 */
export async function usageOfAll(
  period: UsagePeriod,
  externalId?: string,
): Promise<readonly (Counts & { time: number })[]> {
  if (period.granularity === 'minute') return minutesOfAll();
  const length = LENGTHS[period.granularity];
  const buckets = new Map<number, Counts & { time: number }>();
  const first = Math.floor(Number(period.start) / length) * length;
  for (let time = first; time <= Number(period.end); time += length)
    buckets.set(time, { time, ...noCounts() });
  for (const { time = 0, code = '', count } of await query('time,code', period, externalId))
    add(buckets.get(time), code, count);
  return [...buckets.values()];
}

type UsageOf = Counts & { readonly apiId: string; readonly keyId: string; readonly total: number };

/** Loads the counts of each API that was used, the most used first. */
export const usageByApi = async (period: UsagePeriod) => sumsOf(await query('api,code', period));

/** Loads the counts of each key of a customer that was used, the most used first. */
export const usageByKey = async (period: UsagePeriod, externalId: string) =>
  sumsOf(await query('api,key,code', period, externalId));

function sumsOf(rows: Awaited<ReturnType<typeof query>>): readonly UsageOf[] {
  const sums = new Map<string, UsageOf>();
  for (const { apiId = '', keyId = '', code = '', count } of rows) {
    const counts = sums.get(apiId + keyId) ?? { apiId, keyId, total: 0, ...noCounts() };
    add(counts, code, count);
    sums.set(apiId + keyId, { ...counts, total: counts.total + count });
  }
  return [...sums.values()].sort((a, b) => b.total - a.total);
}

function add(counts: Counts | undefined, code: string, count: number): void {
  const field = Object.hasOwn(KINDS, code) ? KINDS[code as keyof typeof KINDS].field : undefined;
  if (counts && field) counts[field] += count;
}

const query = async (groupBy: string, { granularity, ...span }: UsagePeriod, externalId?: string) =>
  (
    await call('usage.query', {
      ...{ groupBy, granularity: granularity === 'minute' ? 'hour' : granularity, externalId },
      ...span,
    })
  ).rows;
