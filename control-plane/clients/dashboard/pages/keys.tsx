import { useEffect, useState } from 'preact/hooks';
import { call, type Key, may } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { ActionForm, type FormEntry, Opener } from '../forms/forms.tsx';
import { ApiSettings } from '../keys/api-settings.tsx';
import { enteredOf, NewKeyFields } from '../keys/key-fields.tsx';
import {
  isFiltered,
  LISTED_AT_ONCE,
  listKeys,
  NO_FILTER,
  PAGE_KEYS,
  Search,
  SearchState,
  useSearch,
} from '../keys/key-search.tsx';
import { KeyTable } from '../keys/key-table.tsx';
import { type BulkChange, type BulkPatch, SelectionBar, useSelection } from '../keys/selection.tsx';
import { useConditions } from '../parts/conditions.ts';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { Dock } from '../parts/dock.tsx';
import { Export } from '../parts/export.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Managed } from '../parts/managed.tsx';
import { More } from '../parts/more.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { type Tab, Tabs } from '../parts/tabs.tsx';
import { Usage } from '../usage/usage.tsx';

const WAY = [['#/apis', 'APIs']] as const;

/** A page for an API: its keys, its traffic and its settings. */
export function Keys({ apiId }: { apiId: string }) {
  const api = useLoad(() => call('apis.getApi', { apiId }), []);
  // The list takes in a key that was made beside it.
  const [creations, setCreations] = useState(0);
  if (api.failure?.code === 'NOT_FOUND' || api.failure?.code === 'BAD_REQUEST')
    return <NoSuchApi apiId={apiId} />;
  return (
    <Page
      title={api.data?.name ?? apiId}
      way={WAY}
      beside={<CopyId id={apiId} of="the API" />}
      actions={
        api.data && (
          <>
            <DeleteApiButton apiId={apiId} />
            <Opener action="New key" permission={`api.${apiId}.create_key`}>
              {(close) => (
                <NewKey apiId={apiId} onCreated={() => setCreations(creations + 1)} onDone={close} />
              )}
            </Opener>
          </>
        )
      }
    >
      {api.data && <Managed of={api.data} />}
      <Tabs label="Parts of the API" tabs={tabsOf(apiId, creations)} />
    </Page>
  );
}

/** The parts of the page that the user may see. */
function tabsOf(apiId: string, creations: number): readonly Tab[] {
  return [
    { id: 'keys', title: 'Keys', content: () => <KeyList apiId={apiId} creations={creations} /> },
    ...(may(`api.${apiId}.read_analytics`)
      ? [{ id: 'traffic', title: 'Traffic', content: () => <ApiTraffic apiId={apiId} /> }]
      : []),
    ...(may(`api.${apiId}.update_api`)
      ? [{ id: 'settings', title: 'Settings', content: () => <ApiSettings apiId={apiId} /> }]
      : []),
  ];
}

const ApiTraffic = ({ apiId }: { apiId: string }) => (
  <Usage
    title="Requests"
    isLive
    hasMinutes
    apiIds={async () => [apiId]}
    load={({ granularity, ...period }) =>
      call('apis.getVerifications', { apiId, granularity, ...(granularity === 'minute' ? {} : period) })
    }
  />
);

const timeOf = (at: number | undefined) => at && new Date(at).toISOString();
const EXPORTED = {
  keyId: ({ keyId }: Key) => keyId,
  name: ({ name }: Key) => name,
  externalId: ({ externalId }: Key) => externalId,
  start: ({ start }: Key) => start,
  state: ({ state }: Key) => state,
  leaked: ({ leaked }: Key) => leaked?.url,
  roles: ({ roles }: Key) => roles?.join(', '),
  permissions: ({ permissions }: Key) => permissions?.join(' '),
  created: ({ createdAt }: Key) => timeOf(createdAt),
  expires: ({ expires }: Key) => timeOf(expires),
  lastAccepted: ({ lastUsedAt }: Key) => timeOf(lastUsedAt),
  lastRefused: ({ lastRefusedAt }: Key) => timeOf(lastRefusedAt),
};

