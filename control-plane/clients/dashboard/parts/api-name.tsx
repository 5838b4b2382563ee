import { createContext } from 'preact';
import { useContext, useEffect } from 'preact/hooks';
import { call, events } from '../api/client.ts';
import { useLoad } from './loading.tsx';

/** Names of APIs by their ids. */
const ApiNames = createContext<ReadonlyMap<string, string>>(new Map());
export const NamesOfApis = ApiNames.Provider;

/** Loads the names of the first 100 APIs that this root key may read, and again when it changes one. */
export function useApiNames(isSignedIn: boolean): ReadonlyMap<string, string> {
  const list = async () => {
    const { apis } = isSignedIn ? await call('apis.listApis') : { apis: [] };
    return new Map(apis.map(({ id, name }) => [id, name]));
  };
  const { data, reload } = useLoad(list, [isSignedIn]);
  useEffect(() => {
    const change = ({ detail }: CustomEventInit<{ operation: string }>) => {
      if (detail?.operation.startsWith('apis.')) reload();
    };
    events.addEventListener('changed', change as EventListener);
    return () => events.removeEventListener('changed', change as EventListener);
  }, []);
  return data ?? new Map();
}

/** The name of an API, with its id on hover. */
export function ApiName({ id }: { id: string }) {
  return <bdi title={id}>{useContext(ApiNames).get(id) ?? id}</bdi>;
}

/** The same as a link to its page. */
export const ApiLink = ({ id }: { id: string }) => (
  <a href={`#/apis/${id}`}>
    <ApiName id={id} />
  </a>
);
