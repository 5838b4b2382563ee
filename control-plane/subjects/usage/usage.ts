import {
  type Granularity,
  LAST_REFUSED,
  LAST_USED,
  LENGTH_MS,
  perUsageField,
  RETENTION,
  USAGE_COLUMNS,
  type UsageField,
  usageField,
} from '#shared/protocol/records/usage.ts';
import { command, row, unlessEmpty } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  apiKeys,
  apiUsageKey,
  identityIndexKey,
  tagUsageKey,
  usageKey,
  watchedApis,
} from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import type { LastUses, UsesOfKeys } from '../../core/ports.ts';

const sumUsage = command(
  new URL('./sum-usage.lua', import.meta.url),
  ['head', 'source'],
  ['base', 'from', 'limit', 'since', 'unit', 'first', 'last'],
  unlessEmpty(row('next', 'keys#', '...sums')),
);

type UsageCounts = Readonly<Record<UsageField, number>>;

const markWatched = command(
  new URL('./mark-watched.lua', import.meta.url),
  ['watched'],
  ['ms', 'most', '...apiIds'],
  String,
);

/** Verdicts with one tag, or with all other tags. */
export type TagUsage = UsageCounts & ({ readonly tag: string } | { readonly other: true });

/** Verdicts in one hour or day. */
export interface UsageBucket extends UsageCounts {
  /** Start of the bucket, Unix milliseconds. */
  readonly time: number;
}

/** Time for which one look counts, and the maximum number of APIs that are watched at a time. */
const WATCHED = { ms: 10_000, most: 10 } as const;

/** The usage of keys, as verifiers reported it. A value that is not a number counts as 0. */
export class UsageView implements UsesOfKeys {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /**
   * Has verifiers report these APIs each second for a while, since somebody looks at them. What is shown does not
   * depend on it, so a failure is none.
   */
  async watch(apiIds: readonly string[]): Promise<void> {
    const run = markWatched({ watched: watchedApis, ...WATCHED, apiIds: apiIds.slice(0, WATCHED.most) });
    await this.#nodes.run(watchedApis, (redis) => send(redis, run)).catch(() => undefined);
  }

