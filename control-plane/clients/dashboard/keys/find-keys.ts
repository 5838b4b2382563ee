import { useEffect, useRef, useState } from 'preact/hooks';
import { call, containsKey, type Key } from '../api/client.ts';
import { type Load, useLoad } from '../parts/loading.tsx';

const APIS_MAX = 20;
const KEYS_OF_API = 5;
const PAGE_KEYS = '25';
const LETTERS_MIN = 2;
const PAUSE_MS = 250;

/** Calls for one API, each of which examines 1,000 keys. */
const CALLS_MAX = 20;

/** Tells whether a text has all words of another in it. */
export const hasAllWords = (text: string) => {
  const words = text.toLowerCase().trim().split(/\s+/);
  return (name: string): boolean => words.every((word) => name.toLowerCase().includes(word));
};

/** The word that finds least. */
export const longestWord = (text: string): string =>
  text
    .trim()
    .split(/\s+/)
    .reduce((longest, word) => (word.length > longest.length ? word : longest), '');

/** Returns a text a moment after its last letter. */
export function usePaused(text: string): string {
  const [part, setPart] = useState('');
  useEffect(() => {
    const timer = setTimeout(() => setPart(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return part;
}

/**
 * Finds keys whose name, id or external id contain all words of a text: the newest of each of the first APIs, among the
 * newest 20,000 keys of each.
 */
export function useKeysWith(text: string): Load<readonly Key[]> {
  const part = containsKey(text) ? '' : text.trim();
  // A search that nobody waits for any more makes no further calls.
  const latest = useRef(part);
  latest.current = part;
  useEffect(
    () => () => {
      latest.current = '';
    },
    [],
  );
  return useLoad(() => findKeys(part, () => latest.current === part), [part]);
}

async function findKeys(search: string, isWanted: () => boolean): Promise<readonly Key[]> {
  if (search.length < LETTERS_MIN || search.length > 256) return [];
  const { apis } = await call('apis.listApis', { limit: String(APIS_MAX) }).catch(() => ({ apis: [] }));
  const lists = await Promise.all(apis.map(({ id }) => newestKeys(id, search, isWanted).catch(() => [])));
  return lists.flat();
}

async function newestKeys(apiId: string, search: string, isWanted: () => boolean): Promise<readonly Key[]> {
  const keys: Key[] = [];
  let cursor: string | undefined;
  for (let calls = 0; calls < CALLS_MAX && keys.length < KEYS_OF_API && isWanted(); calls++) {
    const page = await call('apis.listKeys', {
      ...{ apiId, search: longestWord(search), limit: PAGE_KEYS, sort: '-createdAt', cursor },
    });
    const isMatch = hasAllWords(search);
    const matches = page.keys.filter(({ name, keyId, externalId }) =>
      isMatch(`${name} ${keyId} ${externalId}`),
    );
    keys.push(...matches.slice(0, KEYS_OF_API - keys.length));
    ({ cursor } = page);
    if (cursor === undefined) break;
  }
  return keys;
}

/** The external ids of keys, each once. */
export const customersOf = (keys: readonly Key[]): readonly string[] => [
  ...new Set(keys.flatMap(({ externalId }) => externalId ?? [])),
];
