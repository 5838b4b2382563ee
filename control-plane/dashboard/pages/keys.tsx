import { useState } from 'preact/hooks';
import { call, type Key } from '../api/client.ts';
import { ApiSettings } from '../keys/api-settings.tsx';
import { enteredOf, NewKeyFields } from '../keys/key-fields.tsx';
import { NO_FILTER, Search, SearchState, useSearch } from '../keys/key-search.tsx';
import { KeyState, KeySwitch } from '../keys/key-state.tsx';
import { SelectionBar, useSelection } from '../keys/selection.tsx';
import { useChange } from '../parts/change.tsx';
import { useConditions } from '../parts/conditions.ts';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { ActionForm, type Entered, Opener } from '../parts/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Usage } from '../parts/usage.tsx';

/** The keys of an API: found, made, disabled and enabled, one or several at once. */
export function Keys({ apiId }: { apiId: string }) {
  const [filter, setFilter] = useConditions(NO_FILTER);
  const [shown, setShown] = useState<'settings' | 'traffic'>();
  const [deleting, setDeleting] = useState(false);
  const pages = usePages();
  const api = useLoad(() => call('apis.getApi', { apiId }), []);
  const search = useSearch(apiId, filter, pages.cursor);
  const keys = search.found;
  const { apply, applyAll, panelOf, panelsBeside } = useChange(keys.again);
  const selection = useSelection();
  const way = [['#/apis', 'APIs']] as const;
  if (api.failure?.code === 'NOT_FOUND' || api.failure?.code === 'BAD_REQUEST') {
    return (
      <Page title="No such API" way={way}>
        <div class="quiet empty">
          There is no API with the id <code>{apiId}</code>, or none that this root key may see.
          <p>
            <a href="#/apis">To the APIs</a>
          </p>
        </div>
      </Page>
    );
  }
  const switchAll = (chosen: readonly Key[], what: string, enabled: boolean) => {
    const idsOf = (some: readonly Key[]) => some.map(({ keyId }) => keyId);
    const changed = idsOf(chosen.filter((key) => key.enabled !== enabled));
    const undo = () => applyAll(apiId, changed, `Undone: ${what}`, { enabled: !enabled });
    return applyAll(apiId, idsOf(chosen), what, { enabled }, changed.length > 0 ? undo : undefined);
  };
  return (
    <Page title={`Keys of ${api.data?.name ?? apiId}`} way={way} beside={<CopyId id={apiId} of="the API" />}>
      <Opener
        action="New key"
        beside={
          <>
            {(['traffic', 'settings'] as const).map((part) => (
              <button
                key={part}
                type="button"
                aria-expanded={shown === part}
                onClick={() => setShown(shown === part ? undefined : part)}
              >
                {part === 'traffic' ? 'Traffic' : 'Settings'}
              </button>
            ))}
            <button type="button" onClick={() => setDeleting(true)}>
              Delete API…
            </button>
          </>
        }
      >
        {(close) => <NewKey apiId={apiId} onCreated={keys.again} onDone={close} />}
      </Opener>
      {shown === 'settings' && <ApiSettings apiId={apiId} />}
      {shown === 'traffic' && (
        <Usage load={(granularity) => call('apis.getVerifications', { apiId, granularity })} />
      )}
      {deleting && (
        <Confirm
          title="Delete this API?"
          word={apiId}
          action="Delete API and keys"
          run={() => call('apis.deleteApi', { apiId })}
          onDone={() => {
            location.hash = '#/apis';
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
      <SearchState of={search} />
      <Loaded of={keys}>
        {(page) => (
          <>
            <SelectionBar selection={selection} page={page.keys} change={switchAll} />
            {panelsBeside(page.keys.map(({ keyId }) => keyId))}
            <Table
              label="Keys"
              rows={page.keys}
              id={({ keyId }) => keyId}
              empty={
                page.total === 0
                  ? 'No keys yet. “New key” makes the first one, and so does a call of keys.createKey.'
                  : page.cursor
                    ? 'No match so far. “Next” searches further.'
                    : 'No key matches.'
              }
              columns={[
                { title: 'Selected', narrow: 'box', cell: selection.box },
                {
                  title: 'Key',
                  narrow: 'first',
                  cell: ({ keyId, name, start }) => (
                    <>
                      <a href={`#/keys/${keyId}`} title={name}>
                        <bdi>{name ?? keyId}</bdi>
                      </a>
                      <small>
                        <code>{start}…</code>
                      </small>
                    </>
                  ),
                },
                {
                  title: 'Owner',
                  cell: ({ externalId }) =>
                    externalId && (
                      <bdi class="short" title={externalId}>
                        {externalId}
                      </bdi>
                    ),
                },
                { title: 'State', narrow: 'beside', cell: (key) => <KeyState of={key} /> },
                { title: 'Last use', cell: ({ lastUsedAt }) => <Time at={lastUsedAt} none="never seen" /> },
                { title: 'Expires', cell: ({ expires }) => expires && <Time at={expires} /> },
                { title: 'Created', narrow: 'none', cell: ({ createdAt }) => <Time at={createdAt} /> },
                {
                  title: 'Id',
                  narrow: 'none',
                  cell: ({ keyId, name }) => <CopyId id={keyId} of={name ?? keyId} unseen />,
                },
                { title: 'Change', narrow: 'beside', cell: (key) => <KeySwitch of={key} apply={apply} /> },
              ]}
              below={({ keyId }) => panelOf(keyId)}
            />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function NewKey(props: { apiId: string; onCreated: () => void; onDone: () => void }) {
  const create = async (entered: Entered) => {
    const prefix = entered('prefix');
    const created = await call('keys.createKey', {
      apiId: props.apiId,
      ...enteredOf(entered),
      ...(prefix ? { prefix } : {}),
      enabled: entered('enabled') === 'on',
    });
    props.onCreated();
    return created;
  };
  return (
    <ActionForm label="New key" action="Create key" run={create} onDone={props.onDone}>
      <NewKeyFields />
    </ActionForm>
  );
}
