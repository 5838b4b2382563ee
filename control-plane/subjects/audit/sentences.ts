/** A call of the audit log, as far as it is said in a sentence. */
interface EventFacts {
  readonly operation: string;
  readonly outcome: string;
  readonly by: Caller;
  readonly on: Readonly<
    Partial<
      Record<
        | 'apiId'
        | 'keyId'
        | 'rootKeyId'
        | 'roleId'
        | 'permissionId'
        | 'identityId'
        | 'externalId'
        | 'endpointId'
        | 'verifierId',
        string
      >
    >
  >;
  readonly after?: object;
}

/** A caller as events of the audit log have it. */
export interface Caller {
  readonly rootKeyId?: string;
  readonly person?: { readonly subject: string; readonly email?: string; readonly name?: string };
}

type Names = ReadonlyMap<string, string>;

/** Returns the name of a root key or a person. An address is harder to choose freely than a name, so it comes first. */
export function callerName({ rootKeyId = '', person }: Caller, names: Names = new Map()): string {
  if (person) return person.email ?? person.name ?? person.subject;
  // Those of the configuration have no other name.
  return names.get(rootKeyId) ?? (rootKeyId.replace(/^(bootstrap)_.*/, '$1') || 'nobody known');
}

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
export function planOf(operation: string, after: object): readonly string[] | undefined {
  const isMove = operation === 'identities.updateIdentity' && Object.keys(after).join() === 'roles';
  const { roles } = after as { readonly roles?: readonly string[] };
  return isMove && roles?.length ? roles : undefined;
}

/** Returns who did what an event tells. */
export const whoDid = ({ operation, by }: EventFacts, names?: Names): string =>
  UNNAMED[operation] ?? callerName(by, names);

/** Says what was done, or refused, to what the event is about. */
export const whatDid = ({ operation, outcome, after }: EventFacts): string =>
  outcome === 'OK' ? phraseOf(operation, after) : `was refused ${operation}`;

/** Returns the place where a leaked secret was found, as an event of a report has it. */
export const leakIn = ({ after = {} }: EventFacts) =>
  'leak' in after ? (after.leak as { readonly source?: string; readonly url?: string }) : undefined;

/** Says an event in one sentence, with the ids of what it is about. */
export function sentenceOf(event: EventFacts): string {
  const { operation, outcome, on, after = {} } = event;
  const { keyId, apiId, externalId, identityId, roleId, permissionId, endpointId, verifierId, rootKeyId } =
    on;
  const leak = leakIn(event);
  const begin = leak
    ? `${leak.source ?? 'somebody'} found in public: key`
    : `${whoDid(event)} ${whatDid(event)}`;
  const plan = outcome === 'OK' ? planOf(operation, after) : undefined;
  return [
    ...[
      begin,
      keyId,
      keyId && apiId && 'in',
      apiId,
      externalId ?? identityId,
      roleId,
      permissionId,
      endpointId,
    ],
    ...[verifierId, rootKeyId, plan && `to ${plan.join(', ')}`, leak?.url],
  ]
    .filter(Boolean)
    .join(' ');
}
