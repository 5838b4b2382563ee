import { call, type Identity, may, serverNow } from '../api/client.ts';
import { counted } from '../parts/counted.ts';
import { Confirm } from '../parts/dialogs.tsx';
import { useAction, useLoad } from '../parts/loading.tsx';
import { HOUR_MS } from '../usage/periods.tsx';

type Apply = (identity: Identity, headline: string, patch: object, undo: object) => Promise<unknown>;

/**
 * The button that stops a customer, or lets it in again.
 * @param props.onStop opens `StopCustomer`, which a menu that closes must not contain
 */
export function CustomerSwitch({ of, apply, onStop }: { of: Identity; apply: Apply; onStop: () => void }) {
  const { busy, run, problem } = useAction();
  const enable = () => apply(of, `Enabled ${of.externalId}`, { enabled: true }, { enabled: false });
  return (
    <>
      <button
        type="button"
        class={of.enabled ? 'danger' : ''}
        aria-disabled={busy}
        aria-label={`${of.enabled ? 'Stop' : 'Enable'} customer ${of.externalId}`}
        onClick={() => (of.enabled ? onStop() : void run(enable))}
      >
        {of.enabled ? 'Stop customer' : 'Enable customer'}
      </button>
      {problem}
    </>
  );
}

/** Asks, with numbers, before a customer is stopped. */
export function StopCustomer({ of, apply, onClose }: { of: Identity; apply: Apply; onClose: () => void }) {
  const { externalId } = of;
  const keys = useLoad(async () => (await call('identities.getAllowances', { externalId })).keys, []).data;
  const perSecond = useLoad(() => ratePerSecond(externalId), []).data;
  return (
    <Confirm
      title={`Stop ${externalId}?`}
      action="Stop customer"
      run={async () => {
        await apply(of, `Stopped ${externalId}`, { enabled: false }, { enabled: true });
        return {};
      }}
      onDone={onClose}
      onClose={onClose}
    >
      This stops {keys === undefined ? 'all its keys' : counted(keys, 'key')}
      {perSecond !== undefined && `, ${rateText(perSecond)}`}, in all APIs. It can be undone.
    </Confirm>
  );
}

/** The requests of this hour and the last that were allowed, by the second; undefined = not known. */
async function ratePerSecond(externalId: string): Promise<number | undefined> {
  if (!may('api.*.read_analytics')) return undefined;
  const end = serverNow();
  const start = Math.floor(end / HOUR_MS - 1) * HOUR_MS;
  const inHours = { granularity: 'hour', start: String(start), end: String(Math.floor(end)) };
  const { rows } = await call('usage.query', { externalId, code: 'VALID', ...inHours });
  return (rows[0]?.count ?? 0) / ((end - start) / 1000);
}

const rateText = (perSecond: number) =>
  perSecond === 0
    ? 'none of which was used in the last hour'
    : perSecond < 1
      ? 'less than one request a second'
      : `about ${counted(Math.round(perSecond), 'request')} a second`;
