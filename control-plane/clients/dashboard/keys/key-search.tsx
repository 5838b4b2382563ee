import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { Field, Options } from '../forms/forms.tsx';
import { counted } from '../parts/counted.ts';
import { useLoad } from '../parts/loading.tsx';
import { queryOf, VIEWS } from './key-filter.ts';

export const PAGE_KEYS = 25;
/** The most that one call lists. */
export const LISTED_AT_ONCE = 100;
/** Number of keys that the server examines per call if no index serves the search. */
const EXAMINED_A_CALL = 1000;
/** Maximum number of calls for one page of matches; then the reader decides. */
const CALLS_MAX = 200;
/** After the last letter, before the search begins. */
const PAUSE_MS = 300;

/** Conditions on the keys of a list as the reader wrote them, and their order. */
export type Filter = Readonly<Record<'filter' | 'sort', string>>;
export const NO_FILTER: Filter = { filter: '', sort: '-createdAt' };

/** Tells whether a filter leaves keys out. */
export const isFiltered = ({ filter }: Filter): boolean => filter.trim() !== '';

/** Orders for which the server has an index. */
const INDEX_ORDERS = { '-createdAt': 'newest first', createdAt: 'oldest first' };
const ORDERS = {
  ...INDEX_ORDERS,
  ...{
    name: 'name',
    '-lastUsedAt': 'last use',
    lastUsedAt: 'use, longest ago first',
    expires: 'next to expire',
  },
};

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

/** Lists keys once: at most `limit`, or fewer if the server examined enough. */
export const listKeys = (apiId: string, { filter, sort }: Filter, limit: number, cursor?: string) =>
  call('apis.listKeys', { apiId, limit: String(limit), cursor, sort, ...queryOf(filter) });

/** Lists the keys of a filter, at most `max`; `isCut` if there may be more. */
export async function listMatches(apiId: string, filter: Filter, max: number) {
  const keys: Key[] = [];
  let cursor: string | undefined;
  let calls = 0;
  do {
    const page = await listKeys(apiId, filter, Math.min(LISTED_AT_ONCE, max - keys.length), cursor);
    keys.push(...page.keys);
    ({ cursor } = page);
    calls++;
  } while (cursor !== undefined && keys.length < max && calls < CALLS_MAX);
  return { keys, isCut: cursor !== undefined };
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
  const query = queryOf(filter.filter);
  const isPicky = Object.keys(query).some((name) => name !== 'externalId') && filter.sort in INDEX_ORDERS;
  do {
    const page = await listKeys(apiId, filter, PAGE_KEYS - keys.length, cursor);
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
      {counted(page.total, 'key')} in this API
      {page.examinedCount !== undefined &&
        `; ${page.examinedCount.toLocaleString()} searched for this page${page.cursor ? ', there may be more' : ''}`}
    </p>
  );
}

/** The line that filters keys while it is written. The id of a key opens that key. */
export function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const [text, setText] = useState(filter.filter);
  const timer = useRef<number>(undefined);
  const search = (next: string, sort = filter.sort) => {
    clearTimeout(timer.current);
    if (/^key_[0-9A-Za-z]{20}$/.test(next.trim())) location.hash = `#/keys/${next.trim()}`;
    else if (next !== filter.filter || sort !== filter.sort) onSearch({ filter: next, sort });
  };
  const choose = (next: string) => {
    setText(next);
    search(next);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <form
      class="search"
      aria-label="Search"
      onSubmit={(event) => {
        event.preventDefault();
        search(text);
      }}
    >
      <div class="row">
        <Field
          type="search"
          label="Filter"
          isBare
          placeholder="Name, id, customer, state: role: unused:"
          name="filter"
          maxLength={256}
          spellcheck={false}
          value={text}
          onInput={({ currentTarget: { value } }) => {
            setText(value);
            clearTimeout(timer.current);
            timer.current = window.setTimeout(() => search(value), PAUSE_MS);
          }}
        />
        <label class="order">
          <span class="unseen">Order</span>
          <select onChange={(event) => search(text, event.currentTarget.value)}>
            <Options of={ORDERS} value={filter.sort} />
          </select>
        </label>
      </div>
      <fieldset class="views" aria-label="Views">
        {VIEWS.map(([name, view]) => (
          <button
            key={name}
            type="button"
            class="view"
            aria-pressed={filter.filter.trim() === view}
            onClick={() => choose(view)}
          >
            {name}
          </button>
        ))}
      </fieldset>
    </form>
  );
}
