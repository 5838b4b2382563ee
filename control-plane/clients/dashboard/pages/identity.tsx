import { useState } from 'preact/hooks';
import { call, Failure, type Identity, listEvents, may } from '../api/client.ts';
import { Events, useNames } from '../audit/events.tsx';
import { useChange } from '../changes/change.tsx';
import { ChangePlan } from '../customers/change-plan.tsx';
import { CustomerSwitch, StopCustomer } from '../customers/stop-customer.tsx';
import { limitsOf, namesOf, parseObject, slugsOf } from '../forms/entered-values.ts';
import { ActionForm, FieldError, type FormEntry } from '../forms/forms.tsx';
import { LimitRows } from '../forms/limit-rows.tsx';
import { Picker } from '../forms/picker.tsx';
import { Credits, RoleLinks } from '../keys/key-facts.tsx';
import { AddCreditsForm, CreditFields, useCatalogue } from '../keys/key-fields.tsx';
import { KeyState, LastUse, useForeignFound } from '../keys/key-state.tsx';
import { ApiLink } from '../parts/api-name.tsx';
import { Badge } from '../parts/badge.tsx';
import { CopyId } from '../parts/copy-id.tsx';
import { counted } from '../parts/counted.ts';
import { Confirm, Dialog } from '../parts/dialogs.tsx';
import { Dock } from '../parts/dock.tsx';
import { Fact } from '../parts/fact.tsx';
import { IdentityState } from '../parts/identity-state.tsx';
import { useKeyNames } from '../parts/key-names.ts';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { Managed } from '../parts/managed.tsx';
import { More } from '../parts/more.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { type Tab, Tabs } from '../parts/tabs.tsx';
import { LimitList } from '../roles/role-limits.tsx';
import { Meters } from '../usage/allowances.tsx';
import { Usage } from '../usage/usage.tsx';
import { type UsagePeriod, usageByKey, usageOfAll } from '../usage/usage-query.ts';

type Apply = ReturnType<typeof useChange>['applyIdentity'];
const WAY = [['#/identities', 'Customers']] as const;
const PAGE_KEYS = '50';
const BUSIEST_SHOWN = 5;
/** Credits are spent while somebody looks. */
const REFRESH_MS = 5000;

/** A page for one identity: how much it uses, its keys, its plan and limits, its settings and its history. */
export function IdentityDetail({ idOrExternalId }: { idOrExternalId: string }) {
  const identity = useLoad(() => findIdentity(idOrExternalId), [], REFRESH_MS);
  const externalId = identity.data?.externalId ?? idOrExternalId;
  const { applyIdentity, addCredits, receipts } = useChange(identity.reload);
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
      actions={identity.data && <Actions of={identity.data} apply={applyIdentity} add={addCredits} />}
    >
      {identity.data && <Managed of={identity.data} />}
      <Dock>{receipts}</Dock>
      <Loaded of={identity}>
        {(of) => (
          <Tabs label="Parts of the customer" tabs={tabsOf(of, applyIdentity, addCredits, identity.reload)} />
        )}
      </Loaded>
    </Page>
  );
}

/** The parts of the page that the user may see. */
function tabsOf(of: Identity, apply: Apply, add: AddCreditsTo, reload: () => void): readonly Tab[] {
  const tabs: readonly (Tab & { readonly permission?: string })[] = [
    { id: 'usage', title: 'Usage', content: () => <CustomerUsage of={of} /> },
    {
      id: 'keys',
      title: 'Keys',
      content: () => <OwnKeys key={String(of.enabled)} externalId={of.externalId} />,
    },
    {
      id: 'limits',
      title: 'Plan & limits',
      permission: 'root.*.update_identity',
      content: () => (
        <>
          <EditRoles key={of.roles.join()} of={of} apply={apply} />
          <EditLimits of={of} apply={apply} />
          <h2>Credits</h2>
          {of.credits && <Credits of={of.credits} isShared />}
          <CreditFields
            of={of.credits ?? {}}
            apply={(headline, credits) => apply(of, headline, { credits })}
            add={(value) => addTo(of, add, value)}
          />
        </>
      ),
    },
    {
      id: 'settings',
      title: 'Settings',
      permission: 'root.*.update_identity',
      content: () => <Edit of={of} onSaved={reload} />,
    },
    {
      id: 'history',
      title: 'History',
      permission: 'root.*.read_audit',
      content: () => <IdentityHistory of={of} />,
    },
  ];
  return tabs.filter(({ permission }) => permission === undefined || may(permission));
}

function CustomerUsage({ of }: { of: Identity }) {
  return (
    <>
      <Meters of={{ identityId: of.id }} />
      <div class="with-rail">
        <aside class="rail" aria-label="Facts">
          <IdentityFacts of={of} />
        </aside>
        {may('api.*.read_analytics') && (
          <div>
            <Usage
              title="Requests"
              load={async (period) => ({ verifications: await usageOfAll(period, of.externalId) })}
              below={(period) => (
                <BusiestKeys
                  key={`${period.granularity} ${period.start}`}
                  period={period}
                  externalId={of.externalId}
                />
              )}
            />
          </div>
        )}
      </div>
    </>
  );
}