/** The keys of an API: find, disable and enable them, one or several at a time. */
function KeyList({ apiId, creations }: { apiId: string; creations: number }) {
  const [filter, setFilter] = useConditions(NO_FILTER);
  const pages = usePages(PAGE_KEYS);
  const search = useSearch(apiId, filter, pages.cursor);
  const keys = search.page;
  useEffect(() => {
    if (creations > 0) keys.reload();
  }, [creations]);
  const { apply, applyAll, receipts } = useChange(keys.reload);
  const selection = useSelection();
  const changeAll = (selected: readonly Key[], { headline, patchOf }: BulkChange) => {
    const patches = selected.map((key) => ({ keyId: key.keyId, patch: patchOf(key) }));
    // What differed before is what an undo restores.
    const before = selected.flatMap((key) => {
      const was = Object.keys(patchOf(key)).map((name) => [name, key[name as keyof BulkPatch] ?? null]);
      const patch = Object.fromEntries(was);
      return JSON.stringify(patch) === JSON.stringify(patchOf(key)) ? [] : [{ keyId: key.keyId, patch }];
    });
    const undo = () => applyAll(apiId, before, `Undone: ${headline}`);
    const same = selected.length - before.length;
    const changed =
      same === 0
        ? headline
        : `${headline}, of which ${same.toLocaleString()} ${same === 1 ? 'was' : 'were'} so already`;
    return applyAll(apiId, patches, changed, before.length > 0 ? undo : undefined);
  };
  return (
    <>
      <Search
        filter={filter}
        onSearch={(conditions) => {
          pages.reset();
          selection.reset();
          setFilter(conditions);
        }}
      />
      <div class="title above-list">
        <SearchState of={search} />
        <div class="actions">
          <Export
            key={JSON.stringify(filter)}
            name={`keys-${apiId}`}
            columns={EXPORTED}
            list={async (cursor) => {
              const page = await listKeys(apiId, filter, LISTED_AT_ONCE, cursor);
              return { rows: page.keys, cursor: page.cursor };
            }}
          />
        </div>
      </div>
      <Loaded of={keys}>
        {(page) => (
          <>
            <KeyTable apiId={apiId} page={page} selection={selection} apply={apply} />
            {pages.pager(page.cursor, page.keys.length, isFiltered(filter) ? undefined : page.total)}
          </>
        )}
      </Loaded>
      <Dock>
        {receipts}
        {may(`api.${apiId}.update_key`) && (
          <SelectionBar
            selection={selection}
            selectAll={pages.cursor || keys.data?.cursor ? () => selection.all(apiId, filter) : undefined}
            change={changeAll}
          />
        )}
      </Dock>
    </>
  );
}

function NoSuchApi({ apiId }: { apiId: string }) {
  return (
    <Page title="No such API" way={WAY}>
      <div class="quiet empty">
        There is no API with the id <code>{apiId}</code>, or none that this root key may see.
        <p>
          <a href="#/apis">To the APIs</a>
        </p>
      </div>
    </Page>
  );
}

function DeleteApiButton({ apiId }: { apiId: string }) {
  const [isOpen, setOpen] = useState(false);
  if (!may(`api.${apiId}.delete_api`)) return null;
  return (
    <>
      <More>
        <button type="button" class="danger" onClick={() => setOpen(true)}>
          Delete API…
        </button>
      </More>
      {isOpen && <DeleteApi apiId={apiId} onClose={() => setOpen(false)} />}
    </>
  );
}

function DeleteApi({ apiId, onClose }: { apiId: string; onClose: () => void }) {
  return (
    <Confirm
      title="Delete this API?"
      word={apiId}
      action="Delete API and keys"
      run={() => call('apis.deleteApi', { apiId })}
      onDone={() => {
        location.hash = '#/apis';
      }}
      onClose={onClose}
    >
      Every verifier then refuses all keys of the API. This cannot be undone.
    </Confirm>
  );
}

function NewKey(props: { apiId: string; onCreated: () => void; onDone: () => void }) {
  const create = async (entry: FormEntry) => {
    const prefix = entry('prefix');
    const key = await call('keys.createKey', {
      apiId: props.apiId,
      ...enteredOf(entry),
      ...(prefix ? { prefix } : {}),
      enabled: entry('enabled') === 'on',
    });
    props.onCreated();
    return key;
  };
  return (
    <ActionForm label="New key" action="Create key" run={create} onDone={props.onDone}>
      <NewKeyFields />
    </ActionForm>
  );
}
