import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { Choice, Field, fieldsOf } from '../parts/forms.tsx';
import { useLoad } from '../parts/loading.tsx';

const PAGE_KEYS = 25;
/** Keys that the server examines a call, where it has no index for what is searched. */
const EXAMINED_A_CALL = 1000;
/** Most calls for one page of matches, after which its reader decides. */
const CALLS_MAX = 200;
/** Most keys that are ordered by what the server has no index of: they are all loaded for it. */
const ORDERED_MAX = 1000;
const CALL_KEYS_MAX = 100;

/** Conditions on the keys of a list, and their order. */
export type Filter = Readonly<Record<'name' | 'externalId' | 'enabled' | 'sort', string>>;
export const NO_FILTER: Filter = { name: '', externalId: '', enabled: '', sort: '-createdAt' };

/** Orders that the server has an index of. */
const INDEX_FIELDS = { '-createdAt': 'newest first', createdAt: 'oldest first' };
/** Orders without an index, each by what is compared: less comes first, undefined last. */
const ORDERS: Readonly<Record<string, { text: string; of: (key: Key) => string | number | undefined }>> = {
  name: { text: 'name', of: ({ name }) => name },
  lastUsedAt: { text: 'last use', of: ({ lastUsedAt }) => lastUsedAt && -lastUsedAt },
  expires: { text: 'next to expire', of: ({ expires }) => expires },
};

const ORDER_TEXTS = {
  ...INDEX_FIELDS,
  ...Object.fromEntries(Object.entries(ORDERS).map(([sort, { text }]) => [sort, text])),
};

/** A page of keys that match, searched for on the server. */
interface Matches {
  readonly keys: readonly Key[];
  readonly total: number;
  readonly cursor?: string | undefined;
  /** Most keys that were examined for it; undefined where all match. */
  readonly examinedCount?: number | undefined;
  /** The order that was asked for, of which there are too many keys. */
  readonly notBy?: string | undefined;
}

/** The reader of a search: hears how far it is, and says whether it is to go on. */
interface Reader {
  readonly report: (count: number) => void;
  readonly wants: () => boolean;
}

/** Finds a page of keys, in whatever order; in that of creation where there are too many for another. */
async function searchKeys(
  apiId: string,
  filter: Filter,
  from: string | undefined,
  reader: Reader,
): Promise<Matches> {
  const order = ORDERS[filter.sort];
  if (!order) return search(apiId, filter, from, PAGE_KEYS, reader);
  const byCreation = { ...filter, sort: NO_FILTER.sort };
  const place = Number(from ?? 0);
  // Only where there were too many does the server go on from somewhere.
  const isPlace = Number.isSafeInteger(place);
  const matches = isPlace ? await search(apiId, byCreation, undefined, ORDERED_MAX, reader) : undefined;
  if (!matches || matches.cursor !== undefined)
    return {
      ...(await search(apiId, byCreation, isPlace ? undefined : from, PAGE_KEYS, reader)),
      notBy: order.text,
    };
  const next = place + PAGE_KEYS;
  return {
    ...matches,
    keys: matches.keys.toSorted((a, b) => compare(order.of(a), order.of(b))).slice(place, next),
    cursor: next < matches.keys.length ? String(next) : undefined,
  };
}

/**
 * Asks until there are as many keys as wanted, or there are no more, or the reader has enough, or for `CALLS_MAX` calls. The
 * server examines some keys a call where it has no index.
 */
async function search(
  apiId: string,
  filter: Filter,
  from: string | undefined,
  pageSize: number,
  reader: Reader,
): Promise<Matches> {
  const keys: Key[] = [];
  let [cursor, total, calls] = [from, 0, 0];
  const isPicky = filter.name !== '' || filter.enabled !== '';
  do {
    const limit = String(Math.min(CALL_KEYS_MAX, pageSize - keys.length));
    const page = await call('apis.listKeys', { apiId, limit, cursor, ...filter });
    keys.push(...page.keys);
    ({ total, cursor } = page);
    calls++;
    if (isPicky) reader.report(Math.min(total, calls * EXAMINED_A_CALL));
    if (!isPicky && filter.externalId === '' && total > pageSize && pageSize > PAGE_KEYS) break;
  } while (cursor !== undefined && keys.length < pageSize && calls < CALLS_MAX && reader.wants());
  const examinedCount = isPicky ? Math.min(total, calls * EXAMINED_A_CALL) : undefined;
  return { keys, total, cursor, examinedCount };
}

function compare(a: string | number | undefined, b: string | number | undefined): number {
  if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
  return typeof a === 'number' && typeof b === 'number'
    ? a - b
    : String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** A page of the keys that match, how many were examined so far, and the way to end the search with what it has found. */
export function useSearch(apiId: string, filter: Filter, from: string | undefined) {
  const [examinedCount, setExaminedCount] = useState(0);
  const running = useRef({ isCurrent: false });
  const stop = () => {
    running.current.isCurrent = false;
  };
  useEffect(() => stop, []);
  const page = useLoad(() => {
    stop();
    const search = { isCurrent: true };
    running.current = search;
    setExaminedCount(0);
    return searchKeys(apiId, filter, from, {
      report: (count) => search.isCurrent && setExaminedCount(count),
      wants: () => search.isCurrent,
    });
  }, [filter, from]);
  return { page, examined: examinedCount, stop };
}

/** Number of keys there are, and how far the search for some of them is. */
export function SearchState({ of }: { of: ReturnType<typeof useSearch> }) {
  const { examined: examinedCount, stop } = of;
  const { data: page, busy } = of.page;
  if (busy && examinedCount >= EXAMINED_A_CALL)
    return (
      <p class="row">
        <span class="quiet">Searching: {examinedCount.toLocaleString()} keys examined…</span>
        <button type="button" class="small" onClick={stop}>
          Stop here
        </button>
      </p>
    );
  if (!page) return null;
  return (
    <p class="quiet count" role="status">
      {page.total.toLocaleString()} {page.total === 1 ? 'key' : 'keys'} in this API
      {page.examinedCount !== undefined &&
        `; ${page.examinedCount.toLocaleString()} searched for this page${page.cursor ? ', there may be more' : ''}`}
      {page.notBy !== undefined &&
        `. Newest first: only up to ${ORDERED_MAX.toLocaleString()} keys are ordered by ${page.notBy}, so search for some of them`}
    </p>
  );
}

/** The form by which keys are searched. An id in it leads to its key. */
export function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const search = (event: Event) => {
    const entry = fieldsOf(event);
    const name = entry('name');
    if (/^key_[0-9A-Za-z]{20}$/.test(name)) {
      location.hash = `#/keys/${name}`;
      return;
    }
    const [externalId, enabled, sort] = [entry('externalId'), entry('enabled'), entry('sort')];
    onSearch({ name, externalId, enabled, sort });
  };
  const text = { type: 'search', maxLength: 256 } as const;
  return (
    <form class="row search" aria-label="Search" onSubmit={search}>
      <Field label="Name begins with, or id" name="name" defaultValue={filter.name} {...text} />
      <Field label="Identity" name="externalId" defaultValue={filter.externalId} {...text} />
      <Choice
        label="State"
        name="enabled"
        value={filter.enabled}
        options={{ '': 'any', true: 'enabled', false: 'disabled' }}
      />
      <Choice label="Order" name="sort" value={filter.sort} options={ORDER_TEXTS} />
      <button type="submit">Search</button>
    </form>
  );
}
