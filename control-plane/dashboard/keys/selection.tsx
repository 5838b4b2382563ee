import { useRef, useState } from 'preact/hooks';
import type { Key } from '../api/client.ts';
import { useAction } from '../parts/loading.tsx';

/** Maximum number of keys that one call changes. */
const KEYS_MAX = 1000;

/** Holds the keys that are selected to be changed together, on whatever page they are. */
export function useSelection() {
  const [keys, setKeys] = useState<readonly Key[]>([]);
  return {
    keys,
    reset: () => setKeys([]),
    /** The checkbox of a key. */
    box: (key: Key) => {
      const isChosen = keys.some(({ keyId }) => keyId === key.keyId);
      return (
        <label class="box">
          <span class="unseen">Select {key.name ?? key.keyId}</span>
          <input
            type="checkbox"
            checked={isChosen}
            disabled={keys.length >= KEYS_MAX && !isChosen}
            onChange={(event) => {
              const others = keys.filter(({ keyId }) => keyId !== key.keyId);
              setKeys(event.currentTarget.checked ? [...others, key] : others);
            }}
          />
        </label>
      );
    },
    /** Adds keys to the selection. */
    add: (more: readonly Key[]) => {
      const all = new Map([...keys, ...more].map((key) => [key.keyId, key]));
      setKeys([...all.values()].slice(0, KEYS_MAX));
    },
  };
}

/** The bar with the actions on the selected keys. */
export function SelectionBar(props: {
  selection: ReturnType<typeof useSelection>;
  page: readonly Key[];
  change: (keys: readonly Key[], headline: string, enabled: boolean) => Promise<unknown>;
}) {
  const { keys, reset, add } = props.selection;
  const { busy, run, problem } = useAction();
  const first = useRef<HTMLButtonElement>(null);
  if (props.page.length === 0 && keys.length === 0) return null;
  const keysText = keys.length === 1 ? '1 key' : `${keys.length.toLocaleString()} keys`;
  const change = (enabled: boolean) => () =>
    void run(async () => {
      await props.change(keys, `${enabled ? 'Enabled' : 'Disabled'} ${keysText}`, enabled);
      reset();
      // The clicked button disappears, so move the focus.
      first.current?.focus();
    });
  return (
    <fieldset class={`row selection ${keys.length > 0 ? 'chosen' : ''}`} aria-label="Selection">
      <span role="status" class="quiet">
        {keys.length === 0 ? 'None selected' : `${keysText} selected`}
      </span>
      <button ref={first} type="button" class="small" onClick={() => add(props.page)}>
        Select page
      </button>
      {keys.length > 0 && (
        <>
          <button type="button" class="small" onClick={reset}>
            Select none
          </button>
          <button type="button" class="small" aria-disabled={busy} onClick={change(false)}>
            Disable {keysText}
          </button>
          <button type="button" class="small" aria-disabled={busy} onClick={change(true)}>
            Enable {keysText}
          </button>
        </>
      )}
      {problem}
    </fieldset>
  );
}
