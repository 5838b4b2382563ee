import { useEffect, useRef, useState } from 'preact/hooks';
import { call, may, serverNow } from '../api/client.ts';
import { useChange } from '../changes/change.tsx';
import { CustomerSwitch, StopCustomer } from '../customers/stop-customer.tsx';
import { parseObject } from '../forms/entered-values.ts';
import { ActionForm, Empty, Field, FieldError, type FormEntry, fieldsOf, Opener } from '../forms/forms.tsx';
import { customersOf, useKeysWith } from '../keys/find-keys.ts';
import { RoleLinks } from '../keys/key-facts.tsx';
import { useConditions } from '../parts/conditions.ts';
import { Dock } from '../parts/dock.tsx';
import { IdentityState, identityPage } from '../parts/identity-state.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { More } from '../parts/more.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Bar, type Meter, metersOf } from '../usage/allowances.tsx';
import { DAY_MS } from '../usage/periods.tsx';
import { countedApis } from '../usage/usage-query.ts';

/**
 * A page to list, find, create, disable and enable identities, each of which covers all keys with one
 * external id.
 */
export function Identities() {
  const pages = usePages(25);
  const [filter, setFilter] = useConditions({ search: '', sort: '' });
  const identities = useLoad(
    () =>
      call('identities.listIdentities', {
        ...{ limit: '25', cursor: pages.cursor, search: filter.search, allowances: 'true' },
      }),
    [filter, pages.cursor],
  );
  const [stopping, setStopping] = useState<ListedIdentity>();
  const refusals = useLoad(refusalsByCustomer, [], REFRESH_MS).data;
  const { applyIdentity, receipts } = useChange(identities.reload);
  const columns = columnsOf(applyIdentity, setStopping, refusals);
  const sortBy = SORTS.has(filter.sort) ? columns.find(({ title }) => title === filter.sort)?.by : undefined;
  const sorted = (rows: readonly ListedIdentity[]) =>
    sortBy ? rows.toSorted((a, b) => sortBy(b) - sortBy(a)) : rows;
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
          setFilter({ ...filter, search });
        }}
      />
      <Loaded of={identities}>
        {(page) => (
          <>
            <Table
              label="Customers"
              rows={sorted(page.identities)}
              id={({ id }) => id}
              empty={
                page.cursor ? (
                  'No match so far. “Next” searches further.'
                ) : filter.search === '' ? (
                  <Empty
                    page="#/identities"
                    action="Create the first customer"
                    permission="root.*.create_identity"
                  >
                    No customers yet. One stands for all keys with its external id, in all APIs: they share
                    its plan and credits, and are stopped together.
                  </Empty>
                ) : (
                  <>
                    No customer matches. <Customers search={filter.search} />
                  </>
                )
              }
              columns={columns.map((column) =>
                SORTS.has(column.title)
                  ? {
                      ...column,
                      heading: (
                        <button
                          type="button"
                          class="sort"
                          aria-pressed={filter.sort === column.title}
                          title={`Sort this page by ${column.title}`}
                          onClick={() =>
                            setFilter({ ...filter, sort: filter.sort === column.title ? '' : column.title })
                          }
                        >
                          {column.title}
                          {filter.sort === column.title && ' ↓'}
                        </button>
                      ),
                    }
                  : column,
              )}
            />
            {pages.pager(page.cursor, page.identities.length)}
          </>
        )}
      </Loaded>
      {stopping && (
        <StopCustomer of={stopping} apply={applyIdentity} onClose={() => setStopping(undefined)} />
      )}
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

/** After the last letter, before the search begins. */
const PAUSE_MS = 300;

