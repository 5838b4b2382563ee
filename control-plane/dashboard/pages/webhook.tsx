import { call, type Endpoint, may } from '../api/client.ts';
import { CopyId } from '../parts/copy-id.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Time } from '../parts/time.tsx';
import { Deliveries } from '../webhooks/deliveries.tsx';
import { EndpointActions } from '../webhooks/endpoint-actions.tsx';
import { EndpointState } from '../webhooks/endpoint-state.tsx';

const REFRESH_MS = 5000;

/** The page of a webhook endpoint: its queue, its signing secret, and its deliveries. */
export function WebhookDetail({ endpointId }: { endpointId: string }) {
  const endpoint = useLoad(() => call('webhooks.getEndpoint', { endpointId }), [endpointId], REFRESH_MS);
  return (
    <Page title={endpoint.data?.name ?? 'Webhook endpoint'} way={[['#/webhooks', 'Webhooks']]}>
      <Loaded of={endpoint}>
        {(present) => (
          <>
            <Facts endpoint={present} />
            {may('root.*.update_webhook') && <EndpointActions endpoint={present} reload={endpoint.reload} />}
          </>
        )}
      </Loaded>
      <Deliveries endpointId={endpointId} />
    </Page>
  );
}

function Facts({ endpoint }: { endpoint: Endpoint }) {
  const { endpointId, url, events, apiIds, waiting, oldestAt, dropped, dead, pausedUntil } = endpoint;
  return (
    <dl class="panel">
      <dt>State</dt>
      <dd>
        <EndpointState endpoint={endpoint} />{' '}
        {pausedUntil !== undefined && (
          <>
            {endpoint.failures} attempts failed in a row; the next is <Time at={pausedUntil} />
          </>
        )}
      </dd>
      <dt>URL</dt>
      <dd>
        <bdi>{url}</bdi>
      </dd>
      <dt>Id</dt>
      <dd>
        <CopyId id={endpointId} of="this endpoint" />
      </dd>
      <dt>Events</dt>
      <dd>
        {events.join(', ')}
        {apiIds && ` of ${apiIds.join(', ')}`}
      </dd>
      <dt>Waiting</dt>
      <dd>
        {waiting.toLocaleString()}{' '}
        {oldestAt !== undefined && (
          <>
            , the oldest since <Time at={oldestAt} />
          </>
        )}
      </dd>
      <dt>Lost</dt>
      <dd>
        {dropped === 0 && dead === 0
          ? 'none'
          : `${dropped.toLocaleString()} because the queue was full, ${dead.toLocaleString()} after three days`}
      </dd>
    </dl>
  );
}
