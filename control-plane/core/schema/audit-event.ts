import { createHash } from 'node:crypto';
import { type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import { auditedFields, type StoredFields } from '#shared/protocol/records/key-record.ts';
import type { ErrorCode } from '#shared/rules/errors.ts';
import { type Person, PersonSchema } from './person.ts';
import { Id, Sequence, Time } from './primitives.ts';

const Effect = (description: string) =>
  Type.Optional(Type.Object({}, { additionalProperties: true, description }));
const EventCaller = Type.Object({
  rootKeyId: Type.Optional(Id('the root key that called')),
  person: Type.Optional(PersonSchema),
  address: Type.String({ description: 'Address of the caller; `unknown` if it could not be determined.' }),
});
const EventSubject = Type.Object({
  apiId: Type.Optional(
    Type.String({
      description: 'If the caller sent something that is not an id: its length and a hash.',
    }),
  ),
  keyId: Type.Optional(Type.String()),
  rootKeyId: Type.Optional(Type.String()),
  roleId: Type.Optional(Type.String()),
  permissionId: Type.Optional(Type.String()),
  identityId: Type.Optional(Type.String()),
  endpointId: Type.Optional(Type.String()),
  externalId: Type.Optional(
    Type.String({ description: 'The identity of the keys, if it was used to choose them.' }),
  ),
});
/** An event of the audit log; `ListedEvent` is its type. */
export const Event = Type.Object({
  id: Type.String({ description: 'Ids sort by the time of recording.' }),
  time: Time('When the call arrived'),
  requestId: Type.String(),
  traceId: Type.Optional(
    Type.String({ description: "Id of the caller's trace, if the call had a `traceparent`." }),
  ),
  operation: Type.String(),
  outcome: Type.String({ description: 'OK, or the code of the error.' }),
  by: EventCaller,
  on: EventSubject,
  before: Effect('Changed fields before the call; for meta only its length and a hash.'),
  after: Effect('Changed fields after the call.'),
  sequence: Type.Optional(Sequence),
  incomplete: Type.Optional(
    Type.Literal(true, {
      description: 'The stored event is damaged; unreadable parts are left out or `unknown`.',
    }),
  ),
});

/** The kind of an event: a call that had or may have had an effect, or a refused call. */
export type AuditKind = 'done' | 'refused';

/** The subject of an event; contains the ids that are known. */
export interface Subject {
  readonly apiId?: string;
  readonly keyId?: string;
  readonly rootKeyId?: string;
  readonly roleId?: string;
  readonly permissionId?: string;
  readonly identityId?: string;
  /** The webhook endpoint. */
  readonly endpointId?: string;
  /** The external id by which the keys were chosen. */
  readonly externalId?: string;
}

/** The fields that a call changed, as `auditView` shows them. */
export interface AuditedEffect {
  readonly before?: object;
  readonly after?: object;
  /** Sequence of the change in its API's log. */
  readonly sequence?: number;
}

/** One management call. Contains no key, no hash of a key, and no meta. */
export interface AuditEvent extends AuditedEffect {
  /** Time at which the call arrived, Unix milliseconds. */
  readonly time: number;
  readonly requestId: string;
  readonly traceId?: string;
  readonly operation: string;
  readonly outcome: 'OK' | ErrorCode;
  readonly by: { readonly rootKeyId?: string; readonly person?: Person; readonly address: string };
  readonly on: Subject;
}

/** An event as it is listed; ids sort by the time of recording. */
export interface ListedEvent extends Omit<AuditEvent, 'outcome'> {
  readonly id: string;
  readonly outcome: string;
  /** True if the stored event is damaged; malformed parts are left out or replaced by `unknown`. */
  readonly incomplete?: true;
}

const UNKNOWN = 'unknown';

/** Parses a stored event. Of a damaged event, keeps the well-formed parts. */
export function readEvent(id: string, text: string | undefined): ListedEvent {
  const event: Record<string, unknown> = { ...parseObject(text), id };
  if (Value.Check(Event, event)) return event;
  return {
    time: Number(id.split('-')[0]),
    requestId: UNKNOWN,
    operation: UNKNOWN,
    outcome: UNKNOWN,
    ...fitting(Event.properties, event),
    id,
    by: { address: UNKNOWN, ...fitting(EventCaller.properties, event['by']) },
    on: fitting(EventSubject.properties, event['on']),
    incomplete: true,
  };
}

function parseObject(text: string | undefined): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? '');
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {}; // damaged; only the time of recording is known
  }
}

/** Returns those properties of `value` that match their schema in `properties`, each checked on its own. */
function fitting(properties: Readonly<Record<string, TSchema>>, value: unknown): object {
  return Object.fromEntries(
    Object.entries(Object(value)).filter(([name, part]) => {
      const schema = properties[name];
      return schema !== undefined && Value.Check(schema, part);
    }),
  );
}

/** The form of ids that Keyfence makes; nobody chooses such a text as a secret. */
const ID =
  /^(?:(?:key|api|root|role|permission|endpoint|session)_[0-9A-Za-z]{20}|(?:identity|person)_[0-9a-f]{40}|bootstrap_[0-9a-f]{8})$/;

/**
 * Returns what may be logged of an id that a caller sent: the id, or only its length and a hash if it does
 * not have the form of an id, because then it may be a secret.
 */
export function idAsSent(id: string): string {
  if (ID.test(id)) return id;
  const { bytes, sha256 } = summaryOf(id);
  return `(${bytes} bytes, sha256 ${sha256})`;
}

/**
 * Returns the fields of a key's record for the audit log; meta is replaced by its length and a hash for
 * comparison.
 */
export const auditView = (fields: StoredFields): object => auditedFields(fields, summaryOf);

function summaryOf(text: string): { readonly bytes: number; readonly sha256: string } {
  const sha256 = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return { bytes: Buffer.byteLength(text), sha256 };
}

/** The time when an event was recorded, Unix milliseconds. */
export const timeOf = (id: string) => Number(id.split('-')[0]);

/** Tells whether an event was recorded before another; ids are `<time>-<number>`. */
export const isBefore = (id: string, other: string) =>
  timeOf(id) < timeOf(other) ||
  (timeOf(id) === timeOf(other) && Number(id.split('-')[1]) < Number(other.split('-')[1]));

/** Conditions on the events of a listing; an event must meet all. */
export interface AuditFilter {
  readonly operation?: string;
  readonly apiId?: string;
  readonly keyId?: string;
  readonly identityId?: string;
  /** The caller: a root key or a person. */
  readonly rootKeyId?: string;
}

/** Tells whether an event meets all conditions. */
export function matches({ operation, by, on }: ListedEvent, filter: AuditFilter): boolean {
  return (
    (filter.operation === undefined || filter.operation === operation) &&
    (filter.apiId === undefined || filter.apiId === on.apiId) &&
    (filter.keyId === undefined || filter.keyId === on.keyId) &&
    (filter.identityId === undefined || filter.identityId === on.identityId) &&
    (filter.rootKeyId === undefined || filter.rootKeyId === (by.person?.personId ?? by.rootKeyId))
  );
}
