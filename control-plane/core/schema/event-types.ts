/** The types of events that webhooks send, each with a sentence that says when. */
export const EVENT_TYPES = {
  'key.created': 'A key was created, imported, or made by rotating another.',
  'key.updated': 'Fields of a key changed, other than `enabled`.',
  'key.disabled': 'A key was disabled, and no verifier accepts it any more.',
  'key.enabled': 'A key was enabled.',
  'key.rotated': 'A key was replaced by another. `after.rerolledTo` is the new key.',
  'key.deleted': 'A key was deleted, and no verifier accepts it any more.',
  'key.expiring': 'A key expires soon; `days` says within how many days.',
  'key.expired': 'A key expired.',
  'key.unused': 'A key will be disabled soon, because nobody uses it; `disablesAt` says when.',
  'key.credits_exhausted': 'The last credit of a key was spent.',
  'credits.low': 'The credits of a key or an identity are used up to one of their `thresholds`.',
  'quota.low': 'A quota of a key or an identity is used up to one of its `thresholds`.',
  'key.leaked': 'The secret of a key was reported as leaked.',
  'identity.created': 'An identity was created.',
  'identity.updated': 'Fields of an identity changed, other than `enabled`.',
  'identity.disabled': 'An identity was disabled, and no verifier accepts its keys any more.',
  'identity.enabled': 'An identity was enabled.',
  'identity.credits_exhausted': 'The last credit of an identity was spent.',
  'identity.deleted': 'An identity was deleted; its keys stay.',
  'role.created': 'A role was created.',
  'role.updated': 'The permissions or the limits of a role changed.',
  'role.deleted': 'A role was deleted.',
  'root_key.created': 'A root key was created.',
  'root_key.disabled': 'A root key was disabled.',
  'root_key.enabled': 'A root key was enabled.',
  'root_key.deleted': 'A root key was deleted, with all that descend from it.',
  'root_key.leaked': 'The secret of a root key was reported as leaked.',
  'api.created': 'An API was created by a call of its own.',
  'api.updated': 'The name or the defaults of an API changed.',
  'api.deleted': 'An API was deleted with all its keys.',
  'api.history_refused':
    'Redis is older than it was, as after a restore, so verifiers answer 503 for this API until somebody accepts that.',
  'verifier.lost': 'A verifier stopped reporting without saying that it stops: it crashed or is cut off.',
  'webhook.disabled': 'Another endpoint answered 410 Gone, so it was disabled and gets no more events.',
  'webhook.test': 'Somebody tests the endpoint.',
} as const;

/** The type of an event. */
export type EventType = keyof typeof EVENT_TYPES;

/** The event of an operation, or its events by what its call did with `enabled`; `changed` = nothing. */
export type OperationEvent =
  | EventType
  | { readonly changed?: EventType; readonly disabled: EventType; readonly enabled: EventType };

/** Returns all types of an operation's events. */
export const typesIn = (event: OperationEvent | undefined): EventType[] =>
  typeof event === 'object' ? Object.values(event) : event ? [event] : [];

/** All types. */
export const eventTypes = Object.keys(EVENT_TYPES) as EventType[];

/** The form of an endpoint's filter: a type, all types of a group such as `key.*`, or `*`. */
export const EVENT_FILTERS = ['*', ...groupsOf(eventTypes).map((group) => `${group}.*`), ...eventTypes];

function groupsOf(types: readonly EventType[]): string[] {
  return [...new Set(types.map((type) => type.slice(0, type.indexOf('.'))))];
}

/** Tells whether any of an endpoint's filters lets events of this type pass. */
export const letsPass = (filters: readonly string[], type: string): boolean =>
  filters.some((filter) => filter === '*' || filter === type || filter === `${type.split('.')[0]}.*`);

/** The operation of events about keys that were disabled because nobody used them. */
export const DISABLE_UNUSED = 'rules.disableUnused';
/** The operation of events about keys that their holders revoked. */
export const REVOKE = 'oauth2.revoke';
/** The operation of events about histories that are older than they were. */
export const REFUSE_HISTORY = 'rules.refuseHistory';