function Finder({ text, onSearch }: { text: string; onSearch: (text: string) => void }) {
  const timer = useRef<number>(undefined);
  const search = (next: string) => {
    clearTimeout(timer.current);
    if (next !== text) onSearch(next);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <form class="row" onSubmit={(event) => search(fieldsOf(event)('search'))} aria-label="Find a customer">
      <Field
        label="Part of the external id"
        isBare
        placeholder="Part of the external id"
        name="search"
        maxLength={256}
        type="search"
        defaultValue={text}
        onInput={({ currentTarget: { value } }) => {
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => search(value.trim()), PAUSE_MS);
        }}
      />
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

type ListedIdentity = Awaited<ReturnType<typeof call<'identities.listIdentities'>>>['identities'][number];
const REFRESH_MS = 30_000;
/** The columns by which the page can be sorted, the largest first. */
const SORTS: ReadonlySet<string> = new Set(['Keys', 'This month', 'Refused, 24 h', 'Credits']);

/** Counts the kept refusals of the last day by customer. */
async function refusalsByCustomer(): Promise<ReadonlyMap<string, number>> {
  const since = String(Math.floor(serverNow() - DAY_MS));
  const readable = (await countedApis()).filter((apiId) => may(`api.${apiId}.read_key`));
  const answers = await Promise.all(readable.map((apiId) => call('apis.listRefusedKeys', { apiId, since })));
  const counts = new Map<string, number>();
  for (const { externalId = '', count } of answers.flatMap(({ keys }) => keys))
    counts.set(externalId, (counts.get(externalId) ?? 0) + count);
  return counts;
}

/** The limit by the month that is used most, or else the limit that is. */
function mainMeter({ allowances }: ListedIdentity): Meter | undefined {
  if (!allowances) return undefined;
  const { limits } = allowances;
  const monthly = limits.filter(({ per }) => per === 'month');
  const shares = metersOf({ ...allowances, limits: monthly.length > 0 ? monthly : limits, concurrency: [] });
  return shares.filter(({ name }) => name !== 'credits left').toSorted((a, b) => shareOf(b) - shareOf(a))[0];
}
const shareOf = ({ used, of = 0 }: Meter) => used / Math.max(1, of);

type CustomerColumn = Column<ListedIdentity> & { readonly by?: (of: ListedIdentity) => number };

const columnsOf = (
  apply: ReturnType<typeof useChange>['applyIdentity'],
  onStop: (of: ListedIdentity) => void,
  refusals: ReadonlyMap<string, number> | undefined,
): readonly CustomerColumn[] => [
  {
    title: 'Customer',
    narrow: 'first',
    cell: ({ externalId, id }) => (
      <a href={identityPage(externalId)} title={id}>
        <bdi>{externalId}</bdi>
      </a>
    ),
  },
  { title: 'State', narrow: 'beside', cell: (of) => <IdentityState of={of} /> },
  { title: 'Plan', cell: ({ roles }) => <RoleLinks names={roles} /> },
  {
    title: 'Keys',
    number: true,
    cell: ({ allowances }) => allowances?.keys.toLocaleString(),
    by: ({ allowances }) => allowances?.keys ?? 0,
  },
  {
    title: 'This month',
    cell: (of) => {
      const meter = mainMeter(of);
      return meter ? (
        <span class="use" title={meter.name}>
          {meter.used.toLocaleString()} <small>of {meter.of?.toLocaleString()}</small>
          <Bar of={meter} />
        </span>
      ) : (
        <span class="quiet none">no limit</span>
      );
    },
    by: (of) => {
      const meter = mainMeter(of);
      return meter ? shareOf(meter) : -1;
    },
  },
  {
    title: 'Refused, 24 h',
    number: true,
    cell: ({ externalId }) => refusals && (refusals.get(externalId) ?? 0).toLocaleString(),
    by: ({ externalId }) => refusals?.get(externalId) ?? 0,
  },
  {
    title: 'Credits',
    number: true,
    cell: ({ credits }) => credits?.remaining?.toLocaleString() ?? <span class="quiet none">–</span>,
    by: ({ credits }) => credits?.remaining ?? -1,
  },
  ...(may('root.*.update_identity')
    ? [
        {
          title: 'Actions',
          narrow: 'menu',
          cell: (of: ListedIdentity) => (
            <More of={of.externalId}>
              <CustomerSwitch of={of} apply={apply} onStop={() => onStop(of)} />
            </More>
          ),
        } as const,
      ]
    : []),
];
