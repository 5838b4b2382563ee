import { useEffect, useState } from 'preact/hooks';
import { call, type Key, looksLikeKey } from '../api/client.ts';
import { useLoad } from '../parts/loading.tsx';

const APIS_MAX = 20;
const KEYS_OF_API = '5';
const LETTERS_MIN = 2;
const PAUSE_MS = 250;

/**
 * Finds keys whose name, id or external id contains a text, a moment after its last letter: some of each of the first
 * APIs, among the 1,000 oldest keys of each.
 */
export function useKeysWith(text: string): readonly Key[] {
  const [part, setPart] = useState('');
  useEffect(() => {
    const timer = setTimeout(() => setPart(looksLikeKey(text) ? '' : text.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return useLoad(() => findKeys(part), [part]).data ?? [];
}

async function findKeys(search: string): Promise<readonly Key[]> {
  if (search.length < LETTERS_MIN || search.length > 256) return [];
  const { apis } = await call('apis.listApis', { limit: String(APIS_MAX) }).catch(() => ({ apis: [] }));
  const pages = await Promise.all(
    apis.map(({ id }) =>
      call('apis.listKeys', { apiId: id, search, limit: KEYS_OF_API }).catch(() => ({ keys: [] })),
    ),
  );
  return pages.flatMap(({ keys }) => keys);
}

/** The external ids of keys, each once. */
export const customersOf = (keys: readonly Key[]): readonly string[] => [
  ...new Set(keys.flatMap(({ externalId }) => externalId ?? [])),
];
