import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { Choice, Field, fieldsOf } from '../forms/forms.tsx';
import { useLoad } from '../parts/loading.tsx';

export const PAGE_KEYS = 25;
/** Number of keys that the server examines per call if no index serves the search. */
const EXAMINED_A_CALL = 1000;
/** Maximum number of calls for one page of matches; then the reader decides. */
const CALLS_MAX = 200;

/** Conditions on the keys of a list, and their order. */
export type Filter = Readonly<Record<'search' | 'externalId' | 'enabled' | 'sort', string>>;
export const NO_FILTER: Filter = { search: '', externalId: '', enabled: '', sort: '-createdAt' };

/** Tells whether a filter leaves keys out. */
export const isFiltered = ({ sort: _, ...conditions }: Filter): boolean =>
  Object.values(conditions).some(Boolean);

/** Orders for which the server has an index. */
const INDEX_ORDERS = { '-createdAt': 'newest first', createdAt: 'oldest first' };
const ORDERS = { ...INDEX_ORDERS, name: 'name', '-lastUsedAt': 'last use', expires: 'next to expire' };

/** A page of matching keys. */
interface Matches {
  readonly keys: readonly Key[];
  readonly total: number;
  readonly cursor?: string | undefined;
  /** Maximum number of keys examined for the page; undefined if an index led to them, or all were examined. */
  readonly examinedCount?: number | undefined;
}

/** The observer of a search: receives its progress, and says whether to continue. */
interface Reader {
  readonly report: (count: number) => void;
  readonly wants: () => boolean;
}

/**
 * Calls the server until the page is full, or there are no more keys, or the reader stops it, or `CALLS_MAX` is
 * reached. In order of creation, the server examines some keys per call; in any other, all.
 */
async function searchKeys(
  apiId: string,
  filter: Filter,
  from: string | undefined,
  reader: Reader,
): Promise<Matches> {
  const keys: Key[] = [];
  let [cursor, total, calls] = [from, 0, 0];
  const isPicky = (filter.search !== '' || filter.enabled !== '') && filter.sort in INDEX_ORDERS;
  do {
    const limit = String(PAGE_KEYS - keys.length);
    const page = await call('apis.listKeys', { apiId, limit, cursor, ...filter });
    keys.push(...page.keys);
    ({ total, cursor } = page);
    calls++;
    if (isPicky) reader.report(Math.min(total, calls * EXAMINED_A_CALL));
  } while (cursor !== undefined && keys.length < PAGE_KEYS && calls < CALLS_MAX && reader.wants());
  const examinedCount = isPicky ? Math.min(total, calls * EXAMINED_A_CALL) : undefined;
  return { keys, total, cursor, examinedCount };
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
      <Field label="Name or id" hint="in part" name="search" defaultValue={filter.search} {...text} />
      <Field label="Identity" hint="exactly" name="externalId" defaultValue={filter.externalId} {...text} />
      <Choice
        label="State"
        name="enabled"
        value={filter.enabled}
        options={{ '': 'any', true: 'enabled', false: 'disabled' }}
      />
      <Choice label="Order" name="sort" value={filter.sort} options={ORDERS} />
      <button type="submit">Search</button>
    </form>
  );
}