/** The keys that a customer used most; nothing if they are more than are counted one by one. */
function BusiestKeys({ period, externalId }: { period: UsagePeriod; externalId: string }) {
  const load = () =>
    usageByKey(period, externalId).catch((error: unknown) => {
      if (error instanceof Failure && error.code === 'BAD_REQUEST') return [];
      throw error;
    });
  const usage = useLoad(load, []);
  const busiest = usage.data?.slice(0, BUSIEST_SHOWN) ?? [];
  const names = useKeyNames(busiest);
  return (
    <Loaded of={usage}>
      {() =>
        busiest.length > 0 && (
          <Table
            label="Busiest keys"
            rows={busiest}
            id={({ keyId }) => keyId}
            empty=""
            columns={[
              {
                title: 'Busiest keys',
                grows: true,
                narrow: 'first',
                cell: ({ keyId }) => (
                  <a href={`#/keys/${keyId}`}>
                    <bdi>{names.get(keyId) ?? keyId}</bdi>
                  </a>
                ),
              },
              { title: 'API', cell: ({ apiId }) => <ApiLink id={apiId} /> },
              { title: 'Requests', number: true, cell: ({ total }) => total.toLocaleString() },
              {
                title: 'Refused',
                number: true,
                cell: ({ total, success }) => (total - success).toLocaleString(),
              },
            ]}
          />
        )
      }
    </Loaded>
  );
}

/** The latest events about a customer. */
function IdentityHistory({ of: { id: identityId, sequence } }: { of: Identity }) {
  const names = useNames();
  const events = useLoad(() => listEvents({ identityId }), [sequence]);
  return (
    <Loaded of={events}>
      {(page) => (
        <Events events={page.events} names={names} exact empty="No events of this customer are kept." />
      )}
    </Loaded>
  );
}

/** The actions on an identity, with their dialogs. */
function Actions({ of, apply, add }: { of: Identity; apply: Apply; add: AddCreditsTo }) {
  const [open, setOpen] = useState<'plan' | 'credits' | 'stop' | 'delete'>();
  const close = () => setOpen(undefined);
  const mayUpdate = may('root.*.update_identity');
  return (
    <>
      {may('root.*.delete_identity') && (
        <More>
          <button type="button" class="danger" onClick={() => setOpen('delete')}>
            Delete customer…
          </button>
        </More>
      )}
      {mayUpdate && (
        <>
          {of.credits && (
            <button type="button" onClick={() => setOpen('credits')}>
              Add credits
            </button>
          )}
          {may('root.*.read_role') && (
            <button type="button" onClick={() => setOpen('plan')}>
              Change plan
            </button>
          )}
          <CustomerSwitch of={of} apply={apply} onStop={() => setOpen('stop')} />
        </>
      )}
      {open === 'plan' && <ChangePlan of={of} apply={apply} onClose={close} />}
      {open === 'credits' && <AddCredits of={of} add={add} onClose={close} />}
      {open === 'stop' && <StopCustomer of={of} apply={apply} onClose={close} />}
      {open === 'delete' && <DeleteIdentity of={of} onClose={close} />}
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

/** The form for the limits of the customer's own, which all its keys share. */
function EditLimits({ of, apply }: { of: Identity; apply: Apply }) {
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const limits = {
      ratelimits: limitsOf(entry('ratelimits')),
      concurrency: limitsOf(entry('concurrency')),
    };
    const { ratelimits, concurrency } = of;
    await apply(
      of,
      `Changed the limits of ${of.externalId}`,
      { ...limits, ifSequence },
      { ratelimits, concurrency },
    );
    return undefined;
  };
  return (
    <>
      <h2>Limits of its own</h2>
      <ActionForm
        sequence={of.sequence}
        label="Change the limits"
        action="Save limits"
        run={save}
        isMain={false}
      >
        <p class="quiet wide">All its keys share them. One of the same name in its plan does not count.</p>
        <LimitRows name="ratelimits" label="Rate limits" of={of.ratelimits} isRate />
        <LimitRows name="concurrency" label="Limits at the same time" of={of.concurrency} isRate={false} />
      </ActionForm>
    </>
  );
}

function AddCredits({ of, add, onClose }: { of: Identity; add: AddCreditsTo; onClose: () => void }) {
  return (
    <Dialog title={`Add credits to ${of.externalId}`} onClose={onClose}>
      <p>{counted(of.credits?.remaining ?? 0, 'credit')} are left.</p>
      <AddCreditsForm add={(value) => addTo(of, add, value)} onDone={onClose} />
    </Dialog>
  );
}

type AddCreditsTo = ReturnType<typeof useChange>['addCredits'];
const addTo = ({ id: identityId, externalId }: Identity, add: AddCreditsTo, value: number) =>
  add({ identityId }, `Added ${counted(value, 'credit')} to ${externalId}`, value);

/** The form for what verifications answer about the customer, and where it holds. */
function Edit({ of, onSaved }: { of: Identity; onSaved: () => void }) {
  const save = async (entry: FormEntry, ifSequence?: number) => {
    const meta = parseObject('meta', entry('meta') || '{}');
    const apiIds = slugsOf(entry('apiIds'));
    const fields = { meta, apiIds: apiIds.length > 0 ? apiIds : null, ifSequence };
    const { propagation } = await call('identities.updateIdentity', { identityId: of.id, ...fields }).finally(
      onSaved,
    );
    return { sequence: propagation.sequence };
  };
  return (
    <ActionForm sequence={of.sequence} label="Change the customer" action="Save" run={save}>
      <label class="wide">
        Meta <small>a JSON object; every verification returns it</small>
        <textarea name="meta" rows={4} spellcheck={false} defaultValue={JSON.stringify(of.meta, null, 2)} />
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
