import { useState } from 'preact/hooks';
import { call, type Identity, type Key } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { KeyState } from '../keys/key-state.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { limitsOf, limitsText, parseObject, slugsOf } from '../parts/entered-values.ts';
import { ActionForm, type FormEntry } from '../parts/forms.tsx';
import { IdentityState, IdentitySwitch } from '../parts/identity-state.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

const WAY = [['#/identities', 'Identities']] as const;
/** Maximum number of APIs whose keys of an identity are listed. */
const APIS_MAX = 100;

/** A page for one identity: its state, its meta, the limits that its keys share, and its keys. */
export function IdentityDetail({ externalId }: { externalId: string }) {
  const identity = useLoad(() => call('identities.getIdentity', { externalId }), []);
  const keys = useLoad(() => keysOf(externalId), []);
  const [deleting, setDeleting] = useState(false);
  const { applyIdentity, panelOf } = useChange(identity.reload);
  if (identity.failure?.code === 'NOT_FOUND') {
    return (
      <Page title="No identity yet" way={WAY}>
        <NewIdentity externalId={externalId} onCreated={identity.reload} />
        <h2>Keys</h2>
        <OwnKeys keys={keys} />
      </Page>
    );
  }
  return (
    <Page
      title={externalId}
      way={WAY}
      beside={
        identity.data && (
          <>
            <IdentityState of={identity.data} /> <IdentitySwitch of={identity.data} apply={applyIdentity} />
          </>
        )
      }
    >
      {identity.data && panelOf(identity.data.id)}
      <Loaded of={identity}>
        {(of) => (
          <>
            <p>
              <CopyId id={of.id} of="the identity" />
            </p>
            <h2>Keys</h2>
            <OwnKeys keys={keys} />
            <h2>Change</h2>
            <Edit of={of} onSaved={identity.reload} />
            <p class="row">
              <button type="button" class="danger" onClick={() => setDeleting(true)}>
                Delete identity…
              </button>
            </p>
            {deleting && <DeleteIdentity of={of} onClose={() => setDeleting(false)} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function NewIdentity({ externalId, onCreated }: { externalId: string; onCreated: () => void }) {
  const create = async () => {
    await call('identities.createIdentity', { externalId });
    onCreated();
    return undefined;
  };
  return (
    <ActionForm label="New identity" action="Create identity" run={create}>
      <p class="wide">
        There is no identity of <bdi>{externalId}</bdi>. With one, all of its keys are stopped together.
      </p>
    </ActionForm>
  );
}

function Edit({ of, onSaved }: { of: Identity; onSaved: () => void }) {
  const save = async (entry: FormEntry) => {
    const meta = parseObject('meta', entry('meta') || '{}');
    const ratelimits = limitsOf('ratelimits', entry('ratelimits'));
    const apiIds = slugsOf(entry('apiIds'));
    const fields = { meta, ratelimits, apiIds: apiIds.length > 0 ? apiIds : null };
    await call('identities.updateIdentity', { identityId: of.id, ...fields });
    onSaved();
    return undefined;
  };
  return (
    <ActionForm label="Change the identity" action="Save" run={save}>
      <label class="wide">
        Meta <small>a JSON object; every verification returns it</small>
        <textarea name="meta" rows={4} spellcheck={false} defaultValue={JSON.stringify(of.meta, null, 2)} />
      </label>
      <label class="wide">
        Rate limits <small>that all keys share, one a line, such as tokens 5000/1d</small>
        <textarea name="ratelimits" rows={2} spellcheck={false} defaultValue={limitsText(of.ratelimits)} />
      </label>
      <label class="wide">
        APIs <small>in which it holds, such as billing shop; empty = all</small>
        <input name="apiIds" spellcheck={false} autocomplete="off" defaultValue={of.apiIds?.join(' ')} />
      </label>
    </ActionForm>
  );
}

function DeleteIdentity({ of, onClose }: { of: Identity; onClose: () => void }) {
  return (
    <Confirm
      title="Delete this identity?"
      action="Delete for good"
      run={() => call('identities.deleteIdentity', { identityId: of.id })}
      onDone={() => {
        location.hash = '#/identities';
      }}
      onClose={onClose}
    >
      The keys of <bdi>{of.externalId}</bdi> stay, and are no longer stopped together. One that is stopped
      cannot be deleted.
    </Confirm>
  );
}

/** Returns the keys of an identity in the APIs that this root key may see. */
async function keysOf(externalId: string): Promise<Key[]> {
  const { apis } = await call('apis.listApis', { limit: String(APIS_MAX) });
  const pages = await Promise.all(apis.map(({ id: apiId }) => call('apis.listKeys', { apiId, externalId })));
  return pages.flatMap((page) => page.keys);
}

function OwnKeys({ keys }: { keys: ReturnType<typeof useLoad<Key[]>> }) {
  return (
    <Loaded of={keys}>
      {(list) => (
        <Table
          label="Keys"
          rows={list}
          id={({ keyId }) => keyId}
          empty="No keys of this identity that this root key may see."
          columns={[
            {
              title: 'Key',
              narrow: 'first',
              cell: ({ keyId, name }) => (
                <a href={`#/keys/${keyId}`}>
                  <bdi>{name ?? keyId}</bdi>
                </a>
              ),
            },
            { title: 'API', cell: ({ apiId }) => <a href={`#/apis/${apiId}`}>{apiId}</a> },
            { title: 'By itself', narrow: 'beside', cell: (key) => <KeyState of={key} /> },
            {
              title: 'Last use',
              cell: ({ lastUsedAt }) => <Time at={lastUsedAt} placeholder="never seen" />,
            },
          ]}
        />
      )}
    </Loaded>
  );
}
