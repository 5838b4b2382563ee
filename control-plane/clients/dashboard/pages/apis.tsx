import { call } from '../api/client.ts';
import { ActionForm, Empty, Field, type FormEntry, Opener } from '../forms/forms.tsx';
import { DefaultFields, enteredDefaults } from '../keys/api-settings.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Traffic } from '../usage/usage.tsx';

/** Small, because each API on the page needs a call for its traffic. */
const PAGE_SIZE = '25';

/** A page with the APIs that the root key may read, and a form to create one. */
export function Apis() {
  const pages = usePages(Number(PAGE_SIZE));
  const apis = useLoad(
    () => call('apis.listApis', { limit: PAGE_SIZE, cursor: pages.cursor }),
    [pages.cursor],
  );
  const create = async (entry: FormEntry) => {
    const id = entry('apiId');
    const names = { name: entry('name'), ...(id ? { apiId: id } : {}) };
    const { apiId } = await call('apis.createApi', { ...names, ...enteredDefaults(entry, undefined) });
    location.hash = `#/apis/${apiId}`;
    return undefined;
  };
  return (
    <Page
      title="APIs"
      actions={
        <Opener action="New API" permission="api.*.create_api">
          {(close) => (
            <ActionForm label="New API" action="Create" run={create} onDone={close}>
              <Field label="Name" name="name" required maxLength={256} />
              <Field label="Id" hint="empty = a new one" name="apiId" pattern="[A-Za-z0-9_\-]{1,64}" />
              <DefaultFields />
            </ActionForm>
          )}
        </Opener>
      }
    >
      <Loaded of={apis}>
        {(page) => (
          <>
            <Table
              label="APIs"
              rows={page.apis}
              id={({ id }) => id}
              empty={
                <Empty page="#/apis" action="Create the first API" permission="api.*.create_api">
                  No APIs yet, or none that this root key may read. An API is a group of keys with rules of
                  its own.
                </Empty>
              }
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
            {pages.pager(page.cursor, page.apis.length)}
          </>
        )}
      </Loaded>
    </Page>
  );
}
