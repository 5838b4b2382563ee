import { type AuditEvent, call } from '../api/client.ts';
import { Badge } from '../parts/badge.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** Loads the names of root keys and roles by their ids, as far as this root key may list them. */
export function useNames(): ReadonlyMap<string, string> {
  const list = async () => {
    const [{ rootKeys }, roles] = await Promise.all([
      call('rootKeys.listRootKeys').catch(() => ({ rootKeys: [] })),
      call('permissions.listRoles').catch(() => []),
    ]);
    return new Map([
      ...rootKeys.map(({ rootKeyId, name }) => [rootKeyId, name] as const),
      ...roles.map(({ id, name }) => [id, name] as const),
    ]);
  };
  return useLoad(list, []).data ?? new Map();
}

type Caller = Pick<AuditEvent['by'], 'rootKeyId' | 'person'>;

/** Returns the name of a root key or a person. An address is harder to choose freely than a name, so it comes first. */
export function callerName(
  { rootKeyId, person }: Caller,
  names: ReadonlyMap<string, string> = new Map(),
): string {
  if (person) return person.email ?? person.name ?? person.subject;
  return names.get(rootKeyId ?? '') ?? rootKeyId ?? 'nobody known';
}

/** Returns everything that is known of a root key or a person, on one line. */
export const callerDetails = ({ rootKeyId, person }: Caller): string =>
  person ? Object.values(person).join(' · ') : (rootKeyId ?? '');

/** Events of the audit log, as a table. */
export function Events(props: {
  events: readonly AuditEvent[];
  empty: string;
  names: ReadonlyMap<string, string>;
  /** True for exact times, which serve as evidence. */
  exact?: boolean;
}) {
  const { events, empty, names, exact = false } = props;
  return (
    <Table
      label="Events"
      rows={events}
      id={({ id }) => id}
      empty={empty}
      columns={[
        {
          title: 'Operation',
          narrow: 'first',
          cell: ({ operation }) => <span class="nowrap">{operation}</span>,
        },
        {
          title: 'Outcome',
          narrow: 'beside',
          cell: ({ outcome }) => <Badge kind={outcome === 'OK' ? 'good' : 'bad'}>{outcome}</Badge>,
        },
        { title: 'When', cell: ({ time }) => <Time at={time} exact={exact} /> },
        {
          title: 'By',
          cell: ({ by }) => (
            <span title={callerDetails(by)}>
              <bdi>{callerName(by, names)}</bdi> <small>{by.address}</small>
            </span>
          ),
        },
        { title: 'On', cell: ({ on }) => <Subject on={on} names={names} /> },
        { title: 'What', cell: (event) => <Effect event={event} /> },
      ]}
    />
  );
}

function Subject({ on, names }: { on: AuditEvent['on']; names: ReadonlyMap<string, string> }) {
  const { apiId, keyId, rootKeyId, roleId, permissionId, identityId, externalId } = on;
  const identity = externalId ?? identityId;
  return (
    <>
      {apiId !== undefined && <a href={`#/apis/${apiId}`}>{apiId}</a>}{' '}
      {keyId !== undefined && (
        <a href={`#/keys/${keyId}`}>
          <code>{keyId}</code>
        </a>
      )}{' '}
      {identity !== undefined && (
        <a href={identityPage(identity)}>
          <bdi class="short" title={identity}>
            {identity}
          </bdi>
        </a>
      )}{' '}
      {roleId !== undefined && (
        <a href="#/roles">
          <bdi>{names.get(roleId) ?? roleId}</bdi>
        </a>
      )}{' '}
      {permissionId !== undefined && <code>{permissionId}</code>}{' '}
      {rootKeyId !== undefined && <bdi>{names.get(rootKeyId) ?? rootKeyId}</bdi>}
    </>
  );
}

function Effect({ event }: { event: AuditEvent }) {
  const { before, after, sequence, requestId } = event;
  return (
    <details>
      <summary>{sequence === undefined ? 'Details' : `Change ${sequence}`}</summary>
      {before && <pre>before {JSON.stringify(before, null, 1)}</pre>}
      {after && <pre>after {JSON.stringify(after, null, 1)}</pre>}
      <small>request {requestId}</small>
    </details>
  );
}
