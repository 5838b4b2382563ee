import { useState } from 'preact/hooks';
import { call, type Endpoint, may } from '../api/client.ts';
import { Confirm, SecretDialog } from '../parts/dialogs.tsx';
import { useAction } from '../parts/loading.tsx';
import { More } from '../parts/more.tsx';
import { Switch } from '../parts/switch.tsx';
import { duration } from '../parts/time.tsx';

/** Buttons that test, disable, re-sign and delete an endpoint. */
export function EndpointActions({ endpoint, reload }: { endpoint: Endpoint; reload: () => void }) {
  const { endpointId, enabled } = endpoint;
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
      <span role="status">{message}</span>
      {problem}
      <More>
        <button type="button" onClick={() => void run(rotate)}>
          Replace signing secret
        </button>
        {may('root.*.delete_webhook') && (
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            Delete endpoint…
          </button>
        )}
      </More>
      <button type="button" aria-disabled={busy} onClick={() => void run(test)}>
        Send a test event
      </button>
      <Switch isLarge enabled={enabled} name="this endpoint" change={change} />
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
