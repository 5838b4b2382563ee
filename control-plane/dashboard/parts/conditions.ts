import { useState } from 'preact/hooks';
import { looksLikeKey } from '../api/client.ts';

/** The path of an address' hash, and its query: conditions of a list. */
export function partsOf(hash: string): readonly [path: string, query: URLSearchParams] {
  const [path = '', query = ''] = hash.split('?');
  return [path, new URLSearchParams(query)];
}

/**
 * The conditions of a list, kept in the page's address, so that they hold again after a reload and on the way back. What looks
 * like a key never goes there.
 * @param unset what each is where the address says nothing
 */
export function useConditions<T extends Readonly<Record<string, string>>>(unset: T) {
  const [conditions, setConditions] = useState<T>(() => {
    const [, query] = partsOf(location.hash);
    return mapValues(unset, (name, value) => query.get(name) ?? value);
  });
  const change = (next: T) => {
    const [path] = partsOf(location.hash);
    const entries = Object.entries(next).filter(
      ([name, value]) => value !== unset[name] && !looksLikeKey(value),
    );
    const query = new URLSearchParams(entries).toString();
    // Not a step of its own, and no event: the list is there already.
    history.replaceState(null, '', query ? `${path}?${query}` : path);
    setConditions(next);
  };
  return [conditions, change] as const;
}

const mapValues = <T extends Readonly<Record<string, string>>>(
  of: T,
  value: (name: string, before: string) => string,
): T => Object.fromEntries(Object.entries(of).map(([name, before]) => [name, value(name, before)])) as T;
