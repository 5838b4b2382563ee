import { call, type Endpoint, may } from '../api/client.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { counted } from '../parts/counted.ts';
import { Fact } from '../parts/fact.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Time } from '../parts/time.tsx';
import { Deliveries } from '../webhooks/deliveries.tsx';
import { EndpointActions } from '../webhooks/endpoint-actions.tsx';
import { EndpointState, EventTypes } from '../webhooks/endpoint-state.tsx';

const REFRESH_MS = 5000;

/** The page of a webhook endpoint: its queue, its signing secret, and its deliveries. */
export function WebhookDetail({ endpointId }: { endpointId: string }) {
  const endpoint = useLoad(() => call('webhooks.getEndpoint', { endpointId }), [endpointId], REFRESH_MS);
  return (
    <Page
      title={endpoint.data?.name ?? 'Webhook endpoint'}
      way={[['#/webhooks', 'Webhooks']]}
      beside={endpoint.data && <EndpointState endpoint={endpoint.data} />}
      actions={
        endpoint.data &&
        may('root.*.update_webhook') && <EndpointActions endpoint={endpoint.data} reload={endpoint.reload} />
      }
    >
      <Loaded of={endpoint}>{(present) => <Facts endpoint={present} />}</Loaded>
      <Deliveries endpointId={endpointId} />
    </Page>
  );
}

function Facts({ endpoint }: { endpoint: Endpoint }) {
  const {
    endpointId,
    url,
    events,
    apiIds,
    waiting,
    oldestAt,
    dropped,
    dead,
    pausedUntil,
    formerSecretEndsAt,
  } = endpoint;
  return (
    <dl class="panel">
      {pausedUntil !== undefined && (
        <Fact name="Failing">
          {counted(endpoint.failures, 'attempt')} in a row; the next is <Time at={pausedUntil} />
        </Fact>
      )}
      {formerSecretEndsAt !== undefined && (
        <Fact name="Signed with the former secret, too">
          until <Time at={formerSecretEndsAt} exact />
        </Fact>
      )}
      <Fact name="URL">
        <bdi>{url}</bdi>
      </Fact>
      <Fact name="Id">
        <CopyId id={endpointId} of="this endpoint" />
      </Fact>
      <Fact name="Events">
        <EventTypes of={events} />
        {apiIds && ' of '}
        {apiIds?.map((apiId, i) => (
          <>
            {i > 0 && ', '}
            <ApiLink id={apiId} />
          </>
        ))}
      </Fact>
      <Fact name="Waiting">
        {waiting.toLocaleString()}
        {oldestAt !== undefined && (
          <>
            , the oldest was queued <Time at={oldestAt} />
          </>
        )}
      </Fact>
      <Fact name="Lost">
        {dropped === 0 && dead === 0
          ? 'none'
          : `${dropped.toLocaleString()} because the queue was full, ${dead.toLocaleString()} after three days`}
      </Fact>
    </dl>
  );
}
