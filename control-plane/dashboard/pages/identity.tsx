import { useState } from 'preact/hooks';
import { call, Failure, type Identity, may } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import {
  concurrencyOf,
  concurrencyText,
  limitsOf,
  limitsText,
  namesOf,
  parseObject,
  slugsOf,
} from '../forms/entered-values.ts';
import { ActionForm, FieldError, type FormEntry } from '../forms/forms.tsx';
import { Picker } from '../forms/picker.tsx';
import { Credits, RoleLinks } from '../keys/key-facts.tsx';
import { CreditFields, useCatalogue } from '../keys/key-fields.tsx';
import { KeyState, LastUse, useForeignFound } from '../keys/key-state.tsx';
import { ApiLink } from '../parts/api-name.tsx';
import { Badge } from '../parts/badge.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { Dock } from '../parts/dock.tsx';
import { Fact } from '../parts/fact.tsx';
import { IdentityState, IdentitySwitch } from '../parts/identity-state.tsx';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { More } from '../parts/more.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { LimitList } from '../roles/role-limits.tsx';
import { Meters } from '../usage/allowances.tsx';
import { Usage } from '../usage/usage.tsx';
import { usageOfAll } from '../usage/usage-query.ts';

type Apply = ReturnType<typeof useChange>['applyIdentity'];
const WAY = [['#/identities', 'Customers']] as const;
const PAGE_KEYS = '50';

