import { useState } from 'preact/hooks';
import { call, type Key, may } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { ApiSettings } from '../keys/api-settings.tsx';
import { enteredOf, NewKeyFields } from '../keys/key-fields.tsx';
import { NO_FILTER, Search, SearchState, useSearch } from '../keys/key-search.tsx';
import { KeyTable } from '../keys/key-table.tsx';
import { SelectionBar, useSelection } from '../keys/selection.tsx';
import { useConditions } from '../parts/conditions.ts';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { ActionForm, type FormEntry, Opener } from '../parts/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Usage } from '../parts/usage.tsx';

const WAY = [['#/apis', 'APIs']] as const;
const SECTIONS = { traffic: 'Traffic', settings: 'Settings' } as const;
const SECTION_ACTIONS = { traffic: 'read_analytics', settings: 'update_api' } as const;
type Section = keyof typeof SECTIONS;

/** A page for the keys of an API: find, create, disable and enable them, one or several at a time. */
export function Keys({ apiId }: { apiId: string }) {
  const [filter, setFilter] = useConditions(NO_FILTER);
  const [section, setSection] = useState<Section>();
  const pages = usePages();
  const api = useLoad(() => call('apis.getApi', { apiId }), []);
  const search = useSearch(apiId, filter, pages.cursor);
  const keys = search.page;
  const { apply, applyAll, panelOf, panelsBeside } = useChange(keys.reload);
  const selection = useSelection();
  if (api.failure?.code === 'NOT_FOUND' || api.failure?.code === 'BAD_REQUEST')
    return <NoSuchApi apiId={apiId} />;
  const switchAll = (selected: readonly Key[], headline: string, enabled: boolean) => {
    const idsOf = (keys: readonly Key[]) => keys.map(({ keyId }) => keyId);
    const keyIds = idsOf(selected.filter((key) => key.enabled !== enabled));
    const undo = () => applyAll(apiId, keyIds, `Undone: ${headline}`, { enabled: !enabled });
    return applyAll(apiId, idsOf(selected), headline, { enabled }, keyIds.length > 0 ? undo : undefined);
  };
  return (
    <Page title={`Keys of ${api.data?.name ?? apiId}`} way={WAY} beside={<CopyId id={apiId} of="the API" />}>
      <Opener
        action="New key"
        permission={`api.${apiId}.create_key`}
        beside={
          <>
            <Sections apiId={apiId} open={section} onChange={setSection} />
            <DeleteApiButton apiId={apiId} />
          </>
        }
      >
        {(close) => <NewKey apiId={apiId} onCreated={keys.reload} onDone={close} />}
      </Opener>
      {section === 'settings' && <ApiSettings apiId={apiId} />}
      {section === 'traffic' && (
        <Usage load={(granularity) => call('apis.getVerifications', { apiId, granularity })} />
      )}
      <Search
        filter={filter}
        onSearch={(conditions) => {
          pages.reset();
          selection.reset();
          setFilter(conditions);
        }}
      />
      <SearchState of={search} />
      <Loaded of={keys}>
        {(page) => (
          <>
            {may(`api.${apiId}.update_key`) && (
              <SelectionBar selection={selection} page={page.keys} change={switchAll} />
            )}
            {panelsBeside(page.keys.map(({ keyId }) => keyId))}
            <KeyTable apiId={apiId} page={page} selection={selection} apply={apply} panelOf={panelOf} />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
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

/** The buttons that open and close sections. */
function Sections(props: {
  apiId: string;
  open: Section | undefined;
  onChange: (section?: Section) => void;
}) {
  const { apiId, open, onChange } = props;
  const permitted = (Object.keys(SECTIONS) as Section[]).filter((section) =>
    may(`api.${apiId}.${SECTION_ACTIONS[section]}`),
  );
  return permitted.map((section) => (
    <button
      key={section}
      type="button"
      aria-expanded={open === section}
      onClick={() => onChange(open === section ? undefined : section)}
    >
      {SECTIONS[section]}
    </button>
  ));
}

function DeleteApiButton({ apiId }: { apiId: string }) {
  const [isOpen, setOpen] = useState(false);
  if (!may(`api.${apiId}.delete_api`)) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Delete API…
      </button>
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
