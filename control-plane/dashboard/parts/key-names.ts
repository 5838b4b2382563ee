import { call, may } from '../api/client.ts';
import { useLoad } from './loading.tsx';

/** Loads the names of the keys that events are about, as far as this root key may read them. */
export function useKeyNames(
  subjects: readonly { readonly keyId?: string; readonly apiId?: string }[],
): ReadonlyMap<string, string> {
  const ids = new Set(
    subjects.flatMap(({ keyId, apiId }) => (keyId && may(`api.${apiId}.read_key`) ? [keyId] : [])),
  );
  const list = async () => {
    // Some were deleted since.
    const keys = [...ids].map((keyId) =>
      call('keys.getKey', { keyId }).catch(() => ({ keyId, name: undefined })),
    );
    return new Map(
      (await Promise.all(keys)).flatMap(({ keyId, name }) => (name ? [[keyId, name] as const] : [])),
    );
  };
  return useLoad(list, [[...ids].join()]).data ?? new Map();
}
