import { callerName, phraseOf } from '../../../subjects/audit/sentences.ts';
import { type AuditEvent, call } from '../api/client.ts';
import { Events, useNames } from '../audit/events.tsx';
import { Choice, Field, fieldsOf } from '../forms/forms.tsx';
import { mapValues, useConditions } from '../parts/conditions.ts';
import { Export } from '../parts/export.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';
import { PeriodFields, periodOf } from '../usage/periods.tsx';

/** The operations that change something; the build takes them from the list of operations. */
declare const CHANGING_OPERATIONS: readonly string[];
const APIS_OFFERED = '100';
/** Those and the reports of leaked keys, with what they did. */
const OPERATIONS = Object.fromEntries(
  [...CHANGING_OPERATIONS, 'leaks.report', 'rules.disableUnused', 'oauth2.revoke'].map((name) => [
    name,
    `${name} – ${phraseOf(name)}`,
  ]),
);

const NO_FILTER = {
  refused: 'false',
  operation: '',
  keyId: '',
  apiId: '',
  rootKeyId: '',
  period: '',
  since: '',
  until: '',
};
const PERIODS = ['', 'hour', 'today', 'yesterday', '7d', 'custom'] as const;

const textOf = (value: object | undefined) => value && JSON.stringify(value);
const EXPORTED = {
  time: ({ time }: AuditEvent) => new Date(time).toISOString(),
  operation: ({ operation }: AuditEvent) => operation,
  outcome: ({ outcome }: AuditEvent) => outcome,
  by: ({ by }: AuditEvent) => by.person?.personId ?? by.rootKeyId,
  person: ({ by }: AuditEvent) => by.person && callerName(by),
  address: ({ by }: AuditEvent) => by.address,
  apiId: ({ on }: AuditEvent) => on.apiId,
  keyId: ({ on }: AuditEvent) => on.keyId,
  identity: ({ on }: AuditEvent) => on.externalId ?? on.identityId,
  role: ({ on }: AuditEvent) => on.roleId ?? on.permissionId,
  rootKeyId: ({ on }: AuditEvent) => on.rootKeyId,
  sequence: ({ sequence }: AuditEvent) => sequence,
  before: ({ before }: AuditEvent) => textOf(before),
  after: ({ after }: AuditEvent) => textOf(after),
  requestId: ({ requestId }: AuditEvent) => requestId,
  id: ({ id }: AuditEvent) => id,
};

/** The audit log: calls that changed something, or were refused. */
export function Audit({ keyId = '' }: { keyId?: string }) {
  const [filter, setFilter] = useConditions({ ...NO_FILTER, keyId });
  const names = useNames();
  const pages = usePages(50);
  const list = (limit: number, cursor: string | undefined) => {
    const { period: _name, ...conditions } = filter;
    // The log's `until` is included.
    const { since, until } = periodOf(filter) ?? {};
    const times = { since, until: until && until - 1 };
    return call('audit.listEvents', { ...conditions, ...times, limit: String(limit), cursor });
  };
  const events = useLoad(() => list(50, pages.cursor), [filter, pages.cursor]);
  return (
    <Page
      title="Audit"
      {...(keyId ? { way: [[`#/keys/${keyId}`, `Key ${keyId}`]] } : {})}
      actions={
        <Export
          key={JSON.stringify(filter)}
          name="audit"
          columns={EXPORTED}
          list={async (cursor) => {
            const page = await list(100, cursor);
            return { rows: page.events, cursor: page.cursor };
          }}
        />
      }
    >
      <Search
        filter={filter}
        callers={callersIn(events.data?.events ?? [], names)}
        onSearch={(conditions) => {
          pages.reset();
          setFilter(conditions);
        }}
      />
      <Loaded of={events}>
        {(page) => (
          <>
            <Events
              events={page.events}
              names={names}
              exact
              empty={page.cursor ? 'None on this page; there may be more.' : 'No events.'}
            />
            {pages.pager(page.cursor, page.events.length)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The callers that can be chosen: all root keys, and who else is on the page, by id. */
function callersIn(
  events: readonly AuditEvent[],
  names: ReadonlyMap<string, string>,
): Readonly<Record<string, string>> {
  const rootKeys = [...names].filter(([id]) => !id.startsWith('role_'));
  const others = events.map(({ by }) => [by.person?.personId ?? by.rootKeyId ?? '', callerName(by, names)]);
  return Object.fromEntries([['', 'any'], ...rootKeys, ...others.filter(([id]) => id !== '')]);
}

function Search(props: {
  filter: typeof NO_FILTER;
  callers: Readonly<Record<string, string>>;
  onSearch: (filter: typeof NO_FILTER) => void;
}) {
  const { filter, callers, onSearch } = props;
  const search = (event: Event) => onSearch(mapValues(filter, fieldsOf(event)));
  return (
    <form class="row search many" aria-label="Search" onSubmit={search}>
      <Choice
        label="Show"
        name="refused"
        value={filter.refused}
        options={{ false: 'changes', true: 'refused changes' }}
      />
      <Choice
        label="Operation"
        name="operation"
        value={filter.operation}
        options={{ '': 'any', ...OPERATIONS }}
      />
      <ApiField value={filter.apiId} />
      <Choice
        label="By"
        name="rootKeyId"
        value={filter.rootKeyId}
        options={{ ...(filter.rootKeyId === '' ? {} : { [filter.rootKeyId]: filter.rootKeyId }), ...callers }}
      />
      <Field
        type="search"
        label="Key id"
        name="keyId"
        defaultValue={filter.keyId}
        pattern="[A-Za-z0-9_\-]{1,80}"
      />
      <PeriodFields value={filter} names={PERIODS} />
      <button type="submit">Search</button>
    </form>
  );
}

/** An input for an API's id, which suggests the first APIs. */
function ApiField({ value }: { value: string }) {
  const apis = useLoad(() => call('apis.listApis', { limit: APIS_OFFERED }).catch(() => ({ apis: [] })), []);
  return (
    <>
      <Field
        type="search"
        label="API"
        name="apiId"
        list="apis"
        defaultValue={value}
        pattern="[A-Za-z0-9_\-]{1,64}"
      />
      <datalist id="apis">
        {apis.data?.apis.map(({ id, name = id }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </datalist>
    </>
  );
}
