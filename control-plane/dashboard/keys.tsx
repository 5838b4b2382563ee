import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call, type Key } from './api.ts';
import { ApiSettings } from './api-fields.tsx';
import { type Apply, useChange } from './change.tsx';
import { Confirm } from './dialogs.tsx';
import { ActionForm, Choice, type Entered, Field, Opener, Switch } from './forms.tsx';
import { enteredOf, KeyFields } from './key-fields.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { Badge, fieldsOf, Page, Table, Time, usePages } from './parts.tsx';
import { SelectionBar, useSelection } from './selection.tsx';

const PAGE_KEYS = '25';

interface Filter {
  readonly name: string;
  readonly externalId: string;
  readonly enabled: string;
  readonly sort: string;
}

/** The keys of an API: found, made, disabled and enabled. */
export function Keys({ apiId }: { apiId: string }) {
  const [filter, setFilter] = useState<Filter>({ name: '', externalId: '', enabled: '', sort: '-createdAt' });
  const [settings, setSettings] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const pages = usePages();
  const keys = useLoad(
    () => call('apis.listKeys', { apiId, limit: PAGE_KEYS, cursor: pages.cursor, ...filter }),
    [filter, pages.cursor],
  );
  const { apply, applyAll, panel } = useChange(keys.again);
  const selection = useSelection();
  return (
    <Page title={`Keys of ${apiId}`}>
      <Opener
        action="New key"
        beside={
          <>
            <button type="button" aria-expanded={settings} onClick={() => setSettings(!settings)}>
              Settings
            </button>
            <button type="button" onClick={() => setDeleting(true)}>
              Delete API…
            </button>
          </>
        }
      >
        <NewKey apiId={apiId} onCreated={keys.again} />
      </Opener>
      {settings && <ApiSettings apiId={apiId} />}
      {deleting && (
        <Confirm
          title="Delete this API?"
          word={apiId}
          action="Delete API and keys"
          run={() => call('apis.deleteApi', { apiId })}
          onDone={() => {
            location.hash = '#/';
          }}
          onClose={() => setDeleting(false)}
        >
          Every key of it is refused at every verifier from then on. This cannot be undone.
        </Confirm>
      )}
      <Search
        filter={filter}
        onSearch={(wanted) => {
          pages.reset();
          selection.reset();
          setFilter(wanted);
        }}
      />
      {panel}
      <Loaded of={keys}>
        {(page) => (
          <>
            <p class="quiet" role="status">
              {page.keys.length === 0 && page.cursor ? 'None on this page; there may be more. ' : ''}
              {page.total.toLocaleString()} {page.total === 1 ? 'key' : 'keys'} in this API
            </p>
            <SelectionBar
              selection={selection}
              page={page.keys}
              change={(keyIds, what, enabled) => applyAll(apiId, keyIds, what, { enabled })}
            />
            <KeyTable keys={page.keys} isAll={page.total === 0} apply={apply} box={selection.box} />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function KeyTable({
  keys,
  isAll,
  apply,
  box,
}: {
  keys: readonly Key[];
  isAll: boolean;
  apply: Apply;
  box: (key: Key) => ComponentChildren;
}) {
  return (
    <Table
      label="Keys"
      rows={keys}
      id={({ keyId }) => keyId}
      empty={isAll ? 'No keys yet.' : 'No key matches.'}
      columns={[
        {
          title: 'Key',
          cell: ({ keyId, name }) => <a href={`#/keys/${keyId}`}>{name ?? keyId}</a>,
        },
        { title: 'Starts with', cell: ({ start }) => <code>{start}…</code> },
        { title: 'Owner', cell: ({ externalId }) => externalId ?? '–' },
        { title: 'State', cell: (key) => <KeyState of={key} /> },
        { title: 'Created', cell: ({ createdAt }) => <Time at={createdAt} /> },
        { title: 'Change', cell: (key) => <KeySwitch of={key} apply={apply} /> },
        { title: 'Select', cell: box },
      ]}
    />
  );
}

/** Enabled, disabled or expired. */
export function KeyState({ of }: { of: Key }) {
  if (!of.enabled) return <Badge kind="bad">disabled</Badge>;
  if (of.expires !== undefined && of.expires <= Date.now()) return <Badge kind="warn">expired</Badge>;
  return <Badge kind="good">enabled</Badge>;
}

/** The button that disables a key, or enables it. */
export function KeySwitch({ of, apply }: { of: Key; apply: Apply }) {
  return (
    <Switch
      enabled={of.enabled}
      called={of.name ?? `${of.start}…`}
      change={(enabled, what) => apply(of, what, { enabled })}
    />
  );
}

function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const search = (event: Event) => {
    const entered = fieldsOf(event);
    const name = entered('name');
    if (/^key_[0-9A-Za-z]{20}$/.test(name)) {
      location.hash = `#/keys/${name}`;
      return;
    }
    const [externalId, enabled, sort] = [entered('externalId'), entered('enabled'), entered('sort')];
    onSearch({ name, externalId, enabled, sort });
  };
  const text = { type: 'search', maxLength: 256 } as const;
  return (
    <form class="row search" aria-label="Search" onSubmit={search}>
      <Field label="Name begins with, or id" name="name" defaultValue={filter.name} {...text} />
      <Field label="Owner" name="externalId" defaultValue={filter.externalId} {...text} />
      <Choice
        label="State"
        name="enabled"
        value={filter.enabled}
        options={{ '': 'any', true: 'enabled', false: 'disabled' }}
      />
      <Choice
        label="Order"
        name="sort"
        value={filter.sort}
        options={{ '-createdAt': 'newest first', createdAt: 'oldest first' }}
      />
      <button type="submit">Search</button>
    </form>
  );
}

function NewKey({ apiId, onCreated }: { apiId: string; onCreated: () => void }) {
  const create = async (entered: Entered) => {
    const prefix = entered('prefix');
    const created = await call('keys.createKey', {
      apiId,
      ...enteredOf(entered),
      ...(prefix ? { prefix } : {}),
      enabled: entered('enabled') === 'on',
    });
    onCreated();
    return created;
  };
  return (
    <ActionForm label="New key" action="Create key" run={create}>
      <KeyFields />
      <Field
        label="Prefix"
        hint="what the key begins with; empty = as the API says"
        name="prefix"
        pattern="[A-Za-z0-9_]{1,16}"
      />
      <label class="check">
        <input type="checkbox" name="enabled" defaultChecked /> Enabled from the start
      </label>
    </ActionForm>
  );
}
