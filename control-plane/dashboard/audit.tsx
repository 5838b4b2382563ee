import { useState } from 'preact/hooks';
import { type AuditEvent, call } from './api.ts';
import { Choice, Field } from './forms.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { Badge, fieldsOf, Page, Table, Time, usePages } from './parts.tsx';

/** The audit log: calls that changed something, or were refused. */
export function Audit({ keyId = '' }: { keyId?: string }) {
  const [filter, setFilter] = useState({
    refused: 'false',
    operation: '',
    keyId,
    apiId: '',
    rootKeyId: '',
  });
  const pages = usePages();
  const events = useLoad(
    () => call('audit.listEvents', { ...filter, limit: '50', cursor: pages.cursor }),
    [filter, pages.cursor],
  );
  const search = (event: Event) => {
    const entered = fieldsOf(event);
    pages.reset();
    setFilter({
      refused: entered('refused'),
      operation: entered('operation'),
      keyId: entered('keyId'),
      apiId: entered('apiId'),
      rootKeyId: entered('rootKeyId'),
    });
  };
  const text = (name: 'operation' | 'keyId' | 'apiId' | 'rootKeyId', label: string, pattern: string) => (
    <Field type="search" label={label} name={name} defaultValue={filter[name]} pattern={pattern} />
  );
  return (
    <Page title="Audit">
      <form class="row search" aria-label="Search" onSubmit={search}>
        <Choice
          label="Show"
          name="refused"
          value={filter.refused}
          options={{ false: 'what was done', true: 'what was refused' }}
        />
        {text('operation', 'Operation', '[A-Za-z]+\\.[A-Za-z]+')}
        {text('apiId', 'API', '[A-Za-z0-9_\\-]{1,64}')}
        {text('keyId', 'Key id', '[A-Za-z0-9_\\-]{1,80}')}
        {text('rootKeyId', 'Root key id', '[A-Za-z0-9_\\-]{1,80}')}
        <button type="submit">Search</button>
      </form>
      <Loaded of={events}>
        {(page) => (
          <>
            <Table
              label="Events"
              rows={page.events}
              id={({ id }) => id}
              empty={page.cursor ? 'None on this page; there may be more.' : 'No events.'}
              columns={[
                { title: 'When', cell: ({ time }) => <Time at={time} /> },
                { title: 'Operation', cell: ({ operation }) => <span class="nowrap">{operation}</span> },
                {
                  title: 'Outcome',
                  cell: ({ outcome }) => <Badge kind={outcome === 'OK' ? 'good' : 'bad'}>{outcome}</Badge>,
                },
                {
                  title: 'By',
                  cell: ({ by }) => (
                    <>
                      <code>{by.rootKeyId ?? 'nobody known'}</code> <small>{by.address}</small>
                    </>
                  ),
                },
                { title: 'On', cell: ({ on }) => <Subject on={on} /> },
                { title: 'What', cell: (event) => <What event={event} /> },
              ]}
            />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Subject({ on }: { on: AuditEvent['on'] }) {
  return (
    <>
      {on.apiId !== undefined && <a href={`#/apis/${on.apiId}`}>{on.apiId}</a>}{' '}
      {on.keyId !== undefined && (
        <a href={`#/keys/${on.keyId}`}>
          <code>{on.keyId}</code>
        </a>
      )}{' '}
      {on.rootKeyId !== undefined && <code>{on.rootKeyId}</code>}
    </>
  );
}

function What({ event }: { event: AuditEvent }) {
  const { before, after, sequence, requestId } = event;
  return (
    <details>
      <summary>{sequence === undefined ? 'details' : `change ${sequence}`}</summary>
      {before && <pre>before {JSON.stringify(before, null, 1)}</pre>}
      {after && <pre>after {JSON.stringify(after, null, 1)}</pre>}
      <small>request {requestId}</small>
    </details>
  );
}
