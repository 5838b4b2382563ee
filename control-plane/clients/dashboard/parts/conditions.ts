import { useState } from 'preact/hooks';
import { containsKey } from '../api/client.ts';

/** Splits the hash of an address into its path and its query, which contains the conditions of a list. */
export function partsOf(hash: string): readonly [path: string, query: URLSearchParams] {
  const [path = '', query = ''] = hash.split('?');
  return [path, new URLSearchParams(query)];
}

/**
 * Holds the conditions of a list in the page's address, so that they survive a reload and the back button.
 * Texts that look like keys never go there.
 * @param unset the conditions for an address without any
 */
export function useConditions<T extends Readonly<Record<string, string>>>(unset: T) {
  const [conditions, setConditions] = useState<T>(() => {
    const [, query] = partsOf(location.hash);
    return mapValues(unset, (name, value) => query.get(name) ?? value);
  });
  const change = (next: T) => {
    noteInAddress(mapValues(next, (name, value) => (value === unset[name] ? '' : value)));
    setConditions(next);
  };
  return [conditions, change] as const;
}

/**
 * Notes conditions in the page's address; empty ones, and those that look like keys, are left out. There is no new
 * history entry and no event: what they say is already shown.
 */
export function noteInAddress(conditions: Readonly<Record<string, string>>, state: unknown = null): void {
  const [path, query] = partsOf(location.hash);
  for (const [name, value] of Object.entries(conditions)) {
    if (value === '' || containsKey(value)) query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(state, '', query.size > 0 ? `${path}?${query}` : path);
}

/** Returns the same names with other values. */
export const mapValues = <T extends Readonly<Record<string, string>>>(
  of: T,
  value: (name: string, before: string) => string,
): T => Object.fromEntries(Object.entries(of).map(([name, before]) => [name, value(name, before)])) as T;
