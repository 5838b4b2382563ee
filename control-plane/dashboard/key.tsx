import { useState } from 'preact/hooks';
import type { UsageField } from '#shared/usage.ts';
import { call, type Key } from './api.ts';
import { type Apply, useChange } from './change.tsx';
import { Bars } from './charts.tsx';
import { Confirm } from './dialogs.tsx';
import { ActionForm, type Entered } from './forms.tsx';
import { enteredOf, KeyFields } from './key-fields.tsx';
import { KeyState, KeySwitch } from './keys.tsx';
import { Loaded, useLoad } from './loading.tsx';
import { Page, Time } from './parts.tsx';

/** One key: what is known of it, changing it, how it is used, deleting it. */
export function KeyDetail({ keyId }: { keyId: string }) {
  const key = useLoad(() => call('keys.getKey', { keyId }), []);
  const { apply, panel } = useChange(key.again);
  const [deleting, setDeleting] = useState(false);
  return (
    <Page title={key.data?.name ?? `Key ${keyId}`}>
      <Loaded of={key}>
        {(of) => (
          <>
            <dl class="panel">
              <Fact name="State">
                <KeyState of={of} /> <KeySwitch of={of} apply={apply} />
              </Fact>
              <Fact name="API">
                <a href={`#/apis/${of.apiId}`}>{of.apiId}</a>
              </Fact>
              <Fact name="Id">
                <code>{of.keyId}</code>
              </Fact>
              <Fact name="Starts with">
                <code>{of.start}…</code>
              </Fact>
              <Fact name="Created">
                <Time at={of.createdAt} />
              </Fact>
              <Fact name="Changed">
                <Time at={of.updatedAt} none="never" />
              </Fact>
              <Fact name="Expires">
                <Time at={of.expires} none="never" />
              </Fact>
              <Fact name="Last used">
                <Time at={of.lastUsedAt} none="not known to have been" />
              </Fact>
            </dl>
            {panel}
            <h2>Use</h2>
            <Usage keyId={keyId} />
            <h2>Change</h2>
            <Edit of={of} apply={apply} />
            <p class="row">
              <a href={`#/audit/${keyId}`}>Audit log of this key</a>
              <button type="button" class="danger" onClick={() => setDeleting(true)}>
                Delete key…
              </button>
            </p>
            {deleting && (
              <Confirm
                title="Delete this key?"
                action="Delete for good"
                run={() => call('keys.deleteKey', { keyId })}
                onDone={() => {
                  location.hash = `#/apis/${of.apiId}`;
                }}
                onClose={() => setDeleting(false)}
              >
                <code>{of.start}…</code> {of.name} is refused at every verifier from then on. This cannot be
                undone; disabling can.
              </Confirm>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Edit({ of, apply }: { of: Key; apply: Apply }) {
  const [said, setSaid] = useState('');
  const save = async (entered: Entered) => {
    const patch = enteredOf(entered, of);
    const nothing = Object.keys(patch).length === 0;
    setSaid(nothing ? 'Nothing differs.' : '');
    if (!nothing) await apply(of, 'Saved', patch);
    return undefined;
  };
  return (
    <ActionForm label="Change the key" action="Save" run={save} said={said}>
      <KeyFields of={of} />
    </ActionForm>
  );
}

const REFRESH_MS = 30_000;
const VERDICTS = {
  success: { name: 'valid', tone: 'good' },
  disabled: { name: 'disabled', tone: 'bad' },
  expired: { name: 'expired', tone: 'warn' },
  forbidden: { name: 'of another API', tone: 'other' },
} satisfies Record<UsageField, { name: string; tone: string }>;
const FIELDS = Object.keys(VERDICTS) as UsageField[];

function Usage({ keyId }: { keyId: string }) {
  const [granularity, setGranularity] = useState<'hour' | 'day'>('hour');
  const usage = useLoad(
    () => call('keys.getVerifications', { keyId, granularity }),
    [granularity],
    REFRESH_MS,
  );
  const titleOf = new Intl.DateTimeFormat(
    undefined,
    granularity === 'hour'
      ? { weekday: 'short', hour: '2-digit', minute: '2-digit' }
      : { dateStyle: 'medium', timeZone: 'UTC' },
  );
  return (
    <div class="panel">
      <fieldset class="row">
        <legend>Verifications, by the</legend>
        {(['hour', 'day'] as const).map((value) => (
          <label class="check" key={value}>
            <input
              type="radio"
              name="granularity"
              checked={granularity === value}
              onChange={() => setGranularity(value)}
            />{' '}
            {value}
          </label>
        ))}
      </fieldset>
      <Loaded of={usage}>
        {({ verifications }) =>
          verifications.every((at) => FIELDS.every((field) => at[field] === 0)) ? (
            <p class="quiet">No verification was reported yet; verifiers report once a minute.</p>
          ) : (
            <Bars
              label={`Verdicts by the ${granularity}`}
              unit="×"
              series={Object.values(VERDICTS)}
              points={verifications.map((at) => ({
                title: titleOf.format(at.time),
                values: FIELDS.map((field) => at[field]),
              }))}
            />
          )
        }
      </Loaded>
    </div>
  );
}
