import { call, may } from '../api/client.ts';
import { useLoad } from './loading.tsx';

/** Loads the names of the keys that events are about, as far as this root key may read them. */
export function useKeyNames(
  subjects: readonly { readonly keyId?: string; readonly apiId?: string }[],
): ReadonlyMap<string, string> {
  const ids = new Set(
    subjects.flatMap(({ keyId, apiId }) => (keyId && may(`api.${apiId}.read_key`) ? [keyId] : [])),
  );
  return useNamesOf(ids, async (keyId) => (await call('keys.getKey', { keyId })).name);
}

/** Loads the external ids of the customers that events are about, as far as this root key may read them. */
export function useCustomerNames(
  subjects: readonly { readonly identityId?: string; readonly externalId?: string }[],
): ReadonlyMap<string, string> {
  const unnamed = may('root.*.read_identity') ? subjects : [];
  const ids = new Set(
    unnamed.flatMap(({ identityId, externalId }) => (identityId && !externalId ? [identityId] : [])),
  );
  return useNamesOf(
    ids,
    async (identityId) => (await call('identities.getIdentity', { identityId })).externalId,
  );
}

function useNamesOf(
  ids: ReadonlySet<string>,
  nameOf: (id: string) => Promise<string | undefined>,
): ReadonlyMap<string, string> {
  const list = async () => {
    // Some were deleted since.
    const names = [...ids].map(async (id) => [id, await nameOf(id).catch(() => undefined)] as const);
    return new Map((await Promise.all(names)).flatMap(([id, name]) => (name ? [[id, name] as const] : [])));
  };
  return useLoad(list, [[...ids].join()]).data ?? new Map();
}
