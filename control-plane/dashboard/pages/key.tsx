import { useEffect, useRef, useState } from 'preact/hooks';
import { type AuditEvent, call, type Key, listEvents, listVerifiers, may } from '../api/client.ts';
import { type Apply, useChange } from '../changes/change.tsx';
import { Explain } from '../keys/explain.tsx';
import { Credits, KeyFacts } from '../keys/key-facts.tsx';
import { CreditFields, enteredOf, KeyFields } from '../keys/key-fields.tsx';
import { KeyState, KeySwitch, useForeignFound } from '../keys/key-state.tsx';
import { Refusals } from '../keys/refusals.tsx';
import { RotateDialog } from '../keys/rotate.tsx';
import { Badge } from '../parts/badge.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { Events, useNames } from '../parts/events.tsx';
import { ActionForm, type FormEntry } from '../parts/forms.tsx';
import { type Load, Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Usage } from '../parts/usage.tsx';

/** A page for one key: its fields, usage and history, with forms to change, rotate and delete it. */
export function KeyDetail({ keyId }: { keyId: string }) {
  const key = useLoad(() => call('keys.getKey', { keyId }), []);
  const isFound = useForeignFound(key.data && [key.data]);
  const { apply, panelOf } = useChange(key.reload);
  const events = useLoad(
    async () =>
      !may('root.*.read_audit')
        ? { events: [], isCut: false }
        : listEvents({ keyId, since: key.data?.createdAt && key.data.createdAt - CLOCK_MS_OFF_MAX }),
    [key.data?.createdAt, key.data?.updatedAt],
  );
  if (key.failure?.code === 'NOT_FOUND' || key.failure?.code === 'BAD_REQUEST')
    return <NoSuchKey keyId={keyId} />;
  return (
    <Page
      title={key.data?.name ?? `Key ${keyId}`}
      way={[['#/apis', 'APIs'], ...(key.data ? [[`#/apis/${key.data.apiId}`, key.data.apiId] as const] : [])]}
      beside={
        key.data && (
          <>
            <KeyState of={key.data} isFound={isFound} />{' '}
            {may(`api.${key.data.apiId}.update_key`) && <KeySwitch of={key.data} apply={apply} />}
          </>
        )
      }
    >
      {panelOf(keyId) ?? <UnderWay keyId={keyId} events={events.data?.events} />}
      <Loaded of={key}>
        {(of) => (
          <>
            <KeyFacts of={of} />
            {may(`api.${of.apiId}.read_analytics`) && (
              <>
                <h2>Verifications</h2>
                <Usage load={(granularity) => call('keys.getVerifications', { keyId, granularity })} />
              </>
            )}
            <h2>Last refusals</h2>
            <Refusals keyId={keyId} />
            {may(`api.${of.apiId}.explain_key`) && (
              <>
                <h2>Explain</h2>
                <Explain of={of} />
              </>
            )}
            <h2>Credits</h2>
            <Credits of={of} />
            {may(`api.${of.apiId}.update_key`) && <Changes of={of} apply={apply} />}
            {may('root.*.read_fleet') && <Holders apiId={of.apiId} />}
            {may('root.*.read_audit') && <History keyId={keyId} events={events} />}
            <Ending of={of} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function NoSuchKey({ keyId }: { keyId: string }) {
  return (
    <Page title="No such key" way={[['#/apis', 'APIs']]}>
      <div class="quiet empty">
        There is no key with the id <code>{keyId}</code>, or none that this root key may see. What happened to
        it is in the <a href={`#/audit/${keyId}`}>audit log</a>.
        <p>
          <a href="#/apis">To the APIs</a>
        </p>
      </div>
    </Page>
  );
}

/** The buttons that rotate a key and delete it, with their dialogs. */
function Ending({ of }: { of: Key }) {
  const [rotating, setRotating] = useState(false);
  const mayRotate = may(`api.${of.apiId}.update_key`) && may(`api.${of.apiId}.create_key`);
  const [deleting, setDeleting] = useState(false);
  return (
    <>
      <p class="row">
        {of.rerolledTo === undefined && mayRotate && (
          <button type="button" onClick={() => setRotating(true)}>
            Rotate key…
          </button>
        )}
        {may(`api.${of.apiId}.delete_key`) && (
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            Delete key…
          </button>
        )}
      </p>
      {rotating && <RotateDialog of={of} onClose={() => setRotating(false)} />}
      {deleting && (
        <Confirm
          title="Delete this key?"
          action="Delete for good"
          run={() => call('keys.deleteKey', { keyId: of.keyId })}
          onDone={() => {
            location.hash = `#/apis/${of.apiId}`;
          }}
          onClose={() => setDeleting(false)}
        >
          <code>{of.start}…</code> {of.name} is refused at every verifier from then on. This cannot be undone;
          disabling can.
        </Confirm>
      )}
    </>
  );
}

/** The forms that change a key. */
function Changes({ of, apply }: { of: Key; apply: Apply }) {
  return (
    <>
      <CreditFields of={of} apply={apply} />
      <h2>Change</h2>
      <Edit of={of} apply={apply} />
    </>
  );
}

function Edit({ of, apply }: { of: Key; apply: Apply }) {
  const [message, setMessage] = useState('');
  const save = async (entry: FormEntry) => {
    const patch = enteredOf(entry, of);
    const isEmpty = Object.keys(patch).length === 0;
    setMessage(isEmpty ? 'Nothing differs.' : '');
    if (!isEmpty) await apply(of, 'Saved', patch);
    return undefined;
  };
  return (
    <ActionForm label="Change the key" action="Save" run={save} message={message}>
      <KeyFields of={of} />
    </ActionForm>
  );
}

/** Clocks of control planes and Redis may differ by so much. */
const CLOCK_MS_OFF_MAX = 3_600_000;
const REFRESH_MS = 30_000;

/** The latest events of a key. */
function History(props: { keyId: string; events: Load<Awaited<ReturnType<typeof listEvents>>> }) {
  const names = useNames();
  return (
    <Loaded of={props.events}>
      {(page) => (
        <>
          <div class="title">
            <h2>History</h2>
            <a href={`#/audit/${props.keyId}`}>Audit log of this key</a>
          </div>
          <Events
            events={page.events}
            names={names}
            empty={page.isCut ? 'None among the latest events.' : 'No events of this key are kept.'}
          />
          {page.isCut && <p class="quiet">Earlier events are in the audit log of this key.</p>}
        </>
      )}
    </Loaded>
  );
}

const POLL_MS = 500;

/** The latest change, if it is not complete and was not made on this page since it was loaded. */
function UnderWay({ keyId, events = [] }: { keyId: string; events?: readonly AuditEvent[] | undefined }) {
  const sequence = events.find((event) => event.sequence !== undefined)?.sequence;
  const wasPending = useRef(false);
  const loadKey = async () => {
    if (sequence === undefined) return undefined;
    const { propagation } = await call('keys.getPropagation', { keyId, sequence });
    wasPending.current ||= propagation.state === 'pending';
    return propagation;
  };
  const [isPending, setPending] = useState(false);
  const { data, failure } = useLoad(loadKey, [sequence, isPending], isPending ? POLL_MS : 0);
  const isLost = failure !== undefined && !failure.passes;
  useEffect(() => setPending(data?.state === 'pending' && !isLost), [data, isLost]);
  if (!data || isLost || !wasPending.current) return null;
  const late = data.laggards?.length ?? data.verifiers;
  return (
    <section class={`panel fence ${isPending ? '' : 'done'}`} aria-label="How far the last change has come">
      <span role="status">
        {isPending
          ? `Change ${data.sequence} is not complete yet. Waiting for ${late} of ${data.verifiers} verifiers.`
          : `Change ${data.sequence} is complete: no verifier answers from the earlier state.`}
      </span>
    </section>
  );
}

/** The verifiers that answer from memory for keys of this API, and how up to date each is. */
function Holders({ apiId }: { apiId: string }) {
  const verifiers = useLoad(listVerifiers, [], REFRESH_MS);
  return (
    <Loaded of={verifiers}>
      {(fleet) => {
        const holders = fleet.flatMap(({ id, host, apis }) =>
          apis.filter((api) => api.apiId === apiId).map((api) => ({ ...api, id, host })),
        );
        const heading = <h2>Verifiers that have its API</h2>;
        return holders.length === 0 ? (
          <>
            {heading}
            <p class="quiet">None yet: the first verification of a key of this API brings it there.</p>
          </>
        ) : (
          <>
            {heading}
            <div class="panel">
              <ul class="followers">
                {holders.map(({ id, host, state, lag, position }) => (
                  <li key={id}>
                    {host} <code>{id.slice(-6)}</code>{' '}
                    <Badge kind={state === 'live' && lag === 0 ? 'good' : 'warn'}>
                      {state === 'live' ? (lag === 0 ? 'up to date' : `${lag} changes behind`) : state}
                    </Badge>{' '}
                    <small>at change {position}</small>
                  </li>
                ))}
              </ul>
            </div>
          </>
        );
      }}
    </Loaded>
  );
}
