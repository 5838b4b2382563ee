import { call, type Identity, may } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { parseObject } from '../forms/entered-values.ts';
import { ActionForm, Field, FieldError, type FormEntry, fieldsOf, Opener } from '../forms/forms.tsx';
import { customersOf, useKeysWith } from '../keys/find-keys.ts';
import { useConditions } from '../parts/conditions.ts';
import { Dock } from '../parts/dock.tsx';
import { IdentityState, IdentitySwitch, identityPage } from '../parts/identity-state.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { type Column, Table } from '../parts/table.tsx';

/**
 * A page to list, find, create, disable and enable identities, each of which covers all keys with one
 * external id.
 */
export function Identities() {
  const pages = usePages(25);
  const [filter, setFilter] = useConditions({ search: '' });
  const identities = useLoad(
    () => call('identities.listIdentities', { limit: '25', cursor: pages.cursor, search: filter.search }),
    [filter, pages.cursor],
  );
  const { applyIdentity, receipts } = useChange(identities.reload);
  return (
    <Page
      title="Customers"
      actions={
        <Opener action="New customer" permission="root.*.create_identity">
          {(close) => <NewIdentity onDone={close} />}
        </Opener>
      }
    >
      <Finder
        text={filter.search}
        onSearch={(search) => {
          pages.reset();
          setFilter({ search });
        }}
      />
      <Loaded of={identities}>
        {(page) => (
          <>
            <Table
              label="Customers"
              rows={page.identities}
              id={({ id }) => id}
              empty={
                page.cursor ? (
                  'No match so far. “Next” searches further.'
                ) : filter.search === '' ? (
                  'No customers yet. One stands for all keys with its external id, in all APIs, which are stopped together.'
                ) : (
                  <>
                    No customer matches. <Customers search={filter.search} />
                  </>
                )
              }
              columns={columnsOf(applyIdentity)}
            />
            {pages.pager(page.cursor, page.identities.length)}
          </>
        )}
      </Loaded>
      <Dock>{receipts}</Dock>
    </Page>
  );
}

/** Customers whose keys are found by a part of their external id, and who have no identity. */
function Customers({ search }: { search: string }) {
  const part = search.toLowerCase();
  const { data: keys = [], busy } = useKeysWith(search);
  const customers = customersOf(keys).filter((each) => each.toLowerCase().includes(part));
  if (customers.length === 0 && busy) return <>Searching the keys…</>;
  if (customers.length === 0)
    return (
      <>
        No key was found either, among the newest 20,000 of each of the first 20 APIs.{' '}
        <a href={identityPage(search)}>Look for exactly this external id</a>
      </>
    );
  return (
    <>
      These have keys, and no customer yet:{' '}
      {customers.map((externalId) => (
        <a key={externalId} class="customer" href={identityPage(externalId)}>
          <bdi>{externalId}</bdi>
        </a>
      ))}
    </>
  );
}

function Finder({ text, onSearch }: { text: string; onSearch: (text: string) => void }) {
  return (
    <form class="row" onSubmit={(event) => onSearch(fieldsOf(event)('search'))} aria-label="Find a customer">
      <Field
        label="Part of the external id"
        name="search"
        maxLength={256}
        type="search"
        defaultValue={text}
      />
      <button type="submit">Find</button>
    </form>
  );
}

function NewIdentity({ onDone }: { onDone: () => void }) {
  const create = async (entry: FormEntry) => {
    const externalId = entry('externalId');
    const meta = entry('meta');
    await call('identities.createIdentity', {
      ...{ externalId, ...(meta === '' ? {} : { meta: parseObject('meta', meta) }) },
    });
    location.hash = identityPage(externalId);
    return undefined;
  };
  return (
    <ActionForm label="New customer" action="Create customer" run={create} onDone={onDone}>
      <Field
        label="External id"
        hint="such as the id of a customer in your own system"
        wide
        name="externalId"
        required
        maxLength={256}
      />
      <label class="field wide">
        Meta <small>JSON, such as {'{"name":"Ada Ltd","plan":"pro"}'}; verifiers answer it</small>
        <textarea name="meta" rows={3} spellcheck={false} />
        <FieldError name="meta" />
      </label>
    </ActionForm>
  );
}

const columnsOf = (apply: ReturnType<typeof useChange>['applyIdentity']): readonly Column<Identity>[] => [
  {
    title: 'External id',
    narrow: 'first',
    cell: ({ externalId, id }) => (
      <a href={identityPage(externalId)} title={id}>
        <bdi>{externalId}</bdi>
      </a>
    ),
  },
  { title: 'State', narrow: 'beside', cell: (of) => <IdentityState of={of} /> },
  ...(may('root.*.update_identity')
    ? [
        {
          title: 'Actions',
          narrow: 'menu',
          cell: (of: Identity) => <IdentitySwitch of={of} apply={apply} />,
        } as const,
      ]
    : []),
];
