import { API_ID } from '#shared/contract/api-id.ts';
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

/** The writing half of the audit log. */
type Recorder = Pick<Audit, 'record' | 'recordAll'>;

/** Names of id fields in requests, by those in the audit log, if they differ. */
export type IdNames = Readonly<Record<string, string>>;

/** One of many keys that a call changes. */
export interface AuditedKey {
  readonly keyId: string;
  /** `SERVICE_UNAVAILABLE`: the key may have been changed. */
  readonly outcome: 'OK' | 'SERVICE_UNAVAILABLE';
  readonly effect: AuditedEffect;
}

/**
 * One management call, from its arrival to its response: the caller, the request, and notes for the audit
 * log.
 */
export class Call<Request = unknown> {
  readonly address: string;
  readonly log: Pick<Logger, 'warn'>;
  /** The body or the query; as it was sent until the handler runs. */
  request: Request;
  /** The API that the call acts on, as authorization found it. */
  apiId = '';
  /** Ends the call's turn, so that the next call of the same root key begins; set when the turn begins. */
  turn: (() => void) | undefined;
  /** Throws the refusal of a call over its caller's limit, unless its body shows that it stops something. */
  refuse: (() => never) | undefined;
  /** True once the handler runs: from then on, an outage leaves the outcome unknown. */
  isLetThrough = false;
  #caller: Caller | undefined;
  #subjectNotes: Subject = {};
  #effect: AuditedEffect = {};
  /** Settles when a call that has made its change is recorded as done. */
  #writeRecord: Promise<void> | undefined;
  #recordedKeys = Promise.resolve();
  readonly #arrival: Arrival;
  readonly #audit: Recorder;
  readonly #apis: Pick<Apis, 'isKnown'>;
  readonly #idNames: IdNames;

  constructor(
    arrival: Arrival,
    request: Request,
    parts: { readonly audit: Recorder; readonly apis: Pick<Apis, 'isKnown'>; readonly log: Call['log'] },
    { idNames = {} }: { readonly idNames?: IdNames } = {},
  ) {
    this.#arrival = arrival;
    this.address = arrival.address;
    this.request = request;
    this.#audit = parts.audit;
    this.#apis = parts.apis;
    this.log = parts.log;
    this.#idNames = idNames;
  }

  /** The root key or the person that calls. Throws before authentication. */
  get caller(): Caller {
    if (!this.#caller) throw new Error('a call was not behind authentication');
    return this.#caller;
  }

  set caller(caller: Caller) {
    this.#caller = caller;
  }

  /** The id of the call, as its response has it. */
  get requestId(): string {
    return this.#arrival.requestId;
  }

  /** The caller's id, by its kind; empty before authentication. */
  get callerId(): { readonly rootKeyId?: string; readonly personId?: string } {
    if (!this.#caller) return {};
    const { id, person } = this.#caller;
    return person === undefined ? { rootKeyId: id } : { personId: id };
  }

  /**
   * Lets the next call of the same root key begin, because this one has written and only waits for others.
   */
  giveTurnBack(): void {
    this.turn?.();
  }

  /** Adds notes for the audit log. */
  note(on: Subject, effect: AuditedEffect = {}): void {
    this.#subjectNotes = { ...this.#subjectNotes, ...on };
    this.#effect = { ...this.#effect, ...effect };
  }

  /** Records a call that has written its change, while it waits for completion. */
  recordWrite(): void {
    this.#writeRecord = this.#audit.record('done', this.#event('OK', this.#subject(), this.#effect));
  }

  /**
   * Records keys that the call changed or may have changed, after those recorded before; resolves when all
   * are recorded.
   */
  recordKeys(keys: readonly AuditedKey[] = []): Promise<void> {
    if (keys.length === 0) return this.#recordedKeys;
    const { apiId } = this.#subject();
    const events = keys.map(({ keyId, outcome, effect }) =>
      this.#event(outcome, { ...(apiId === undefined ? {} : { apiId }), keyId }, effect),
    );
    this.#recordedKeys = this.#recordedKeys.then(() => this.#audit.recordAll('done', events));
    return this.#recordedKeys;
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

  /**
   * Records how the call ended, unless its success was already recorded; resolves when everything is
   * recorded.
   */
  async recordEnd(kind: AuditKind, outcome: AuditEvent['outcome']): Promise<void> {
    await this.recordKeys();
    await this.#writeRecord;
    if (this.#writeRecord !== undefined && outcome === 'OK') return;
    // If Redis does not say whether the API of a refused call exists, assume that it does not.
    const apiId = this.#textOf('apiId') ?? '';
    const isApi =
      kind === 'done' || (API_ID.test(apiId) && (await this.#apis.isKnown(apiId).catch(() => false)));
    await this.#audit.record(kind, this.#event(outcome, this.#subject(isApi), this.#effect));
  }

  #event(outcome: AuditEvent['outcome'], on: Subject, effect: AuditedEffect): AuditEvent {
    const { address, ...arrival } = this.#arrival;
    const name = this.#caller ? nameOf(this.#caller) : {};
    return { ...arrival, outcome, by: { ...name, address }, on, ...effect };
  }

  /**
   * The ids that the caller sent, perhaps before validation, and those that were noted.
   * @param isApi whether an API with the id that was sent exists
   */
  #subject(isApi = true): Subject {
    const ids = (['apiId', 'keyId', 'rootKeyId', 'roleId', 'identityId', 'endpointId'] as const).flatMap(
      (name) => {
        const id = this.#textOf(name) ?? this.#textOf(this.#idNames[name] ?? '');
        return id === undefined ? [] : [[name, name === 'apiId' && isApi ? id : idAsSent(id)]];
      },
    );
    return { ...Object.fromEntries(ids), ...this.#subjectNotes };
  }

  #textOf(name: string): string | undefined {
    const value: unknown = Object(this.request)[name];
    return typeof value === 'string' ? value : undefined;
  }
}

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
