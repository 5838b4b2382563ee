import { useState } from 'preact/hooks';
import { call, type Endpoint, may } from '../api/client.ts';
import { Confirm, SecretDialog } from '../parts/dialogs.tsx';
import { useAction } from '../parts/loading.tsx';
import { Switch } from '../parts/switch.tsx';
import { duration, Time } from '../parts/time.tsx';

/** Buttons that test, disable, re-sign and delete an endpoint. */
export function EndpointActions({ endpoint, reload }: { endpoint: Endpoint; reload: () => void }) {
  const { endpointId, enabled, formerSecretEndsAt } = endpoint;
  const { busy, run, problem } = useAction();
  const [message, setMessage] = useState('');
  const [secret, setSecret] = useState<string>();
  const [isDeleting, setDeleting] = useState(false);
  const test = async () => {
    setMessage('');
    const { delivered, status, error, durationMs } = await call('webhooks.test', { endpointId });
    const answer = status === undefined ? error : `it answered ${status}`;
    reload();
    setMessage(`${delivered ? 'Delivered' : 'Not delivered'}: ${answer} after ${duration(durationMs)}.`);
  };
  const rotate = async () => setSecret((await call('webhooks.rotateSecret', { endpointId })).secret);
  const change = async (isOn: boolean) => {
    await call('webhooks.updateEndpoint', { endpointId, enabled: isOn });
    reload();
  };
  return (
    <>
      <p class="row">
        <button type="button" aria-disabled={busy} onClick={() => void run(test)}>
          Send a test event
        </button>
        <Switch isLarge enabled={enabled} name="this endpoint" change={change} />
        <button type="button" aria-disabled={busy} onClick={() => void run(rotate)}>
          Replace signing secret
        </button>
        {may('root.*.delete_webhook') && (
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            Delete
          </button>
        )}
      </p>
      {formerSecretEndsAt !== undefined && (
        <p class="quiet">
          Events are signed with the former secret too, until <Time at={formerSecretEndsAt} exact />.
        </p>
      )}
      <p role="status">{message}</p>
      {problem}
      {secret !== undefined && (
        <SecretDialog
          title="The signing secret"
          secret={secret}
          onClose={() => {
            setSecret(undefined);
            reload();
          }}
        />
      )}
      {isDeleting && <DeleteEndpoint endpoint={endpoint} onClose={() => setDeleting(false)} />}
    </>
  );
}

function DeleteEndpoint({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { endpointId, url } = endpoint;
  return (
    <Confirm
      title="Delete this endpoint?"
      action="Delete endpoint"
      busyText="Deleting…"
      run={() => call('webhooks.deleteEndpoint', { endpointId })}
      onDone={() => {
        location.hash = '#/webhooks';
      }}
      onClose={onClose}
    >
      The events that wait for <bdi>{new URL(url).host}</bdi> are deleted too. This cannot be undone.
    </Confirm>
  );
}
