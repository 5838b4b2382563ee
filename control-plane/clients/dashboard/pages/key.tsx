import { useState } from 'preact/hooks';
import { call, type Key, may } from '../api/client.ts';
import { type Apply, useChange } from '../changes/change.tsx';
import { ActionForm, type FormEntry } from '../forms/forms.tsx';
import { Holders } from '../keys/holders.tsx';
import { Credits, KeyFacts } from '../keys/key-facts.tsx';
import { CreditFields, enteredOf, KeyFields } from '../keys/key-fields.tsx';
import { History, UnderWay, useHistory } from '../keys/key-history.tsx';
import { KeyState, KeySwitch, useForeignFound } from '../keys/key-state.tsx';
import { ExplainedRefusals } from '../keys/refusals.tsx';
import { RotateDialog } from '../keys/rotate.tsx';
import { ApiName } from '../parts/api-name.tsx';
import { counted } from '../parts/counted.ts';
import { Confirm } from '../parts/dialogs.tsx';
import { Dock } from '../parts/dock.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Managed } from '../parts/managed.tsx';
import { More } from '../parts/more.tsx';
import { Page } from '../parts/page.tsx';
import { type Tab, Tabs } from '../parts/tabs.tsx';
import { Time } from '../parts/time.tsx';
import { Meters } from '../usage/allowances.tsx';
import { Usage } from '../usage/usage.tsx';

/** Credits are spent while somebody looks. */
const REFRESH_MS = 5000;

/** A page for one key: its fields, usage and history, with forms to change, rotate and delete it. */
export function KeyDetail({ keyId }: { keyId: string }) {
  const key = useLoad(() => call('keys.getKey', { keyId }), [], REFRESH_MS);
  const isFound = useForeignFound(key.data && [key.data]);
  const { apply, addCredits, receipts } = useChange(key.reload);
  const events = useHistory(keyId, key.data);
  if (key.failure?.code === 'NOT_FOUND' || key.failure?.code === 'BAD_REQUEST')
    return <NoSuchKey keyId={keyId} />;
  const of = key.data;
  return (
    <Page
      title={of ? (of.name ?? `Key ${keyId}`) : '…'}
      way={[
        ['#/apis', 'APIs'],
        ...(of ? [[`#/apis/${of.apiId}`, <ApiName key="api" id={of.apiId} />] as const] : []),
      ]}
      beside={of && <KeyState of={of} isFound={isFound} />}
      actions={of && <Actions of={of} apply={apply} />}
    >
      {of && <Managed of={of} />}
      {of?.leaked && <Leaked of={of} apply={apply} />}
      <Dock>{receipts}</Dock>
      {receipts.length === 0 && <UnderWay keyId={keyId} events={events.data?.events} />}
      <Loaded of={key}>
        {(of) => <Tabs label="Parts of the key" tabs={tabsOf(of, apply, addCredits, events)} />}
      </Loaded>
    </Page>
  );
}

/** Says that the secret of a key was found in public, and what to do. */
function Leaked({ of, apply }: { of: Key; apply: Apply }) {
  const [rotating, setRotating] = useState(false);
  const { at, url } = of.leaked ?? {};
  return (
    <section class="panel alarm" aria-label="Leak">
      <p>
        <strong>Its secret was found in public</strong> <Time at={at} />
        {of.enabled ? ' and it is still accepted.' : '; it is disabled.'}
        {url !== undefined && <> At {/^https:\/\//.test(url) ? <a href={url}>{url}</a> : <bdi>{url}</bdi>}</>}
      </p>
      {mayRotate(of) && (
        <div class="row">
          {of.enabled && <KeySwitch of={of} apply={apply} />}
          <button type="button" onClick={() => setRotating(true)}>
            Replace it…
          </button>
        </div>
      )}
      {rotating && <RotateDialog of={of} onClose={() => setRotating(false)} />}
    </section>
  );
}

const mayRotate = ({ apiId, rerolledTo }: Key) =>
  rerolledTo === undefined && may(`api.${apiId}.update_key`) && may(`api.${apiId}.create_key`);

/** The parts of the page that the user may see. */
function tabsOf(
  of: Key,
  apply: Apply,
  add: ReturnType<typeof useChange>['addCredits'],
  events: ReturnType<typeof useHistory>,
): readonly Tab[] {
  const tabs: readonly (Tab & { readonly permission?: string })[] = [
    { id: 'overview', title: 'Overview', content: () => <KeyOverview of={of} apply={apply} /> },
    {
      id: 'access',
      title: 'Settings',
      permission: `api.${of.apiId}.update_key`,
      content: () => (
        <>
          <Edit of={of} apply={apply} />
          <h2>Credits</h2>
          <CreditFields
            of={of}
            apply={(...change) => apply(of, ...change)}
            add={(value) => add(of, `Added ${counted(value, 'credit')}`, value)}
          />
        </>
      ),
    },
    {
      id: 'history',
      title: 'History',
      permission: 'root.*.read_audit',
      content: () => <History keyId={of.keyId} events={events} />,
    },
    {
      id: 'verifiers',
      title: 'Verifiers',
      permission: 'root.*.read_fleet',
      content: () => <Holders apiId={of.apiId} />,
    },
  ];
  return tabs.filter(({ permission }) => permission === undefined || may(permission));
}

function KeyOverview({ of, apply }: { of: Key; apply: Apply }) {
  const { apiId, keyId } = of;
  const credits = of.remaining === undefined ? of.identity?.credits : of;
  return (
    <>
      <Meters of={{ keyId }} />
      <div class="with-rail">
        <aside class="rail" aria-label="Facts">
          <KeyFacts of={of} />
        </aside>
        <div>
          {may(`api.${apiId}.read_analytics`) && (
            <Usage
              title="Requests"
              isLive
              load={(period) => call('keys.getVerifications', { keyId, ...period })}
            />
          )}
          {credits && (
            <>
              <h2>Credits</h2>
              <Credits of={credits} isShared={of.remaining === undefined} />
            </>
          )}
          <ExplainedRefusals of={of} apply={apply} />
        </div>
      </div>
    </>
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

/** The actions on a key, with their dialogs. */
function Actions({ of, apply }: { of: Key; apply: Apply }) {
  const [rotating, setRotating] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const mayUpdate = may(`api.${of.apiId}.update_key`);
  return (
    <>
      {may(`api.${of.apiId}.delete_key`) && (
        <More>
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            Delete key…
          </button>
        </More>
      )}
      {mayRotate(of) && (
        <button type="button" onClick={() => setRotating(true)}>
          Rotate key…
        </button>
      )}
      {mayUpdate && <KeySwitch of={of} apply={apply} />}
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

/** The form that changes a key. */
function Edit({ of, apply }: { of: Key; apply: Apply }) {
  const [message, setMessage] = useState('');
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const patch = enteredOf(entry, of);
    const isEmpty = Object.keys(patch).length === 0;
    setMessage(isEmpty ? 'Nothing differs.' : '');
    if (isEmpty) return undefined;
    const sequence = await apply(of, 'Saved', { ...patch, ifSequence });
    return sequence === undefined ? undefined : { sequence };
  };
  return (
    <ActionForm sequence={of.sequence} label="Change the key" action="Save" run={save} message={message}>
      <KeyFields of={of} />
    </ActionForm>
  );
}
