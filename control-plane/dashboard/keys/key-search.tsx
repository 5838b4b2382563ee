import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { Choice, Field, fieldsOf } from '../parts/forms.tsx';
import { useLoad } from '../parts/loading.tsx';

const PAGE_KEYS = 25;
/** Number of keys that the server examines per call if no index serves the search. */
const EXAMINED_A_CALL = 1000;
/** Maximum number of calls for one page of matches; then the reader decides. */
const CALLS_MAX = 200;
/** Maximum number of keys sorted in an order without an index, because all of them are loaded. */
const ORDERED_MAX = 1000;
const CALL_KEYS_MAX = 100;

/** Conditions on the keys of a list, and their order. */
export type Filter = Readonly<Record<'search' | 'externalId' | 'enabled' | 'sort', string>>;
export const NO_FILTER: Filter = { search: '', externalId: '', enabled: '', sort: '-createdAt' };

/** Orders for which the server has an index. */
const INDEX_FIELDS = { '-createdAt': 'newest first', createdAt: 'oldest first' };
/** Orders without an index, each with the value to compare: ascending, undefined last. */
const ORDERS: Readonly<Record<string, { text: string; of: (key: Key) => string | number | undefined }>> = {
  name: { text: 'name', of: ({ name }) => name },
  lastUsedAt: { text: 'last use', of: ({ lastUsedAt }) => lastUsedAt && -lastUsedAt },
  expires: { text: 'next to expire', of: ({ expires }) => expires },
};

const ORDER_TEXTS = {
  ...INDEX_FIELDS,
  ...Object.fromEntries(Object.entries(ORDERS).map(([sort, { text }]) => [sort, text])),
};

/** A page of matching keys. */
interface Matches {
  readonly keys: readonly Key[];
  readonly total: number;
  readonly cursor?: string | undefined;
  /** Maximum number of keys examined for the page; undefined if all keys match. */
  readonly examinedCount?: number | undefined;
  /** The requested order, if there are too many keys for it. */
  readonly notBy?: string | undefined;
}

/** The observer of a search: receives its progress, and says whether to continue. */
interface Reader {
  readonly report: (count: number) => void;
  readonly wants: () => boolean;
}

/**
 * Finds a page of keys in the requested order; in order of creation if there are too many keys for another
 * order.
 */
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
  // Only the order of creation, used for too many keys, has a cursor of the server.
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
 * Calls the server until it has as many keys as wanted, or there are no more, or the reader stops it, or
 * `CALLS_MAX` is reached. Without an index, the server examines some keys per call.
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
  const isPicky = filter.search !== '' || filter.enabled !== '';
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

/**
 * Returns a page of matching keys, the number of keys examined so far, and a function that ends the search
 * with what it has found.
 */
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

/** The number of keys, and the progress of the search. */
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

/** The form that searches keys. If the user enters the id of a key, it opens that key. */
export function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const search = (event: Event) => {
    const entry = fieldsOf(event);
    const text = entry('search');
    if (/^key_[0-9A-Za-z]{20}$/.test(text)) {
      location.hash = `#/keys/${text}`;
      return;
    }
    const [externalId, enabled, sort] = [entry('externalId'), entry('enabled'), entry('sort')];
    onSearch({ search: text, externalId, enabled, sort });
  };
  const text = { type: 'search', maxLength: 256 } as const;
  return (
    <form class="row search" aria-label="Search" onSubmit={search}>
      <Field label="Part of the name or id" name="search" defaultValue={filter.search} {...text} />
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
