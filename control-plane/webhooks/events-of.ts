import type { ListedEvent } from '../audit/audit-event.ts';
import { type EventType, eventTypes } from './event-types.ts';

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
/** The id in an event's subject, by the group of its type. */
const SUBJECTS: Readonly<Record<string, 'keyId' | 'identityId' | 'roleId' | 'rootKeyId' | 'apiId'>> = {
  key: 'keyId',
  identity: 'identityId',
  role: 'roleId',
  root_key: 'rootKeyId',
  api: 'apiId',
};
/** Groups whose changes are entries of a log under the subject's id. */
const LOGGED: readonly string[] = ['key', 'identity', 'role'];
/** An event's changed fields are left out if they are larger: bytes of JSON. */
const EFFECT_BYTES_MAX = 32_768;

/**
 * Returns the events that an audit event is sent as; none if nobody could want to hear of it.
 * @param typeOf the type of an operation's events; undefined = it sends none
 */
export function eventsOf(
  event: ListedEvent,
  typeOf: (operation: string) => EventType | undefined,
): PendingEvent[] {
  return typesOf(event, typeOf).flatMap((type) => {
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

function typesOf(event: ListedEvent, typeOf: (operation: string) => EventType | undefined): EventType[] {
  const { operation, after, on } = event;
  const enabled = fieldOf(after, 'enabled');
  if (operation === LEAKS) {
    const group = on.keyId === undefined ? 'root_key' : 'key';
    return enabled === false ? [`${group}.leaked`, `${group}.disabled`] : [`${group}.leaked`];
  }
  const type = typeOf(operation);
  if (type === undefined) return [];
  if (type === 'key.rotated' && fieldOf(after, 'rerolledFrom') !== undefined) return ['key.created'];
  const [group, verb = ''] = type.split('.');
  if (!['updated', 'disabled'].includes(verb) || typeof enabled !== 'boolean') return [type];
  const switched = `${group}.${enabled ? 'enabled' : 'disabled'}`;
  return eventTypes.filter((each) => each === switched);
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
