import { useState } from 'preact/hooks';
import type { Key } from './api.ts';
import { Switch } from './forms.tsx';

/** Most keys that one call changes. */
const KEYS_MAX = 1000;

/** Keys that are chosen to be changed together, on whatever page they are. */
export function useSelection() {
  const [ids, setIds] = useState<readonly string[]>([]);
  return {
    ids,
    reset: () => setIds([]),
    /** The box of a key. */
    box: ({ keyId, name }: Key) => (
      <label>
        <span class="unseen">Select {name ?? keyId}</span>
        <input
          type="checkbox"
          checked={ids.includes(keyId)}
          disabled={ids.length >= KEYS_MAX && !ids.includes(keyId)}
          onChange={(event) => {
            const others = ids.filter((id) => id !== keyId);
            setIds(event.currentTarget.checked ? [...others, keyId] : others);
          }}
        />
      </label>
    ),
    /** Chooses all of these, besides those that are chosen. */
    add: (keys: readonly Key[]) => {
      const all = new Set([...ids, ...keys.map(({ keyId }) => keyId)]);
      setIds([...all].slice(0, KEYS_MAX));
    },
  };
}

/** Buttons for the selected keys, and for the selection. */
export function SelectionBar(props: {
  selection: ReturnType<typeof useSelection>;
  page: readonly Key[];
  change: (keyIds: readonly string[], what: string, enabled: boolean) => Promise<void>;
}) {
  const { ids, reset, add } = props.selection;
  if (props.page.length === 0) return null;
  const called = ids.length === 1 ? '1 key' : `${ids.length.toLocaleString()} keys`;
  const change = async (enabled: boolean, what: string) => {
    await props.change(ids, what, enabled);
    reset();
  };
  return (
    <fieldset class="row selection" aria-label="Selection">
      <span role="status" class="quiet">
        {ids.length === 0 ? 'None selected' : `${called} selected`}
      </span>
      <button type="button" onClick={() => add(props.page)}>
        Select page
      </button>
      {ids.length > 0 && (
        <>
          <button type="button" onClick={reset}>
            Select none
          </button>
          <Switch enabled={true} called={called} change={change} />
          <Switch enabled={false} called={called} change={change} />
        </>
      )}
    </fieldset>
  );
}
