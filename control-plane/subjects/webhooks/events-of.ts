import { type TProperties, Type } from 'typebox';
import type { ListedEvent } from '../../core/schema/audit-event.ts';
import {
  DISABLE_UNUSED,
  EVENT_TYPES,
  type EventType,
  type OperationEvent,
  REFUSE_HISTORY,
  REVOKE,
} from '../../core/schema/event-types.ts';
import { Durable, Id, Sequence, Time } from '../../core/schema/primitives.ts';

const Receipt = Type.Object(
  {
    state: Type.Union([Type.Literal('complete'), Type.Literal('lost')], {
      description:
        'complete: no verifier answers from the earlier state any more. lost: a failover of Redis lost the change, or it cannot be known; read the current state.',
    }),
    sequence: Sequence,
    durable: Type.Optional(Durable),
    verifiers: Type.Optional(Type.Integer({ minimum: 0, description: 'Verifiers registered for the API.' })),
  },
  { description: 'The receipt of a change that verifiers follow.' },
);

const Effect = (description: string) =>
  Type.Optional(Type.Object({}, { additionalProperties: true, description }));

/** The fields of an event that a call caused. */
const change = {
  operation: Type.String({ description: 'The operation, such as `keys.updateKey`.' }),
  requestId: Type.String({ description: 'As in the audit log.' }),
  rootKeyId: Type.Optional(Id('the root key of the caller')),
  personId: Type.Optional(Id('the person who called, signed in at the dashboard')),
  outcome: Type.Union([Type.Literal('OK'), Type.Literal('UNKNOWN')], {
    description: 'UNKNOWN: an outage ended the call, and it may have had no effect; read the current state.',
  }),
  before: Effect('Changed fields before the call; for meta only its length and a hash.'),
  after: Effect('Changed fields after the call.'),
  propagation: Type.Optional(Receipt),
};
const key = { apiId: Id('the API'), keyId: Id('the key') };
const identified = {
  externalId: Type.Optional(Type.String({ description: 'The identity of the key.' })),
  name: Type.Optional(Type.String({ description: 'The name of the key.' })),
};
const ofKey = {
  ...{ apiId: Type.Optional(key.apiId), keyId: Type.Optional(key.keyId), ...identified },
  identityId: Type.Optional(Id('the identity whose keys share this, in place of `apiId` and `keyId`')),
};
const passed = {
  threshold: Type.Integer({ description: 'The threshold, per cent used.' }),
  passedAt: Time('When it was passed'),
};
const expiry = { ...key, ...identified, expires: Time('When the key expires') };

/** The fields of `data` in events of each group, and of the types that are no changes. */
const DATA: Readonly<Record<string, TProperties>> = {
  key: { ...key, ...change },
  identity: { identityId: Id('the identity'), externalId: Type.Optional(Type.String()), ...change },
  role: { roleId: Id('the role'), ...change },
  root_key: { ...change, rootKeyId: Id('the root key that changed'), by: Type.Optional(Id('the caller')) },
  api: { apiId: Id('the API'), ...change },
  'key.expiring': {
    ...expiry,
    days: Type.Number({
      description: 'The smallest of WEBHOOK_EXPIRING_DAYS that is not less than the rest.',
    }),
  },
  'key.expired': expiry,
  'key.unused': {
    ...{ ...key, ...identified },
    disablesAt: Time('When the key is disabled, unless somebody uses or changes it before'),
  },
  'key.credits_exhausted': { ...key, ...identified, exhaustedAt: Time('When the last credit was spent') },
  'credits.low': {
    ...ofKey,
    ...passed,
    credits: Type.Integer({ description: 'The credits of which the threshold is a per cent.' }),
    remaining: Type.Integer({ description: 'Credits left.' }),
  },
  'quota.low': {
    ...ofKey,
    ...passed,
    quota: Type.Object(
      {
        name: Type.String(),
        limit: Type.Integer(),
        remaining: Type.Integer(),
        reset: Time('When the period ends'),
      },
      { description: 'The limit, and what is left of it.' },
    ),
  },
  'identity.credits_exhausted': {
    identityId: Id('the identity'),
    externalId: Type.String(),
    exhaustedAt: Time('When the last credit was spent'),
  },
  'verifier.lost': {
    verifierId: Id('the verifier'),
    host: Type.String(),
    version: Type.String(),
    lastReportedAt: Time('When it last reported'),
  },
  webhook: { endpointId: Id('the endpoint'), ...change },
  'webhook.test': { endpointId: Id('the endpoint') },
};

