import { call } from '../api/client.ts';
import { useConditions } from '../parts/conditions.ts';
import { Events, useNames } from '../parts/events.tsx';
import { Choice, Field, fieldsOf } from '../parts/forms.tsx';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';
import { usePages } from '../parts/paging.tsx';

/** The operations that change something; the build takes them from the list of operations. */
declare const CHANGING_OPERATIONS: readonly string[];
const APIS_OFFERED = '100';

const NO_FILTER = {
  refused: 'false',
  operation: '',
  keyId: '',
  apiId: '',
  rootKeyId: '',
  since: '',
  until: '',
};

/** The audit log: calls that changed something, or were refused. */
export function Audit({ keyId = '' }: { keyId?: string }) {
  const [filter, setFilter] = useConditions({ ...NO_FILTER, keyId });
  const names = useNames();
  const pages = usePages();
  const events = useLoad(() => {
    const [since, until] = [momentOf(filter.since), momentOf(filter.until)];
    return call('audit.listEvents', { ...filter, since, until, limit: '50', cursor: pages.cursor });
  }, [filter, pages.cursor]);
  return (
    <Page title="Audit" {...(keyId ? { way: [[`#/keys/${keyId}`, `Key ${keyId}`]] } : {})}>
      <Search
        filter={filter}
        names={names}
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
              empty={page.cursor ? 'None on this page; there may be more.' : 'No events.'}
            />
            {pages.pager(page.cursor)}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Search(props: {
  filter: typeof NO_FILTER;
  names: ReadonlyMap<string, string>;
  onSearch: (filter: typeof NO_FILTER) => void;
}) {
  const { filter, names, onSearch } = props;
  const search = (event: Event) => {
    const entry = fieldsOf(event);
    onSearch({
      refused: entry('refused'),
      operation: entry('operation'),
      keyId: entry('keyId'),
      apiId: entry('apiId'),
      rootKeyId: entry('rootKeyId'),
      since: entry('since'),
      until: entry('until'),
    });
  };
  return (
    <form class="row search many" aria-label="Search" onSubmit={search}>
      <Choice
        label="Show"
        name="refused"
        value={filter.refused}
        options={{ false: 'what was done', true: 'what was refused' }}
      />
      <Choice
        label="Operation"
        name="operation"
        value={filter.operation}
        options={{ '': 'any', ...Object.fromEntries(CHANGING_OPERATIONS.map((name) => [name, name])) }}
      />
      <ApiField value={filter.apiId} />
      <Choice
        label="By root key"
        name="rootKeyId"
        value={filter.rootKeyId}
        options={{ '': 'any', ...Object.fromEntries([...names].filter(([id]) => !id.startsWith('role_'))) }}
      />
      <Field
        type="search"
        label="Key id"
        name="keyId"
        defaultValue={filter.keyId}
        pattern="[A-Za-z0-9_\-]{1,80}"
      />
      <Field type="datetime-local" label="From" name="since" defaultValue={filter.since} />
      <Field type="datetime-local" label="To" name="until" defaultValue={filter.until} />
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

/** Returns the Unix milliseconds of a datetime input; undefined = empty. */
const momentOf = (text: string) => (text === '' ? undefined : Math.max(0, new Date(text).getTime()));
