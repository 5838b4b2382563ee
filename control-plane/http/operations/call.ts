import { API_ID } from '#shared/contract/api-id.ts';
import type { ApiError } from '#shared/contract/errors.ts';
import type { StoredFields } from '#shared/contract/key-record.ts';
import type { Logger } from '#shared/process/log.ts';
import {
  type AuditEvent,
  type AuditedEffect,
  type AuditKind,
  auditView,
  idAsSent,
  type Subject,
} from '../../core/audit-event.ts';
import type { Apis } from '../../redis/apis.ts';
import type { Audit } from '../../redis/audit.ts';
import { type Caller, nameOf } from '../../redis/callers/root-keys.ts';
import type { CreditsChange, LogEntry } from '../../writer/change-log-port.ts';

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

/** The notes that a call collects for the audit log, and the events that are written of it. */
export class CallRecord {
  readonly #call: Arrived & Partial<Authenticated>;
  readonly #audit: Pick<Audit, 'record' | 'recordAll'>;
  readonly #apis: Pick<Apis, 'isKnown'>;
  /** The body or the query, which has ids. */
  #request: unknown;
  #subjectNotes: Subject = {};
  #effect: AuditedEffect = {};
  /** Settles when a call that has made its change is recorded as done. */
  #write: Promise<void> | undefined;
  #keys = Promise.resolve();

  constructor(
    call: Arrived & Partial<Authenticated>,
    request: unknown,
    {
      audit,
      apis,
    }: { readonly audit: Pick<Audit, 'record' | 'recordAll'>; readonly apis: Pick<Apis, 'isKnown'> },
  ) {
    this.#call = call;
    this.#request = request;
    this.#audit = audit;
    this.#apis = apis;
  }

  /** Replaces the request by its translation. */
  translate(request: unknown): void {
    this.#request = request;
  }

  /** Adds notes. */
  note(on: Subject, effect: AuditedEffect = {}): void {
    this.#subjectNotes = { ...this.#subjectNotes, ...on };
    this.#effect = { ...this.#effect, ...effect };
  }

  /** Records a call that has written its change, while it waits for completion. */
  recordWrite(): void {
    this.#write = this.#audit.record('done', this.#event('OK', this.#subject(), this.#effect));
  }

  /**
   * Records keys that the call changed or may have changed, after those recorded before; resolves when all
   * are recorded.
   */
  recordKeys(keys: readonly AuditedKey[] = []): Promise<void> {
    if (keys.length === 0) return this.#keys;
    const { apiId } = this.#subject();
    const events = keys.map(({ keyId, outcome, effect }) =>
      this.#event(outcome, { ...(apiId === undefined ? {} : { apiId }), keyId }, effect),
    );
    this.#keys = this.#keys.then(() => this.#audit.recordAll('done', events));
    return this.#keys;
  }

  /**
   * Records how the call ended, unless its success was already recorded; resolves when everything is
   * recorded.
   */
  async recordEnd(kind: AuditKind, outcome: AuditEvent['outcome']): Promise<void> {
    await this.recordKeys();
    await this.#write;
    if (this.#write !== undefined && outcome === 'OK') return;
    // If Redis does not say whether the API of a refused call exists, assume that it does not.
    const apiId = this.#textOf('apiId') ?? '';
    const isApi =
      kind === 'done' || (API_ID.test(apiId) && (await this.#apis.isKnown(apiId).catch(() => false)));
    await this.#audit.record(kind, this.#event(outcome, this.#subject(isApi), this.#effect));
  }

  #event(outcome: AuditEvent['outcome'], on: Subject, effect: AuditedEffect): AuditEvent {
    const { arrival, caller } = this.#call;
    const { address, ...rest } = arrival;
    return { ...rest, outcome, by: { ...(caller && nameOf(caller)), address }, on, ...effect };
  }

  /**
   * The ids that the caller sent, perhaps before validation, and those that were noted.
   * @param isApi whether an API with the id that was sent exists
   */
  #subject(isApi = true): Subject {
    const ids = (['apiId', 'keyId', 'rootKeyId', 'roleId', 'identityId', 'endpointId'] as const).flatMap(
      (name) => {
        const id = this.#textOf(name) ?? this.#textOf(this.#call.idNames[name] ?? '');
        return id === undefined ? [] : [[name, name === 'apiId' && isApi ? id : idAsSent(id)]];
      },
    );
    return { ...Object.fromEntries(ids), ...this.#subjectNotes };
  }

  #textOf(name: string): string | undefined {
    const value: unknown = Object(this.#request)[name];
    return typeof value === 'string' ? value : undefined;
  }
}

/** A call that is valid and has its turn; `apiId` is known once it is authorized. */
export class Call<Request = unknown> implements Authenticated {
  readonly arrival: Arrival;
  readonly idNames: IdNames;
  readonly log: Arrived['log'];
  readonly caller: Caller;
  /** The body or the query. */
  readonly request: Request;
  readonly record: CallRecord;
  /**
   * Ends the call's turn, so that the next call of the same root key begins: this one has written and only waits for
   * others, or is answered.
   */
  readonly giveTurnBack: () => void;
  /** The API that the call acts on; '' = the request alone does not determine it. */
  readonly apiId: string;

  constructor(
    { arrival, idNames, log, caller }: Authenticated,
    {
      request,
      record,
      giveTurnBack,
      apiId = '',
    }: Pick<Call<Request>, 'request' | 'record' | 'giveTurnBack'> & { readonly apiId?: string },
  ) {
    this.arrival = arrival;
    this.idNames = idNames;
    this.log = log;
    this.caller = caller;
    this.request = request;
    this.record = record;
    this.giveTurnBack = giveTurnBack;
    this.apiId = apiId;
  }

  /** Returns the call of this API. */
  inApi(apiId: string): Call<Request> {
    return new Call(this, { ...this, apiId });
  }

  /** Returns the call with a translation of its request. */
  translated<Translation>(request: Translation): Call<Translation> {
    this.record.translate(request);
    return new Call(this, { ...this, request });
  }

  /** The id of the call, as its response has it. */
  get requestId(): string {
    return this.arrival.requestId;
  }

  /** The caller's id, by its kind. */
  get callerId(): ReturnType<typeof callerIdOf> {
    return callerIdOf(this.caller);
  }

  /** Adds notes for the audit log. */
  note(on: Subject, effect?: AuditedEffect): void {
    this.record.note(on, effect);
  }

  /** Records a call that has written its change, while it waits for completion. */
  recordWrite(): void {
    this.record.recordWrite();
  }

  /** Records keys that the call changed, as `CallRecord` does. */
  recordKeys(keys?: readonly AuditedKey[]): Promise<void> {
    return this.record.recordKeys(keys);
  }

  /**
   * Returns a callback for a written change: it ends the turn and records the fields before and after the
   * change. Without `fields`, the key was deleted.
   */
  recordChange(fields?: StoredFields, credits?: CreditsChange) {
    return (entry: Pick<LogEntry, 'sequence' | 'before'>) => {
      this.giveTurnBack();
      const effect = effectOf(entry, fields && auditView(fields));
      this.note({}, credits ? { ...effect, after: { ...effect.after, credits } } : effect);
      this.recordWrite();
    };
  }

  /** Returns a callback for a written change whose effect is noted already: it ends the turn and records it. */
  recordNotedChange() {
    return ({ sequence }: Pick<LogEntry, 'sequence'>) => {
      this.giveTurnBack();
      this.note({}, { sequence });
      this.recordWrite();
    };
  }
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
