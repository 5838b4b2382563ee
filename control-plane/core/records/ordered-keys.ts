import { LAST_USED } from '#shared/protocol/records/usage.ts';
import { command, row } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, recordKey, usageKey } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { conditionsOf, type Key, type KeyFilter, type KeyView, sourceOf } from './key-view.ts';

const listValues = command(
  new URL('./list-values.lua', import.meta.url),
  ['head', 'source'],
  ['base', 'values', 'field', 'from', 'most', 'conditions'],
  row('total#', 'next', '...values'),
);

/** The maximum number of keys that one run of the script examines, so that it does not block Redis for long. */
const AT_ONCE = 500;
/** The maximum number of keys of an API that are put in order without an index. */
const ORDERED_MAX = 200_000;

/** A value by which keys are ordered, each read from the hashes with a prefix. */
const FIELDS = {
  name: { prefixOf: (apiId: string) => recordKey(apiId, ''), letter: 'n' },
  expires: { prefixOf: (apiId: string) => recordKey(apiId, ''), letter: 'x' },
  lastUsedAt: { prefixOf: (apiId: string) => usageKey(apiId, ''), letter: LAST_USED },
};

type Field = keyof typeof FIELDS;
/** An order for which there is no index. */
export type ValueOrder = Field | `-${Field}`;

/** The place of a key in an order. */
export interface Place {
  /** '' = none. */
  readonly value: string;
  /** The key's creation number. */
  readonly number: number;
}

/** Compares names: without regard to case, and numbers in them by value. */
const collator = new Intl.Collator('en', { numeric: true, sensitivity: 'accent' });

/** Runs costly reads, a few of each caller at a time. */
interface CostlyReads {
  run<T>(caller: string, read: () => Promise<T>): Promise<T>;
}

/** Lists keys in an order for which there is no index, by examining the values of all keys for each page. */
export class OrderedKeys {
  readonly #nodes: RedisNodes;
  readonly #view: KeyView;
  readonly #costlyReads: CostlyReads;

  constructor(nodes: RedisNodes, view: KeyView, costlyReads: CostlyReads) {
    this.#nodes = nodes;
    this.#view = view;
    this.#costlyReads = costlyReads;
  }

  /**
   * One page of the keys of an API, after a place in the order; undefined if there is no such API. Keys without
   * a value come last, and keys with equal values in order of creation. More than AT_ONCE keys need a turn of
   * the caller. Rejects with BAD_REQUEST if there are too many keys, and as `CostlyReads` does.
   */
  async list(
    caller: string,
    apiId: string,
    filter: KeyFilter,
    limit: number,
    order: ValueOrder,
    after?: Place,
  ): Promise<{ readonly keys: readonly Key[]; readonly total: number; readonly next?: Place } | undefined> {
    const places = await this.#first(caller, apiId, filter, limit + 1, order, after);
    const page = await this.#view.listNumbers(
      apiId,
      filter,
      places.slice(0, limit).map(({ number }) => number),
    );
    const last = places.length > limit ? places[limit - 1] : undefined;
    return page && { keys: page.keys, total: page.total, ...(last ? { next: last } : {}) };
  }

  /** The first `count` places after a place in the order. Reads all keys, but keeps only as many as needed. */
  async #first(
    caller: string,
    apiId: string,
    filter: KeyFilter,
    count: number,
    order: ValueOrder,
    after: Place | undefined,
  ): Promise<readonly Place[]> {
    const compare = comparison(order);
    let first: readonly Place[] = [];
    const readFrom = async (from: string): Promise<string | undefined> => {
      const { places, next } = await this.#read(apiId, filter, order, from);
      const last = first[count - 1];
      const candidates = places.filter(
        (place) => (!after || compare(after, place) < 0) && (!last || compare(place, last) < 0),
      );
      if (candidates.length > 0) first = [...first, ...candidates].sort(compare).slice(0, count);
      return next;
    };
    let from = await readFrom('');
    if (from !== undefined)
      await this.#costlyReads.run(caller, async () => {
        while (from !== undefined) from = await readFrom(from);
      });
    return first;
  }

  /** The values of some keys, beginning at a creation number; none if there is no such API. */
  async #read(apiId: string, filter: KeyFilter, order: ValueOrder, from: string): Promise<Chunk> {
    const { head, base } = apiKeys(apiId);
    const field = fieldOf(order);
    const { prefixOf, letter } = FIELDS[field];
    const run = listValues({
      ...{ head, source: sourceOf(apiId, filter), base, values: prefixOf(apiId) },
      ...{ field: letter, from, most: AT_ONCE, conditions: conditionsOf(filter) },
    });
    const { total, next, values } = await this.#nodes.run(head, (redis) => send(redis, run));
    if (total > ORDERED_MAX && filter.externalId === undefined)
      throw new ApiError(
        'BAD_REQUEST',
        `sort: orders up to ${ORDERED_MAX} keys by ${field}, and the API has ${total}; add externalId, or use createdAt`,
      );
    const places = Array.from({ length: values.length / 2 }, (_, i) => {
      const value = values[2 * i + 1] ?? '';
      return { number: Number(values[2 * i]), value: field === 'name' || Number(value) > 0 ? value : '' };
    });
    return { places, next: next || undefined };
  }
}

/** The places of some keys, and the creation number at which the others begin. */
interface Chunk {
  readonly places: readonly Place[];
  readonly next: string | undefined;
}

const fieldOf = (order: ValueOrder) => order.replace('-', '') as Field;

/** Returns the comparison of two places in an order. No two places of an API are equal. */
function comparison(order: ValueOrder): (a: Place, b: Place) => number {
  const direction = order.startsWith('-') ? -1 : 1;
  const values =
    fieldOf(order) === 'name' ? collator.compare : (a: string, b: string) => Number(a) - Number(b);
  return (a, b) =>
    Number(a.value === '') - Number(b.value === '') ||
    direction * values(a.value, b.value) ||
    a.number - b.number;
}
