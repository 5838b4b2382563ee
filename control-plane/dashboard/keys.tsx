import { useState } from 'preact/hooks';
import { call, type Key } from './api.ts';
import { useChange } from './change.tsx';
import { Confirm, SecretDialog } from './dialogs.tsx';
import { enteredOf, KeyFields } from './key-fields.tsx';
import { Loaded, useAction, useLoad } from './loading.tsx';
import { Badge, fieldsOf, Page, Table, Time, usePages } from './parts.tsx';

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
  const [open, setOpen] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const pages = usePages();
  const keys = useLoad(
    () => call('apis.listKeys', { apiId, limit: PAGE_KEYS, cursor: pages.cursor, ...filter }),
    [filter, pages.cursor],
  );
  const { apply, panel } = useChange(keys.again);
  return (
    <Page title={`Keys of ${apiId}`}>
      <p class="row">
        <button type="button" class="main" aria-expanded={open} onClick={() => setOpen(!open)}>
          New key
        </button>
        <button type="button" onClick={() => setDeleting(true)}>
          Delete API…
        </button>
      </p>
      {open && <NewKey apiId={apiId} onCreated={keys.again} />}
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
            <KeyTable keys={page.keys} isAll={page.total === 0} apply={apply} />
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
}: {
  keys: readonly Key[];
  isAll: boolean;
  apply: ReturnType<typeof useChange>['apply'];
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
        { title: 'Change', cell: (key) => <Switch of={key} apply={apply} /> },
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
export function Switch({ of, apply }: { of: Key; apply: ReturnType<typeof useChange>['apply'] }) {
  const { busy, run, problem } = useAction();
  const { enabled, name, start } = of;
  const verb = enabled ? 'Disable' : 'Enable';
  const called = name ?? `${start}…`;
  return (
    <>
      <button
        type="button"
        disabled={busy}
        class={enabled ? 'danger' : ''}
        aria-label={`${verb} ${called}`}
        onClick={() => void run(() => apply(of, `${verb}d ${called}`, { enabled: !enabled }))}
      >
        {verb}
      </button>
      {problem}
    </>
  );
}

function Search({ filter, onSearch }: { filter: Filter; onSearch: (filter: Filter) => void }) {
  const search = (event: Event) => {
    const field = fieldsOf(event);
    const name = field('name');
    if (/^key_[0-9A-Za-z]{20}$/.test(name)) {
      location.hash = `#/keys/${name}`;
      return;
    }
    onSearch({
      name,
      externalId: field('externalId'),
      enabled: field('enabled'),
      sort: field('sort'),
    });
  };
  const now = (event: Event) => (event.currentTarget as HTMLSelectElement).form?.requestSubmit();
  return (
    <form class="row search" aria-label="Search" onSubmit={search}>
      <label>
        Name begins with, or id
        <input type="search" name="name" maxLength={256} defaultValue={filter.name} autocomplete="off" />
      </label>
      <label>
        Owner
        <input
          type="search"
          name="externalId"
          maxLength={256}
          defaultValue={filter.externalId}
          autocomplete="off"
        />
      </label>
      <label>
        State
        <select name="enabled" value={filter.enabled} onChange={now}>
          <option value="">any</option>
          <option value="true">enabled</option>
          <option value="false">disabled</option>
        </select>
      </label>
      <label>
        Order
        <select name="sort" value={filter.sort} onChange={now}>
          <option value="-createdAt">newest first</option>
          <option value="createdAt">oldest first</option>
        </select>
      </label>
      <button type="submit">Search</button>
    </form>
  );
}

function NewKey({ apiId, onCreated }: { apiId: string; onCreated: () => void }) {
  const { busy, run, problem } = useAction();
  const [secret, setSecret] = useState('');
  const create = (event: Event) => {
    const field = fieldsOf(event);
    void run(async () => {
      const created = await call('keys.createKey', {
        apiId,
        ...enteredOf(field),
        ...(field('prefix') ? { prefix: field('prefix') } : {}),
        enabled: field('enabled') === 'on',
      });
      setSecret(created.key);
      onCreated();
    });
  };
  return (
    <>
      <form class="panel fields" onSubmit={create} aria-label="New key">
        <KeyFields />
        <label>
          Prefix <small>what the key begins with</small>
          <input name="prefix" pattern="[A-Za-z0-9_]{1,16}" autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" name="enabled" defaultChecked /> Enabled from the start
        </label>
        {problem}
        <div class="row wide">
          <button type="submit" class="main" disabled={busy}>
            Create key
          </button>
        </div>
      </form>
      {secret !== '' && <SecretDialog title="The new key" secret={secret} onClose={() => setSecret('')} />}
    </>
  );
}
