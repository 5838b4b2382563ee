import {
  type Caller,
  callerName,
  leakIn,
  planOf,
  whatDid,
  whoDid,
} from '../../../subjects/audit/sentences.ts';
import { type AuditEvent, call, may } from '../api/client.ts';
import { ApiLink } from '../parts/api-name.tsx';
import { Badge } from '../parts/badge.tsx';
import { Fact } from '../parts/fact.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { useCustomerNames, useKeyNames } from '../parts/key-names.ts';
import { useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** Loads the names of root keys, roles and webhooks by their ids, as far as this root key may list them. */
export function useNames(): ReadonlyMap<string, string> {
  const list = async () => {
    const [{ rootKeys }, roles, { endpoints }] = await Promise.all([
      may('root.*.read_root_key') ? call('rootKeys.listRootKeys') : { rootKeys: [] },
      may('root.*.read_role') ? call('permissions.listRoles') : [],
      may('root.*.read_webhook') ? call('webhooks.listEndpoints') : { endpoints: [] },
    ]);
    return new Map([
      ...rootKeys.map(({ rootKeyId, name }) => [rootKeyId, name] as const),
      ...roles.map(({ id, name }) => [id, name] as const),
      ...endpoints.map(({ endpointId, name, url }) => [endpointId, name ?? new URL(url).host] as const),
    ]);
  };
  return useLoad(list, []).data ?? new Map();
}

/** Returns everything that is known of a root key or a person, on one line. */
export const callerDetails = ({ rootKeyId, person }: Caller): string =>
  person ? Object.values(person).join(' · ') : (rootKeyId ?? '');

/** Events of the audit log, as a table of sentences. */
export function Events(props: {
  events: readonly AuditEvent[];
  empty: string;
  names: ReadonlyMap<string, string>;
  /** True for exact times, which serve as evidence. */
  exact?: boolean;
}) {
  const { events, empty, exact = false } = props;
  const subjects = events.map(({ on }) => on);
  const names = new Map([...props.names, ...useKeyNames(subjects), ...useCustomerNames(subjects)]);
  return (
    <Table
      label="Events"
      rows={events}
      id={({ id }) => id}
      empty={empty}
      columns={[
        {
          title: 'What',
          narrow: 'first',
          grows: true,
          cell: (event) => <Sentence event={event} names={names} />,
        },
        {
          title: 'Outcome',
          narrow: 'beside',
          cell: ({ outcome }) =>
            outcome === 'OK' ? <span class="quiet">OK</span> : <Badge kind="bad">{outcome}</Badge>,
        },
        { title: 'When', cell: ({ time }) => <Time at={time} exact={exact} /> },
      ]}
      details={(event) => <Details event={event} />}
    />
  );
}

function Sentence({ event, names }: { event: AuditEvent; names: ReadonlyMap<string, string> }) {
  const { operation, outcome, by, on, after } = event;
  const leak = leakIn(event);
  const plan = outcome === 'OK' && planOf(operation, after ?? {});
  return (
    <>
      {leak ? (
        <>
          <b>{leak.source ?? 'somebody'}</b> found in public: key{' '}
        </>
      ) : (
        <>
          <b>
            <bdi title={`${callerDetails(by)} · ${by.address}`}>{whoDid(event, names)}</bdi>
          </b>{' '}
          {whatDid(event)}{' '}
        </>
      )}
      <Subject on={on} names={names} /> {plan && `to ${plan.map((id) => names.get(id) ?? id).join(', ')}`}
      {leak?.url !== undefined && <div class="under">{leak.url}</div>}
    </>
  );
}

function Subject({ on, names }: { on: AuditEvent['on']; names: ReadonlyMap<string, string> }) {
  const { apiId, keyId, rootKeyId, roleId, permissionId, identityId, externalId, endpointId } = on;
  const identity = externalId ?? names.get(identityId ?? '') ?? identityId;
  return (
    <>
      {keyId !== undefined && (
        <>
          <a href={`#/keys/${keyId}`} title={keyId}>
            <bdi>{names.get(keyId) ?? keyId}</bdi>
          </a>{' '}
          {apiId !== undefined && 'in '}
        </>
      )}
      {apiId !== undefined && <ApiLink id={apiId} />}{' '}
      {identity !== undefined && (
        <a href={identityPage(identity)}>
          <bdi class="short" title={identity}>
            {identity}
          </bdi>
        </a>
      )}{' '}
      {roleId !== undefined && (
        <a href="#/roles" title={roleId}>
          <bdi>{names.get(roleId) ?? roleId}</bdi>
        </a>
      )}{' '}
      {permissionId !== undefined && <code>{permissionId}</code>}{' '}
      {endpointId !== undefined && (
        <a href={`#/webhooks/${endpointId}`} title={endpointId}>
          <bdi>{names.get(endpointId) ?? endpointId}</bdi>
        </a>
      )}{' '}
      {rootKeyId !== undefined && <bdi title={rootKeyId}>{callerName({ rootKeyId }, names)}</bdi>}
    </>
  );
}

/** All of an event: the fields that it changed, and where it came from. */
function Details({ event }: { event: AuditEvent }) {
  const { operation, before = {}, after = {}, by, on, sequence, requestId } = event;
  const was = new Map(Object.entries(before));
  const is = new Map(Object.entries(after));
  const textOf = (value: unknown) => (value === undefined || value === null ? 'none' : JSON.stringify(value));
  return (
    <dl>
      {[...new Set([...was.keys(), ...is.keys()])].map((name) => (
        <Fact key={name} name={name}>
          <code>
            {textOf(was.get(name))} → {textOf(is.get(name))}
          </code>
        </Fact>
      ))}
      <Fact name="Operation">
        {operation}
        {sequence !== undefined && `, change ${sequence}`}
      </Fact>
      {on.keyId !== undefined && (
        <Fact name="Key">
          <code>{on.keyId}</code>
        </Fact>
      )}
      <Fact name="By">
        {callerDetails(by)} from {by.address}
      </Fact>
      <Fact name="Request">
        <code>{requestId}</code>
      </Fact>
    </dl>
  );
}
