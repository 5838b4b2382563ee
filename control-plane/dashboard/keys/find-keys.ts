import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Key, looksLikeKey } from '../api/client.ts';
import { useLoad } from '../parts/loading.tsx';

const APIS_MAX = 20;
const KEYS_OF_API = 5;
const LETTERS_MIN = 2;
const PAUSE_MS = 250;

/** Calls for one API, each of which examines 1,000 keys. */
const CALLS_MAX = 20;

/**
 * Finds keys whose name, id or external id contains a text, a moment after its last letter: the newest of each of
 * the first APIs, among the newest 20,000 keys of each.
 */
export function useKeysWith(text: string): readonly Key[] {
  const [part, setPart] = useState('');
  useEffect(() => {
    const timer = setTimeout(() => setPart(looksLikeKey(text) ? '' : text.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  // A search that nobody waits for any more makes no further calls.
  const latest = useRef(part);
  latest.current = part;
  useEffect(
    () => () => {
      latest.current = '';
    },
    [],
  );
  return useLoad(() => findKeys(part, () => latest.current === part), [part]).data ?? [];
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
    const limit = String(KEYS_OF_API - keys.length);
    const page = await call('apis.listKeys', { apiId, search, limit, sort: '-createdAt', cursor });
    keys.push(...page.keys);
    ({ cursor } = page);
    if (cursor === undefined) break;
  }
  return keys;
}

/** The external ids of keys, each once. */
export const customersOf = (keys: readonly Key[]): readonly string[] => [
  ...new Set(keys.flatMap(({ externalId }) => externalId ?? [])),
];