  /** The keys of an API, each with the times of its last uses. */
  async withLastUses<Shown extends { readonly keyId: string }>(
    apiId: string,
    keys: readonly Shown[],
  ): Promise<(Shown & LastUses)[]> {
    const times = await this.#nodes.run(usageKey(apiId, ''), (redis) =>
      Promise.all(keys.map(({ keyId }) => redis.hmget(usageKey(apiId, keyId), LAST_USED, LAST_REFUSED))),
    );
    return keys.map((key, i) => {
      const [lastUsedAt, lastRefusedAt] = (times[i] ?? []).map(count);
      return {
        ...key,
        ...(lastUsedAt ? { lastUsedAt } : {}),
        ...(lastRefusedAt ? { lastRefusedAt } : {}),
      };
    });
  }

  /**
   * One bucket for each hour or day that overlaps the period and whose counts are kept, for one key or for
   * all keys of the API together.
   */
  async series(apiId: string, keyId: string | undefined, time: UsagePeriod): Promise<UsageBucket[]> {
    const usage = keyId === undefined ? apiUsageKey(apiId) : usageKey(apiId, keyId);
    const fields = await this.#nodes.run(usage, (redis) => redis.hgetall(usage));
    const { granularity } = time;
    return numbersOf(time).map((number) => ({
      time: number * LENGTH_MS[granularity],
      ...perUsageField(({ letter }) => count(fields[usageField(granularity, number, letter)])),
    }));
  }

  /**
   * The same of the present keys of an identity in the API together, read in parts, between which Redis answers
   * others.
   * @param keysMax the number of keys after which it stops
   * @returns the buckets, and how many keys it read; more than `keysMax`: not all of them
   */
  async seriesOfIdentity(
    apiId: string,
    externalId: string,
    keysMax: number,
    time: UsagePeriod,
  ): Promise<{ readonly buckets: UsageBucket[]; readonly keys: number }> {
    const { head, base } = apiKeys(apiId);
    const { granularity } = time;
    const numbers = numbersOf(time);
    const [first = 0, last = -1] = [numbers[0], numbers.at(-1)];
    const inputs = {
      ...{ head, base, source: identityIndexKey(apiId, externalId), limit: KEYS_AT_ONCE },
      ...{ since: first * LENGTH_MS[granularity], unit: granularity.charAt(0), first, last },
    };
    const counts = new Map<string, number>();
    let keys = 0;
    for (let from = ''; keys <= keysMax; ) {
      const part = await this.#nodes.run(head, (redis) => send(redis, sumUsage({ ...inputs, from })));
      const { sums = [], next = '' } = part ?? {};
      keys += part?.keys ?? 0;
      for (let i = 0; i < sums.length; i += 2) {
        const field = sums[i] ?? '';
        counts.set(field, (counts.get(field) ?? 0) + count(sums[i + 1]));
      }
      if (next === '') break;
      from = next;
    }
    const buckets = numbers.map((number) => ({
      time: number * LENGTH_MS[granularity],
      ...perUsageField(({ letter }) => counts.get(usageField(granularity, number, letter)) ?? 0),
    }));
    return { buckets, keys };
  }

  /**
   * One bucket for each day, of the verdicts with one tag. Verdicts that were counted under "other" are not
   * included.
   */
  async seriesOfTag(
    apiId: string,
    tag: string,
    time: Omit<UsagePeriod, 'granularity'>,
  ): Promise<UsageBucket[]> {
    const days = numbersOf({ ...time, granularity: 'day' });
    return Promise.all(
      days.map(async (day) => {
        const tags = tagUsageKey(apiId, day);
        const number = count(await this.#nodes.run(tags, (redis) => redis.hget(tags, `=${tag}`)));
        const names = USAGE_COLUMNS.map(({ letter }) => `${number}${letter}`);
        const counts =
          number === 0 ? [] : await this.#nodes.run(tags, (redis) => redis.hmget(tags, ...names));
        const columns = Object.fromEntries(names.map((name, i) => [name, counts[i]]));
        return {
          time: day * LENGTH_MS.day,
          ...perUsageField(({ letter }) => count(columns[`${number}${letter}`])),
        };
      }),
    );
  }

  /**
   * The verdicts of the days by tag, the most used first. The last entry has all other verdicts: tags beyond
   * `limit`, tags for which a day had no room, and tags after the first TAGS_MAX.
   */
  async byTag(apiId: string, limit: number, time: Omit<UsagePeriod, 'granularity'>): Promise<TagUsage[]> {
    const totals = new Map<string, UsageCounts>();
    for (const day of numbersOf({ ...time, granularity: 'day' })) {
      const name = tagUsageKey(apiId, day);
      const fields = await this.#fieldsOf(name);
      const counts = (number: string) => perUsageField(({ letter }) => count(fields[`${number}${letter}`]));
      totals.set(OTHER_TAGS, sum(totals.get(OTHER_TAGS), counts('0')));
      for (const [field, number] of Object.entries(fields)) {
        if (!field.startsWith('=') || count(number) === 0) continue;
        const tag = totals.size < TAGS_MAX || totals.has(field.slice(1)) ? field.slice(1) : OTHER_TAGS;
        totals.set(tag, sum(totals.get(tag), counts(number)));
      }
    }
    const others = totals.get(OTHER_TAGS);
    totals.delete(OTHER_TAGS);
    const tags = [...totals]
      .map(([tag, counts]) => ({ tag, ...counts }))
      .sort((a, b) => totalOf(b) - totalOf(a) || (a.tag < b.tag ? -1 : 1));
    const rest = tags.slice(limit).reduce<UsageCounts>(sum, others ?? sum(undefined, undefined));
    return [...tags.slice(0, limit), ...(totalOf(rest) > 0 ? [{ other: true as const, ...rest }] : [])];
  }

  /** The fields of a hash, read in parts, between which Redis answers others. */
  async #fieldsOf(name: string): Promise<Record<string, string>> {
    const fields: Record<string, string> = {};
    let from = '0';
    do {
      const [next, part] = await this.#nodes.run(name, (redis) =>
        redis.hscan(name, from, 'COUNT', FIELDS_AT_ONCE),
      );
      for (let i = 0; i < part.length; i += 2) fields[part[i] ?? ''] = part[i + 1] ?? '';
      from = next;
    } while (from !== '0');
    return fields;
  }
}

/** The period of a usage report. */
export interface UsagePeriod {
  readonly granularity: Granularity;
  readonly nowMs: number;
  readonly startMs?: number | undefined;
  readonly endMs?: number | undefined;
}

/** Maximum number of fields that one command reads, so that it does not block Redis for long. */
const FIELDS_AT_ONCE = 1000;
/** Maximum number of keys whose counts one command adds up, about a millisecond for Redis. */
const KEYS_AT_ONCE = 100;
/** Maximum number of tags that one answer adds up separately; about 250 bytes each. */
const TAGS_MAX = 50_000;
/** The map key for all other tags; no tag is empty. */
const OTHER_TAGS = '';

/** The hours or days of the period whose counts are kept, as numbers since 1970. */
function numbersOf({ granularity, nowMs, startMs = 0, endMs = nowMs }: UsagePeriod): number[] {
  const numberOf = (timeMs: number) => Math.floor(timeMs / LENGTH_MS[granularity]);
  const last = Math.min(numberOf(endMs), numberOf(nowMs));
  const first = Math.max(numberOf(startMs), numberOf(nowMs) - RETENTION[granularity] + 1);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}

const sum = (a: UsageCounts | undefined, b: UsageCounts | undefined): UsageCounts =>
  perUsageField(({ field }) => (a?.[field] ?? 0) + (b?.[field] ?? 0));
const totalOf = (counts: UsageCounts) => USAGE_COLUMNS.reduce((total, { field }) => total + counts[field], 0);

function count(text: string | null | undefined): number {
  const number = Number(text ?? 0);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