/** A page for one identity: its state, its meta, the limits that its keys share, and its keys. */
export function IdentityDetail({ idOrExternalId }: { idOrExternalId: string }) {
  const identity = useLoad(() => findIdentity(idOrExternalId), []);
  const externalId = identity.data?.externalId ?? idOrExternalId;
  const [deleting, setDeleting] = useState(false);
  const { applyIdentity, receipts } = useChange(identity.reload);
  if (identity.failure?.code === 'NOT_FOUND') {
    return (
      <Page
        title={externalId}
        way={WAY}
        beside={<Badge kind="warn">no customer yet</Badge>}
        actions={
          may('root.*.create_identity') &&
          may('root.*.update_identity') && <StopButton externalId={externalId} apply={applyIdentity} />
        }
      >
        {may('root.*.create_identity') && <NewIdentity externalId={externalId} onCreated={identity.reload} />}
        <h2>Keys</h2>
        <OwnKeys externalId={externalId} />
      </Page>
    );
  }
  return (
    <Page
      title={externalId}
      way={WAY}
      beside={identity.data && <IdentityState of={identity.data} />}
      actions={
        identity.data && (
          <Actions of={identity.data} apply={applyIdentity} onDelete={() => setDeleting(true)} />
        )
      }
    >
      <Dock>{receipts}</Dock>
      <Loaded of={identity}>
        {(of) => (
          <>
            <Meters of={{ identityId: of.id }} />
            <IdentityFacts of={of} />
            {of.credits && (
              <>
                <h2>Credits</h2>
                <Credits of={of.credits} isShared />
              </>
            )}
            {may('api.*.read_analytics') && (
              <>
                <h2>Verifications</h2>
                <Usage
                  load={async (period) => ({ verifications: await usageOfAll(period, of.externalId) })}
                />
              </>
            )}
            <h2>Keys</h2>
            <OwnKeys key={String(of.enabled)} externalId={externalId} />
            {may('root.*.update_identity') && (
              <>
                <EditRoles key={of.roles.join()} of={of} apply={applyIdentity} />
                <Edit of={of} onSaved={identity.reload} />
                <h2>Set the credits</h2>
                <CreditFields
                  of={of.credits ?? {}}
                  apply={(headline, credits) => applyIdentity(of, headline, { credits })}
                />
              </>
            )}
            {deleting && <DeleteIdentity of={of} onClose={() => setDeleting(false)} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The actions on an identity. */
function Actions(props: { of: Identity; apply: Apply; onDelete: () => void }) {
  return (
    <>
      {may('root.*.update_identity') && <IdentitySwitch of={props.of} apply={props.apply} isLarge />}
      {may('root.*.delete_identity') && (
        <More>
          <button type="button" class="danger" onClick={props.onDelete}>
            Delete customer…
          </button>
        </More>
      )}
    </>
  );
}

/** Finds an identity by its external id, or else by its id, as links from the audit log have it. */
async function findIdentity(idOrExternalId: string): Promise<Identity> {
  try {
    return await call('identities.getIdentity', { externalId: idOrExternalId });
  } catch (error) {
    const isId = /^identity_[0-9a-f]{40}$/.test(idOrExternalId);
    if (!isId || !(error instanceof Failure) || error.code !== 'NOT_FOUND') throw error;
    return call('identities.getIdentity', { identityId: idOrExternalId });
  }
}

/** A button that stops all keys of a customer who has no identity: it creates one and disables it. */
function StopButton(props: { externalId: string; apply: Apply }) {
  const { externalId, apply } = props;
  const { busy, run, problem } = useAction();
  // Stopped by a change of its own, which has a receipt and can be undone.
  const stop = async () => {
    const { identityId } = await call('identities.createIdentity', { externalId });
    await apply({ id: identityId }, `Disabled ${externalId}`, { enabled: false }, { enabled: true });
  };
  return (
    <>
      <button type="button" class="danger" aria-disabled={busy} onClick={() => void run(stop)}>
        Stop all keys of {externalId}
      </button>
      {problem}
    </>
  );
}

function NewIdentity({ externalId, onCreated }: { externalId: string; onCreated: () => void }) {
  const create = async () => {
    await call('identities.createIdentity', { externalId });
    onCreated();
    return undefined;
  };
  return (
    <ActionForm label="New customer" action="Create customer" run={create}>
      <p class="wide">
        There is no customer <bdi>{externalId}</bdi>. With it, all of its keys are stopped together.
      </p>
    </ActionForm>
  );
}

/** The fields of an identity. */
function IdentityFacts({ of }: { of: Identity }) {
  return (
    <dl class="panel">
      <Fact name="Id">
        <CopyId id={of.id} of="the identity" />
      </Fact>
      <Fact name="Roles">
        <RoleLinks names={of.roles} />
      </Fact>
      <Fact name="Meta">
        <code>{JSON.stringify(of.meta)}</code>
      </Fact>
      <Fact name="Limits">
        <LimitList of={of} />
      </Fact>
      <Fact name="APIs">
        {of.apiIds?.map((apiId) => (
          <>
            <ApiLink id={apiId} />{' '}
          </>
        )) ?? 'all'}
      </Fact>
    </dl>
  );
}

/** The form for the roles of an identity, which make its plan. */
function EditRoles({ of, apply }: { of: Identity; apply: Apply }) {
  const { roles } = useCatalogue();
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const patch = { roles: namesOf(entry('roles')), ifSequence };
    await apply(of, `Changed the roles of ${of.externalId}`, patch, { roles: of.roles });
    return undefined;
  };
  return (
    <>
      <h2>Roles</h2>
      <ActionForm
        sequence={of.sequence}
        label="Change the roles"
        action="Set roles"
        run={save}
        isMain={false}
      >
        <label class="field wide" for="identity-roles">
          Roles <small>whose permissions and limits all keys of it have, such as those of a plan</small>
          <Picker
            id="identity-roles"
            name="roles"
            values={of.roles}
            options={roles}
            separator=", "
            isClosed
          />
          <FieldError name="roles" />
        </label>
      </ActionForm>
    </>
  );
}

function Edit({ of, onSaved }: { of: Identity; onSaved: () => void }) {
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const meta = parseObject('meta', entry('meta') || '{}');
    const ratelimits = limitsOf('ratelimits', entry('ratelimits'));
    const concurrency = concurrencyOf('concurrency', entry('concurrency'));
    const apiIds = slugsOf(entry('apiIds'));
    const fields = { meta, ratelimits, concurrency, apiIds: apiIds.length > 0 ? apiIds : null, ifSequence };
    const { propagation } = await call('identities.updateIdentity', { identityId: of.id, ...fields }).finally(
      onSaved,
    );
    return { sequence: propagation.sequence };
  };
  return (
    <>
      <h2>Change</h2>
      <ActionForm sequence={of.sequence} label="Change the customer" action="Save" run={save}>
        <label class="wide">
          Meta <small>a JSON object; every verification returns it</small>
          <textarea name="meta" rows={4} spellcheck={false} defaultValue={JSON.stringify(of.meta, null, 2)} />
        </label>
        <label class="wide">
          Rate limits <small>that all keys share, one a line, such as tokens 5000/1d</small>
          <textarea name="ratelimits" rows={2} spellcheck={false} defaultValue={limitsText(of.ratelimits)} />
        </label>
        <label class="wide">
          Concurrency limits <small>that all keys share, one a line, such as jobs 3</small>
          <textarea
            name="concurrency"
            rows={2}
            spellcheck={false}
            defaultValue={concurrencyText(of.concurrency)}
          />
        </label>
        <label class="wide">
          APIs <small>in which it holds, such as billing shop; empty = all</small>
          <input name="apiIds" spellcheck={false} autocomplete="off" defaultValue={of.apiIds?.join(' ')} />
        </label>
      </ActionForm>
    </>
  );
}

function DeleteIdentity({ of, onClose }: { of: Identity; onClose: () => void }) {
  return (
    <Confirm
      title="Delete this customer?"
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

/** The keys of an identity in all APIs that this root key may read, page by page. */
function OwnKeys({ externalId }: { externalId: string }) {
  const pages = usePages(Number(PAGE_KEYS));
  const keys = useLoad(
    () => call('identities.listKeys', { externalId, limit: PAGE_KEYS, cursor: pages.cursor }),
    [externalId, pages.cursor],
  );
  const isFound = useForeignFound(keys.data?.keys);
  return (
    <Loaded of={keys}>
      {(page) => (
        <>
          <Table
            label="Keys"
            rows={page.keys}
            id={({ keyId }) => keyId}
            empty={
              page.cursor
                ? 'None so far. “Next” searches further APIs.'
                : 'No keys of this customer that this root key may see.'
            }
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
              { title: 'API', cell: ({ apiId }) => <ApiLink id={apiId} /> },
              {
                title: 'State',
                narrow: 'beside',
                cell: (key) => <KeyState of={key} isFound={isFound} />,
              },
              {
                title: 'Last accepted',
                cell: (key) => <LastUse of={key} />,
              },
            ]}
          />
          {pages.pager(page.cursor, page.keys.length)}
        </>
      )}
    </Loaded>
  );
}
