import { createHash } from 'node:crypto';
import { type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import type { ErrorCode } from '#shared/contract/errors.ts';
import { auditedFields, type StoredFields } from '#shared/contract/key-record.ts';
import { Id, Sequence, Time } from './schemas/field-schemas.ts';

const Effect = (description: string) =>
  Type.Optional(Type.Object({}, { additionalProperties: true, description }));
const EventCaller = Type.Object({
  rootKeyId: Type.Optional(Id('who called')),
  address: Type.String({ description: 'Address of the caller; `unknown` where it could not be told.' }),
});
const EventSubject = Type.Object({
  apiId: Type.Optional(
    Type.String({
      description: 'Of what was sent where an id belongs and is none: its length and a hash.',
    }),
  ),
  keyId: Type.Optional(Type.String()),
  rootKeyId: Type.Optional(Type.String()),
  roleId: Type.Optional(Type.String()),
  permissionId: Type.Optional(Type.String()),
  identityId: Type.Optional(Type.String()),
  externalId: Type.Optional(
    Type.String({ description: 'The identity of the keys, if it was used to choose them.' }),
  ),
});
/** An event of the audit log; `ListedEvent` is its type. */
export const Event = Type.Object({
  id: Type.String({ description: 'Sorts by when events were recorded.' }),
  time: Time('When the call arrived'),
  requestId: Type.String(),
  traceId: Type.Optional(
    Type.String({ description: "Id of the caller's trace, where the call had a `traceparent`." }),
  ),
  operation: Type.String(),
  outcome: Type.String({ description: 'OK, or the code of the error.' }),
  by: EventCaller,
  on: EventSubject,
  before: Effect('Changed fields before the call; of meta only the length and a hash.'),
  after: Effect('Changed fields after the call.'),
  sequence: Type.Optional(Sequence),
  incomplete: Type.Optional(
    Type.Literal(true, {
      description: 'The stored event is damaged; unreadable parts are left out or `unknown`.',
    }),
  ),
});

/** Kind of event: a call that did something or may have, or one that was refused. */
export type AuditKind = 'done' | 'refused';

/** Subject of an event; each id where it is known. */
export interface Subject {
  readonly apiId?: string;
  readonly keyId?: string;
  readonly rootKeyId?: string;
  readonly roleId?: string;
  readonly permissionId?: string;
  readonly identityId?: string;
  /** The external id by which keys were chosen. */
  readonly externalId?: string;
}

/** Changed fields of a call, as `auditView` shows them. */
export interface AuditedEffect {
  readonly before?: object;
  readonly after?: object;
  /** Of the change in its API's log. */
  readonly sequence?: number;
}

/** One management call. Holds no key, no hash and no meta. */
export interface AuditEvent extends AuditedEffect {
  /** Arrival of the call, Unix milliseconds. */
  readonly time: number;
  readonly requestId: string;
  readonly traceId?: string;
  readonly operation: string;
  readonly outcome: 'OK' | ErrorCode;
  readonly by: { readonly rootKeyId?: string; readonly address: string };
  readonly on: Subject;
}

/** An event as it is listed; ids sort by when events were recorded. */
export interface ListedEvent extends Omit<AuditEvent, 'outcome'> {
  readonly id: string;
  readonly outcome: string;
  /** Some of what was stored does not fit; it is left out, or `unknown` stands in its place. */
  readonly incomplete?: true;
}

const UNKNOWN = 'unknown';

/** An event as it was stored. Where it does not have an event's form, as far as it has. */
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
    return {}; // damaged; all that is known is when it was recorded
  }
}

/** The parts of `value` that have the form that `properties` ask for, each by itself. */
function fitting(properties: Readonly<Record<string, TSchema>>, value: unknown): object {
  return Object.fromEntries(
    Object.entries(Object(value)).filter(([name, part]) => {
      const schema = properties[name];
      return schema !== undefined && Value.Check(schema, part);
    }),
  );
}

/** Forms of ids that Keyfence makes; nobody chooses such a text as a secret. */
const ID = /^(?:(?:key|api|root|role|identity|permission)_[0-9A-Za-z]{20}|bootstrap_[0-9a-f]{8})$/;

/** Returns an id that a caller sent as it may be written down: of what has no id's form, and may be a secret, its length and a hash. */
export function idAsSent(id: string): string {
  if (ID.test(id)) return id;
  const { bytes, sha256 } = summaryOf(id);
  return `(${bytes} bytes, sha256 ${sha256})`;
}

/** Fields of a key's record as the audit log shows them: of meta only its length and a hash to compare it by. */
export const auditView = (fields: StoredFields): object => auditedFields(fields, summaryOf);

function summaryOf(text: string): { readonly bytes: number; readonly sha256: string } {
  const sha256 = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return { bytes: Buffer.byteLength(text), sha256 };
}
