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

type Caller = Pick<AuditEvent['by'], 'rootKeyId' | 'person'>;

/** Returns the name of a root key or a person. An address is harder to choose freely than a name, so it comes first. */
export function callerName(
  { rootKeyId = '', person }: Caller,
  names: ReadonlyMap<string, string> = new Map(),
): string {
  if (person) return person.email ?? person.name ?? person.subject;
  // Those of the configuration have no other name.
  return names.get(rootKeyId) ?? (rootKeyId.replace(/^(bootstrap)_.*/, '$1') || 'nobody known');
}

/** Returns everything that is known of a root key or a person, on one line. */
export const callerDetails = ({ rootKeyId, person }: Caller): string =>
  person ? Object.values(person).join(' · ') : (rootKeyId ?? '');

/** Phrases for what operations did to what they were on, where their name does not say it. */
const PHRASES: Readonly<Record<string, string>> = {
  'keys.updateRemaining': 'changed the credits of',
  'keys.rerollKey': 'rotated',
  'keys.addPermissions': 'gave permissions to',
  'keys.setPermissions': 'set the permissions of',
  'keys.removePermissions': 'took permissions from',
  'keys.addRoles': 'gave roles to',
  'keys.setRoles': 'set the roles of',
  'keys.removeRoles': 'took roles from',
  'apis.deleteKeys': 'deleted all keys of',
  'identities.updateCredits': 'changed the credits of customer',
  'rules.disableUnused': 'disabled as unused',
  'oauth2.revoke': 'revoked',
  'permissions.setRolePermissions': 'set the permissions of role',
  'permissions.setRoleLimits': 'set the limits of role',
  'rules.disableEndpoint': 'disabled, because it answered that it is gone, webhook',
  'fleet.acceptHistory': 'accepted the history of',
  'rootKeys.endSession': 'ended a session of',
  'webhooks.rotateSecret': 'replaced the secret of webhook',
  'webhooks.redeliver': 'sent an event again to webhook',
  'webhooks.test': 'tested webhook',
  'ratelimit.setOverride': 'set a limit',
  'ratelimit.deleteOverride': 'deleted a limit',
};

/** Names of those who act in operations that nobody signs in for. */
const UNNAMED: Readonly<Record<string, string>> = {
  'rules.disableUnused': 'Keyfence',
  'oauth2.revoke': 'Its holder',
};

/** Things by the ends of operations' names. */
const THINGS: Readonly<Record<string, string>> = {
  Api: 'API',
  Identity: 'customer',
  RootKey: 'root key',
  Endpoint: 'webhook',
};

/** Fields that a change says by name, in words. */
const FIELDS: Readonly<Record<string, string>> = {
  name: 'name',
  expires: 'end',
  roles: 'roles',
  permissions: 'permissions',
  ratelimit: 'rate limit',
  ratelimits: 'limits',
  concurrency: 'limits at once',
  credits: 'credits',
  remaining: 'credits',
  refill: 'refill',
  meta: 'meta',
  apiIds: 'APIs',
  externalId: 'customer',
  allowedIps: 'addresses',
  allowedOrigins: 'origins',
  environment: 'environment',
};

/** Says in words what an operation did, such as `created key`. */
export function phraseOf(operation: string, after: object = {}): string {
  const [, verb = '', noun = ''] = /\.([a-z]+)(.*)/.exec(operation) ?? [];
  const thing = THINGS[noun] ?? noun.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).trim();
  const phrase = PHRASES[operation];
  if (phrase !== undefined) return phrase;
  if (verb !== 'update') return `${verb}${verb.endsWith('e') ? 'd' : 'ed'} ${thing}`.trim();
  const fields = [...new Set(Object.keys(after).map((name) => FIELDS[name]))];
  if ('enabled' in after && fields.length === 1) return `${after.enabled ? 'enabled' : 'disabled'} ${thing}`;
  if (planOf(operation, after)) return 'moved';
  const isSaid = fields.length > 0 && fields.length < 4 && !fields.includes(undefined);
  return `changed ${isSaid ? `the ${fields.join(' and the ')} of ` : ''}${thing}`;
}

/** The ids of the roles that a customer got, which are its plan; undefined = something else was done. */
function planOf(operation: string, after: object): readonly string[] | undefined {
  const isMove = operation === 'identities.updateIdentity' && Object.keys(after).join() === 'roles';
  const { roles } = after as { readonly roles?: readonly string[] };
  return isMove && roles?.length ? roles : undefined;
}

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

/** The place where a leaked secret was found, as an event of a report has it. */
const leakIn = ({ after = {} }: AuditEvent) =>
  'leak' in after ? (after.leak as { readonly source?: string; readonly url?: string }) : undefined;

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
            <bdi title={`${callerDetails(by)} · ${by.address}`}>
              {UNNAMED[operation] ?? callerName(by, names)}
            </bdi>
          </b>{' '}
          {outcome === 'OK' ? phraseOf(operation, after) : `was refused ${operation}`}{' '}
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
