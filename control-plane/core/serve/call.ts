import type { Logger } from '#shared/process/log.ts';
import type { CreditsChange, LogEntry } from '#shared/protocol/log/change-log-port.ts';
import type { StoredFields } from '#shared/protocol/records/key-record.ts';
import type { ApiError } from '#shared/rules/errors.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import { type Caller, nameOf } from '../callers/root-keys.ts';
import type { Draw } from '../ports.ts';
import {
  type AuditEvent,
  type AuditedEffect,
  type AuditKind,
  auditView,
  idAsSent,
  type Subject,
} from '../schema/audit-event.ts';
import type { ApiIndex, CallRecorder } from './ports.ts';

/** The facts of a call that are known when it arrives. */
type Arrival = Pick<AuditEvent, 'time' | 'requestId' | 'traceId' | 'operation'> & {
  /** Address of the caller, read on arrival: after a hang-up the connection has no address. */
  readonly address: string;
};

/** Names of id fields in requests, by those in the audit log, if they differ. */
export type IdNames = Readonly<Record<string, string>>;

/** A call whose caller is not known yet. */
export interface Arrived {
  readonly arrival: Arrival;
  readonly idNames: IdNames;
  readonly log: Pick<Logger, 'warn'>;
}

/** A call of a known caller. */
export interface Authenticated extends Arrived {
  readonly caller: Caller;
  /** The refusal of a call over its caller's limit, unless its body shows that it stops something. */
  readonly excess?: ApiError;
}

/** One of many keys that a call changes. */
export interface AuditedKey {
  readonly keyId: string;
  /** `SERVICE_UNAVAILABLE`: the key may have been changed. */
  readonly outcome: 'OK' | 'SERVICE_UNAVAILABLE';
  readonly effect: AuditedEffect;
}

/**
 * Returns the record of a call: it collects notes, and writes events into the audit log. It alone changes during a call.
 * @param request the body or the query, which has ids
 */
export function recordOf(
  { arrival: { address, ...arrival }, idNames, caller }: Arrived & Partial<Authenticated>,
  request: unknown,
  { audit, apis }: { readonly audit: CallRecorder; readonly apis: ApiIndex },
) {
  let ids = request;
  let subjectNotes: Subject = {};
  let ownEffect: AuditedEffect = {};
  /** The fields that the call is to change, for a call that may have changed them and failed. */
  let intended: object | undefined;
  /** Settles when a call that has made its change is recorded as done. */
  let write: Promise<void> | undefined;
  let recordedKeys = Promise.resolve();

  const textOf = (name: string): string | undefined => {
    const value: unknown = Object(ids)[name];
    return typeof value === 'string' ? value : undefined;
  };
  /**
   * Returns the ids that the caller sent, perhaps before validation, and those that were noted.
   * @param isApi whether an API with the id that was sent exists
   */
  const subject = (isApi = true): Subject => {
    const sent = (['apiId', 'keyId', 'rootKeyId', 'roleId', 'identityId', 'endpointId'] as const).flatMap(
      (name) => {
        const id = textOf(name) ?? textOf(idNames[name] ?? '');
        return id === undefined ? [] : [[name, name === 'apiId' && isApi ? id : idAsSent(id)]];
      },
    );
    return { ...Object.fromEntries(sent), ...subjectNotes };
  };
  const by = { ...(caller && nameOf(caller)), address };
  const eventOf = (outcome: AuditEvent['outcome'], on: Subject, effect: AuditedEffect): AuditEvent => ({
    ...{ ...arrival, outcome, by, on },
    ...effect,
  });

  return {
    /** Replaces the request by its translation. */
    translate(translation: unknown): void {
      ids = translation;
    },

    /** Adds notes. */
    note(on: Subject, effect: AuditedEffect = {}): void {
      subjectNotes = { ...subjectNotes, ...on };
      ownEffect = { ...ownEffect, ...effect };
    },

    /** Notes the fields that the call is about to change. */
    intend(fields: object): void {
      intended = fields;
    },

    /** Records a call that has written its change, while it waits for completion. */
    recordWrite(): void {
      write = audit.record('done', eventOf('OK', subject(), ownEffect));
    },

    /**
     * Records keys that the call changed or may have changed, after those recorded before; resolves when all
     * are recorded.
     */
    recordKeys(keys: readonly AuditedKey[] = []): Promise<void> {
      if (keys.length === 0) return recordedKeys;
      const { apiId } = subject();
      const events = keys.map(({ keyId, outcome, effect }) =>
        eventOf(outcome, { ...(apiId === undefined ? {} : { apiId }), keyId }, effect),
      );
      recordedKeys = recordedKeys.then(() => audit.recordAll('done', events));
      return recordedKeys;
    },

    /**
     * Records how the call ended, unless its success was already recorded; resolves when everything is
     * recorded.
     */
    async recordEnd(kind: AuditKind, outcome: AuditEvent['outcome']): Promise<void> {
      await recordedKeys;
      await write;
      if (write !== undefined && outcome === 'OK') return;
      // If Redis does not say whether the API of a refused call exists, assume that it does not.
      const apiId = textOf('apiId') ?? '';
      const isApi = kind === 'done' || (API_ID.test(apiId) && (await apis.isKnown(apiId).catch(() => false)));
      const isUnknown = kind === 'done' && outcome !== 'OK';
      const effect = isUnknown && intended ? { after: intended, ...ownEffect } : ownEffect;
      await audit.record(kind, eventOf(outcome, subject(isApi), effect));
    },
  };
}

