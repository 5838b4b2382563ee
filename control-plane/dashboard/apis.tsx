import { useState } from 'preact/hooks';
import { call } from './api.ts';
import { Loaded, useAction, useLoad } from './loading.tsx';
import { fieldsOf, Page, Table, Time, usePages } from './parts.tsx';

/** The APIs that the root key may read, and making one. */
export function Apis() {
  const pages = usePages();
  const apis = useLoad(() => call('apis.listApis', { limit: '50', cursor: pages.cursor }), [pages.cursor]);
  const [open, setOpen] = useState(false);
  const { busy, run, problem } = useAction();
  const create = (event: Event) => {
    const field = fieldsOf(event);
    void run(async () => {
      const { apiId } = await call('apis.createApi', {
        name: field('name'),
        ...(field('apiId') ? { apiId: field('apiId') } : {}),
      });
      location.hash = `#/apis/${apiId}`;
    });
  };
  return (
    <Page title="APIs">
      <p class="row">
        <button type="button" class="main" aria-expanded={open} onClick={() => setOpen(!open)}>
          New API
        </button>
      </p>
      {open && (
        <form class="panel fields" onSubmit={create} aria-label="New API">
          <label>
            Name
            <input name="name" required maxLength={256} autocomplete="off" />
          </label>
          <label>
            Id <small>empty = a new one</small>
            <input name="apiId" pattern="[A-Za-z0-9_\-]{1,64}" autocomplete="off" />
          </label>
          {problem}
          <div class="row wide">
            <button type="submit" class="main" disabled={busy}>
              Create
            </button>
          </div>
        </form>
      )}
      <Loaded of={apis}>
        {(page) => (
          <>
            <Table
              label="APIs"
              rows={page.apis}
              id={({ id }) => id}
              empty="No APIs yet, or none that this root key may read. One comes into being with its first key, too."
              columns={[
                { title: 'API', cell: ({ id, name }) => <a href={`#/apis/${id}`}>{name ?? id}</a> },
                { title: 'Id', cell: ({ id }) => <code>{id}</code> },
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