/** Returns the schema of a type's events, as they are sent. */
export function eventSchema(type: EventType) {
  const [group = ''] = type.split('.');
  return Type.Object(
    {
      type: Type.Literal(type),
      timestamp: Type.String({ format: 'date-time', description: 'When the call arrived, or it happened.' }),
      data: Type.Object(DATA[type] ?? DATA[group] ?? {}, { additionalProperties: true }),
    },
    { description: EVENT_TYPES[type] },
  );
}

/** An event before its change is complete. */
export interface PendingEvent {
  readonly type: EventType;
  /** Unix milliseconds. */
  readonly time: number;
  readonly data: Readonly<Record<string, unknown>>;
  /** The change that must be complete before the event is sent; keyId `''`: of the whole API. */
  readonly change?: { readonly keyId: string; readonly sequence: number };
}

/** The operation of events about leaked secrets. */
const LEAKS = 'leaks.report';
/** The operation of events about endpoints that answered that they are gone. */
export const DISABLE_ENDPOINT = 'rules.disableEndpoint';
/** The id in an event's subject, by the group of its type. */
const SUBJECTS: Readonly<
  Record<string, 'keyId' | 'identityId' | 'roleId' | 'rootKeyId' | 'apiId' | 'endpointId'>
> = {
  key: 'keyId',
  identity: 'identityId',
  role: 'roleId',
  root_key: 'rootKeyId',
  api: 'apiId',
  webhook: 'endpointId',
};
/** Groups whose changes are entries of a log under the subject's id. */
const LOGGED: readonly string[] = ['key', 'identity', 'role'];
/** An event's changed fields are left out if they are larger: bytes of JSON. */
const EFFECT_BYTES_MAX = 32_768;

/**
 * Returns the events that an audit event is sent as; none if nobody could want to hear of it.
 * @param declared the event that an operation declares; undefined = it sends none
 */
export function eventsOf(
  event: ListedEvent,
  declared: (operation: string) => OperationEvent | undefined,
): PendingEvent[] {
  return typesOf(event, declared).flatMap((type) => {
    const [group = ''] = type.split('.');
    const subject = SUBJECTS[group] ?? 'keyId';
    const id = event.on[subject];
    if (id === undefined) return [];
    const { sequence, time } = event;
    const pending = { type, time, data: dataOf(event, group) };
    if (sequence === undefined) return [pending];
    if (type === 'api.deleted') return [{ ...pending, change: { keyId: '', sequence } }];
    return [LOGGED.includes(group) ? { ...pending, change: { keyId: id, sequence } } : pending];
  });
}

function typesOf(
  event: ListedEvent,
  declared: (operation: string) => OperationEvent | undefined,
): EventType[] {
  const { operation, after, on } = event;
  const enabled = fieldOf(after, 'enabled');
  if (operation === LEAKS) {
    const group = on.keyId === undefined ? 'root_key' : 'key';
    return enabled === false ? [`${group}.leaked`, `${group}.disabled`] : [`${group}.leaked`];
  }
  if (operation === DISABLE_UNUSED || operation === REVOKE) return ['key.disabled'];
  if (operation === DISABLE_ENDPOINT) return ['webhook.disabled'];
  if (operation === REFUSE_HISTORY) return ['api.history_refused'];
  const types = declared(operation);
  // A repeated deletion changed nothing.
  if (types === undefined || fieldOf(after, 'repeated') === true) return [];
  if (types === 'key.rotated' && fieldOf(after, 'rerolledFrom') !== undefined) return ['key.created'];
  if (typeof types === 'string') return [types];
  if (typeof enabled === 'boolean') return [enabled ? types.enabled : types.disabled];
  return types.changed === undefined ? [] : [types.changed];
}

function dataOf(event: ListedEvent, group: string): PendingEvent['data'] {
  const { operation, requestId, on, before, after } = event;
  // The address of the caller stays in the audit log.
  const { rootKeyId, person } = event.by;
  const callerId = person?.personId ?? rootKeyId;
  const callerField = group === 'root_key' ? 'by' : person ? 'personId' : 'rootKeyId';
  const isLarge = JSON.stringify([before, after]).length > EFFECT_BYTES_MAX;
  return {
    ...on,
    operation,
    requestId,
    ...(callerId === undefined ? {} : { [callerField]: callerId }),
    outcome: event.outcome === 'OK' ? 'OK' : 'UNKNOWN',
    ...(before === undefined || isLarge ? {} : { before }),
    ...(after === undefined || isLarge ? {} : { after }),
  };
}

const fieldOf = (fields: object | undefined, name: string): unknown =>
  (fields as Readonly<Record<string, unknown>> | undefined)?.[name];