/** A call that is valid and has its turn; `apiId` is known once it is authorized. */
export interface Call<Request = unknown> extends Authenticated, ReturnType<typeof recordOf> {
  readonly requestId: string;
  readonly callerId: ReturnType<typeof callerIdOf>;
  /** The body or the query. */
  readonly request: Request;
  /** The API that the call acts on; '' = the request alone does not determine it. */
  readonly apiId: string;
  /**
   * Ends the call's turn, so that the next call of the same root key begins: this one has written and only waits for
   * others, or is answered.
   */
  readonly giveTurnBack: () => void;
  /** Of a call that must take effect once. */
  readonly draw?: Draw;
  /** Set if the call was made before, and only gets the answer again. */
  readonly isRepetition?: true;
  /**
   * Returns a callback for a written change: it ends the turn and records the fields before and after the
   * change. Without `fields`, the key was deleted.
   */
  readonly recordChange: (
    fields?: StoredFields,
    credits?: CreditsChange,
  ) => (entry: Pick<LogEntry, 'sequence' | 'before'>) => void;
  /** Returns a callback for a written change whose effect is noted already: it ends the turn and records it. */
  readonly recordNotedChange: () => (entry: Pick<LogEntry, 'sequence'>) => void;
}

/** Returns a call whose turn has come. */
export function callOf(
  call: Authenticated,
  request: unknown,
  giveTurnBack: () => void,
  parts: Parameters<typeof recordOf>[2],
): Call {
  const record = recordOf(call, request, parts);
  const recordEffect = (effect: AuditedEffect) => {
    giveTurnBack();
    record.note({}, effect);
    record.recordWrite();
  };
  return {
    ...{ ...call, ...record, request, apiId: '', giveTurnBack },
    requestId: call.arrival.requestId,
    callerId: callerIdOf(call.caller),
    recordChange: (fields, credits) => {
      const after = fields && { ...auditView(fields), ...(credits ? { credits } : {}) };
      if (after) record.intend(after);
      return (entry) => recordEffect(effectOf(entry, after));
    },
    recordNotedChange:
      () =>
      ({ sequence }) =>
        recordEffect({ sequence }),
  };
}

/** Returns the id of a caller by its kind. */
export const callerIdOf = ({
  id,
  person,
}: Caller): { readonly rootKeyId?: string; readonly personId?: string } =>
  person === undefined ? { rootKeyId: id } : { personId: id };

/**
 * Returns the fields of a key before and after a change.
 * @param after undefined if the key was deleted
 */
export function effectOf(
  { sequence, before = {} }: Pick<LogEntry, 'sequence' | 'before'>,
  after?: object,
): AuditedEffect {
  return { sequence, before: auditView(before), ...(after && { after }) };
}
