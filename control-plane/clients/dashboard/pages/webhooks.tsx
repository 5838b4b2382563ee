import { useState } from 'preact/hooks';
import { call, type Endpoint, InvalidField } from '../api/client.ts';
import { ActionForm, Empty, Field, type FormEntry, Opener } from '../forms/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { EndpointState, EventTypes } from '../webhooks/endpoint-state.tsx';

/** The types of events; the build takes them from the server's list. */
declare const EVENT_TYPES: readonly string[];
const REFRESH_MS = 5000;

/** A page with the webhook endpoints and what waits for them, and a form to create one. */
export function Webhooks() {
  const endpoints = useLoad(() => call('webhooks.listEndpoints'), [], REFRESH_MS);
  return (
    <Page
      title="Webhooks"
      actions={
        <Opener action="New endpoint" permission="root.*.create_webhook">
          {(close) => <NewEndpoint onCreated={endpoints.reload} onDone={close} />}
        </Opener>
      }
    >
      <Loaded of={endpoints}>
        {(page) => (
          <Table
            label="Endpoints"
            rows={page.endpoints}
            id={({ endpointId }) => endpointId}
            empty={
              <Empty page="#/webhooks" action="Add the first endpoint" permission="root.*.create_webhook">
                No endpoints yet. An endpoint is a URL that is told what happens to keys: disabled, expiring,
                leaked …
              </Empty>
            }
            columns={[
              {
                title: 'Endpoint',
                narrow: 'first',
                cell: (endpoint) => <EndpointLink endpoint={endpoint} />,
              },
              { title: 'Events', cell: ({ events }) => <EventTypes of={events} /> },
              { title: 'State', narrow: 'beside', cell: (endpoint) => <EndpointState endpoint={endpoint} /> },
              { title: 'Waiting', number: true, cell: ({ waiting }) => waiting.toLocaleString() },
              { title: 'Lost', number: true, cell: ({ dropped, dead }) => (dropped + dead).toLocaleString() },
              { title: 'Created', cell: ({ createdAt }) => <Time at={createdAt} /> },
            ]}
          />
        )}
      </Loaded>
    </Page>
  );
}

function EndpointLink({ endpoint: { endpointId, name, url } }: { endpoint: Endpoint }) {
  return (
    <a href={`#/webhooks/${endpointId}`}>
      <bdi>{name ?? new URL(url).host}</bdi>
    </a>
  );
}

function NewEndpoint({ onCreated, onDone }: { onCreated: () => void; onDone: () => void }) {
  const [hasAll, setHasAll] = useState(true);
  const create = async (entry: FormEntry) => {
    const [url, name, apiIds] = [
      entry('url'),
      entry('name'),
      entry('apiIds')
        .split(/[\s,]+/)
        .filter(Boolean),
    ];
    const events = hasAll ? ['*'] : EVENT_TYPES.filter(entry);
    if (events.length === 0) throw new InvalidField('events', 'choose at least one');
    const { secret } = await call('webhooks.createEndpoint', {
      ...{ url, events },
      ...(name ? { name } : {}),
      ...(apiIds.length > 0 ? { apiIds } : {}),
    });
    onCreated();
    return { key: secret };
  };
  return (
    <ActionForm label="New endpoint" action="Create endpoint" run={create} onDone={onDone}>
      <Field label="URL" hint="https://…" wide type="url" name="url" required maxLength={2048} />
      <Field label="Name" name="name" maxLength={256} />
      <Field label="Only of these APIs" hint="their ids; empty = all" name="apiIds" />
      <label class="check wide">
        <input
          type="checkbox"
          checked={hasAll}
          onChange={(event) => setHasAll(event.currentTarget.checked)}
        />{' '}
        All events
      </label>
      {!hasAll && (
        <fieldset class="wide row">
          <legend>Events</legend>
          {EVENT_TYPES.map((type) => (
            <label class="check" key={type}>
              <input type="checkbox" name={type} /> <code>{type}</code>
            </label>
          ))}
        </fieldset>
      )}
    </ActionForm>
  );
}
