import { call, type Key } from './api.ts';
import { Choice, Field } from './forms.tsx';
import { fieldsOf } from './parts.tsx';

const PAGE_KEYS = 25;
/** Most calls for one page of matches; each examines up to 1,000 keys. */
const CALLS_MAX = 10;
const EXAMINED_A_CALL = 1000;

/** Conditions on the keys of a list, and their order. */
export interface Filter {
  readonly name: string;
  readonly externalId: string;
  readonly enabled: string;
  readonly sort: string;
}
export const NO_FILTER: Filter = { name: '', externalId: '', enabled: '', sort: '-createdAt' };

/** A page of keys that match, searched for on the server. */
interface Found {
  readonly keys: readonly Key[];
  readonly total: number;
  readonly cursor?: string;
  /** Most keys that were searched for it; undefined where all match. */
  readonly examined?: number;
}

/**
 * Finds a page of keys. The server examines some keys a call where it has no index: this goes on until the page is full, or
 * for `CALLS_MAX` calls, after which its reader decides.
 */
export async function findKeys(apiId: string, filter: Filter, from: string | undefined): Promise<Found> {
  const keys: Key[] = [];
  let cursor = from;
  let total = 0;
  let calls = 0;
  do {
    const limit = String(PAGE_KEYS - keys.length);
    const page = await call('apis.listKeys', { apiId, limit, cursor, ...filter });
    keys.push(...page.keys);
    ({ total, cursor } = page);
    calls++;
  } while (cursor !== undefined && keys.length < PAGE_KEYS && calls < CALLS_MAX);
  const isPicky = filter.name !== '' || filter.enabled !== '';
  const examined = Math.min(total, calls * EXAMINED_A_CALL);
  return { keys, total, ...(cursor === undefined ? {} : { cursor }), ...(isPicky ? { examined } : {}) };
}

/** The form by which keys are searched. An id in it leads to its key. */
export function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const search = (event: Event) => {
    const entered = fieldsOf(event);
    const name = entered('name');
    if (/^key_[0-9A-Za-z]{20}$/.test(name)) {
      location.hash = `#/keys/${name}`;
      return;
    }
    const [externalId, enabled, sort] = [entered('externalId'), entered('enabled'), entered('sort')];
    onSearch({ name, externalId, enabled, sort });
  };
  const text = { type: 'search', maxLength: 256 } as const;
  return (
    <form class="row search" aria-label="Search" onSubmit={search}>
      <Field label="Name begins with, or id" name="name" defaultValue={filter.name} {...text} />
      <Field label="Owner" name="externalId" defaultValue={filter.externalId} {...text} />
      <Choice
        label="State"
        name="enabled"
        value={filter.enabled}
        options={{ '': 'any', true: 'enabled', false: 'disabled' }}
      />
      <Choice
        label="Order"
        name="sort"
        value={filter.sort}
        options={{ '-createdAt': 'newest first', createdAt: 'oldest first' }}
      />
      <button type="submit">Search</button>
    </form>
  );
}
