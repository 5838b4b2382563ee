import { useState } from 'preact/hooks';
import { call, type Key, may, serverNow } from '../api/client.ts';
import { ActionForm, Field, type FormEntry } from '../forms/forms.tsx';
import { counted } from '../parts/counted.ts';
import { Confirm, Dialog } from '../parts/dialogs.tsx';
import { useAction, useLoad } from '../parts/loading.tsx';
import { type Filter, listMatches } from './key-search.tsx';

/** Maximum number of keys that one call changes. */
const KEYS_MAX = 1000;

/** Holds the keys that are selected to be changed together, on whatever page they are. */
export function useSelection() {
  const [keys, setKeys] = useState<readonly Key[]>([]);
  /** The keys of the last list of all that match, and what it left out. */
  const [list, setList] = useState<{ readonly keys: readonly Key[]; readonly isCut: boolean }>();
  return {
    keys,
    /** Says what was selected by listing all that match; '' = it was selected by hand. */
    reach: list?.keys !== keys ? '' : list.isCut ? ', more match' : ', all that match',
    reset: () => setKeys([]),
    /** Selects all keys of a filter, as many as one call changes. */
    all: async (apiId: string, filter: Filter) => {
      const matches = await listMatches(apiId, filter, KEYS_MAX);
      setKeys(matches.keys);
      setList(matches);
    },
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
    /** The checkbox of all keys of a page. */
    pageBox: (page: readonly Key[]) => {
      const others = keys.filter(({ keyId }) => !page.some((each) => each.keyId === keyId));
      const isChosen = page.length > 0 && keys.length - others.length === page.length;
      return (
        <label class="box">
          <span class="unseen">Select page</span>
          <input
            type="checkbox"
            checked={isChosen}
            ref={(box) => {
              if (box) box.indeterminate = !isChosen && keys.length > others.length;
            }}
            onChange={() => setKeys((isChosen ? others : [...others, ...page]).slice(0, KEYS_MAX))}
          />
        </label>
      );
    },
  };
}

/** A change of several keys, with its part for each of them. */
export interface BulkChange {
  /** The action, such as `Disabled`. */
  readonly headline: string;
  readonly patchOf: (key: Key) => BulkPatch;
}
export type BulkPatch = { readonly [Name in 'enabled' | 'roles' | 'expires']?: Key[Name] | null };

/** The forms of the bar, with the titles of their dialogs. */
const TITLES = {
  'Add role': (keys: string) => `Add a role to ${keys}`,
  'Remove role': (keys: string) => `Remove a role from ${keys}`,
  Expire: (keys: string) => `Let ${keys} expire`,
};

const HOUR_MS = 3_600_000;

/** The bar with the actions on the selected keys. */
export function SelectionBar(props: {
  selection: ReturnType<typeof useSelection>;
  /** Selects all that match; undefined = they are all on this page. */
  selectAll: (() => Promise<unknown>) | undefined;
  change: (keys: readonly Key[], change: BulkChange) => Promise<unknown>;
}) {
  const { keys, reach, reset } = props.selection;
  const { selectAll } = props;
  const [asks, setAsks] = useState<BulkChange>();
  const [form, setForm] = useState<'Add role' | 'Remove role' | 'Expire'>();
  const { busy, run, problem } = useAction();
  if (keys.length === 0) return null;
  const keysText = counted(keys.length, 'key');
  const change = async (bulk: BulkChange) => {
    await props.change(keys, { ...bulk, headline: `${bulk.headline} ${keysText}` });
    reset();
    // The clicked button disappears, so move the focus.
    document.querySelector<HTMLElement>('th.box input')?.focus();
  };
  const inUse = keys.filter(({ lastUsedAt = 0 }) => lastUsedAt > serverNow() - HOUR_MS).length;
  const disable: BulkChange = { headline: 'Disabled', patchOf: () => ({ enabled: false }) };
  const enable: BulkChange = { headline: 'Enabled', patchOf: () => ({ enabled: true }) };
  return (
    <fieldset class="row selection" aria-label="Selection">
      <span role="status">
        {keysText} selected
        {reach}
      </span>
      <button
        type="button"
        class="small"
        aria-disabled={busy}
        onClick={() => (keys.length > 1 ? setAsks(disable) : void run(() => change(disable)))}
      >
        Disable {keysText}
      </button>
      <button type="button" class="small" aria-disabled={busy} onClick={() => void run(() => change(enable))}>
        Enable {keysText}
      </button>
      {(['Add role', 'Remove role', 'Expire'] as const).map((name) => (
        <button key={name} type="button" class="small" onClick={() => setForm(name)}>
          {name}…
        </button>
      ))}
      {selectAll && reach === '' && (
        <button type="button" class="small" onClick={() => void run(selectAll)}>
          Select all that match
        </button>
      )}
      <button type="button" class="small" onClick={reset}>
        Select none
      </button>
      {problem}
      {asks && (
        <Confirm
          title={`Disable ${keysText}?`}
          action={`Disable ${keysText}`}
          run={async () => {
            await change(asks);
            return {};
          }}
          onDone={() => setAsks(undefined)}
          onClose={() => setAsks(undefined)}
        >
          {inUse === 0
            ? 'None of them was'
            : `${inUse.toLocaleString()} of them ${inUse === 1 ? 'was' : 'were'}`}{' '}
          accepted in the last hour. It can be undone.
        </Confirm>
      )}
      {form && (
        <Dialog title={TITLES[form](keysText)} onClose={() => setForm(undefined)}>
          <BulkForm kind={form} keys={keys} change={change} onDone={() => setForm(undefined)} />
        </Dialog>
      )}
    </fieldset>
  );
}

/** The form for what a change of several keys needs: a role, or a time. */
function BulkForm(props: {
  kind: 'Add role' | 'Remove role' | 'Expire';
  keys: readonly Key[];
  change: (change: BulkChange) => Promise<void>;
  onDone: () => void;
}) {
  const { kind, keys, change, onDone } = props;
  const catalogue = useLoad(
    () => (may('root.*.read_role') ? call('permissions.listRoles') : Promise.resolve([])),
    [],
  );
  const present = [...new Set(keys.flatMap(({ roles = [] }) => roles))];
  const names = kind === 'Remove role' ? present : (catalogue.data?.map(({ name }) => name) ?? present);
  const run = async (entry: FormEntry) => {
    const role = entry('role');
    const expires = new Date(entry('expires')).getTime();
    const without = ({ roles = [] }: Key) => roles.filter((each) => each !== role);
    if (kind === 'Add role')
      await change({ headline: `Gave ${role} to`, patchOf: (key) => ({ roles: [...without(key), role] }) });
    else if (kind === 'Remove role')
      await change({
        headline: `Took ${role} from`,
        patchOf: (key) => ({ roles: without(key).length > 0 ? without(key) : null }),
      });
    else await change({ headline: 'Set the end of', patchOf: () => ({ expires }) });
    return undefined;
  };
  return (
    <ActionForm label={kind} action={kind === 'Expire' ? 'Set' : kind} run={run} onDone={onDone}>
      {kind === 'Expire' ? (
        <Field type="datetime-local" label="Expires" name="expires" required />
      ) : (
        <label class="field">
          Role
          <select name="role" required>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
    </ActionForm>
  );
}
