import { useState } from 'preact/hooks';
import { call } from './api.ts';
import { ActionForm, type Entered, Field, Opener } from './forms.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { CopyId, Page, Table, Time, usePages } from './parts.tsx';
import { Traffic } from './usage.tsx';

/** So few that the traffic of each is asked for. */
const APIS_SHOWN = '25';

/** The APIs that the root key may read, and making one. */
export function Apis() {
  const pages = usePages();
  const apis = useLoad(
    () => call('apis.listApis', { limit: APIS_SHOWN, cursor: pages.cursor }),
    [pages.cursor],
  );
  const create = async (entered: Entered) => {
    const id = entered('apiId');
    const named = { name: entered('name'), ...(id ? { apiId: id } : {}) };
    const { apiId } = await call('apis.createApi', { ...named, ...enteredDefaults(entered, undefined) });
    location.hash = `#/apis/${apiId}`;
    return undefined;
  };
  return (
    <Page title="APIs">
      <Opener action="New API">
        {(close) => (
          <ActionForm label="New API" action="Create" run={create} onDone={close}>
            <Field label="Name" name="name" required maxLength={256} />
            <Field label="Id" hint="empty = a new one" name="apiId" pattern="[A-Za-z0-9_\-]{1,64}" />
            <DefaultFields />
          </ActionForm>
        )}
      </Opener>
      <Loaded of={apis}>
        {(page) => (
          <>
            <Table
              label="APIs"
              rows={page.apis}
              id={({ id }) => id}
              empty="No APIs yet, or none that this root key may read. The first key of an API makes it, too."
              columns={[
                {
                  title: 'API',
                  narrow: 'first',
                  cell: ({ id, name }) => (
                    <a href={`#/apis/${id}`}>
                      <bdi>{name ?? id}</bdi>
                    </a>
                  ),
                },
                { title: 'Id', cell: ({ id, name }) => <CopyId id={id} of={name ?? id} /> },
                { title: 'Keys', number: true, cell: ({ keys }) => keys?.toLocaleString() },
                { title: 'Last 24 hours', cell: ({ id }) => <Traffic apiId={id} /> },
                { title: 'Created', cell: ({ createdAt }) => <Time at={createdAt} /> },
              ]}
            />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

interface Defaults {
  readonly defaultPrefix?: string;
  readonly defaultBytes?: number;
}

/** Inputs for the defaults of an API's new keys, when it is made and later. */
function DefaultFields({ of }: { of?: Defaults }) {
  return (
    <>
      <Field
        label="Prefix of new keys"
        hint="empty = none"
        name="defaultPrefix"
        pattern="[A-Za-z0-9_]{1,16}"
        defaultValue={of?.defaultPrefix ?? ''}
      />
      <Field
        label="Random bytes of new keys"
        hint="empty = 16"
        name="defaultBytes"
        type="number"
        min="16"
        max="255"
        defaultValue={of?.defaultBytes ?? ''}
      />
    </>
  );
}

/** The entered defaults; `none` stands for those that are empty. */
function enteredDefaults<None>(entered: Entered, none: None) {
  const [prefix, bytes] = [entered('defaultPrefix'), entered('defaultBytes')];
  return { defaultPrefix: prefix || none, defaultBytes: bytes ? Number(bytes) : none };
}

/** An API's name and the defaults of its new keys, to be changed. */
export function ApiSettings({ apiId }: { apiId: string }) {
  const api = useLoad(() => call('apis.getApi', { apiId }), [apiId]);
  const [said, setSaid] = useState('');
  const save = async (entered: Entered) => {
    const name = entered('name');
    await call('apis.updateApi', { apiId, ...(name ? { name } : {}), ...enteredDefaults(entered, null) });
    setSaid('Saved. Keys that exist stay as they are.');
    return undefined;
  };
  return (
    <Loaded of={api}>
      {(of) => (
        <ActionForm label="Settings of the API" action="Save" run={save} said={said}>
          <Field label="Name" name="name" maxLength={256} defaultValue={of.name ?? ''} />
          <DefaultFields of={of} />
        </ActionForm>
      )}
    </Loaded>
  );
}
