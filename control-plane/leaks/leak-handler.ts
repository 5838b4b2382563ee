import { storedFields } from '#shared/contract/key-record.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Audit } from '../audit/audit.ts';
import type { AuditEvent, Subject } from '../audit/audit-event.ts';
import type { PublishedRootKeys } from '../root-keys/published-root-keys.ts';
import type { RootKeys } from '../root-keys/root-keys.ts';
import { effectOf } from '../serve/call.ts';
import type { Write } from '../writer/change-log-port.ts';
import type { BatchEvents, ChangeWriter } from '../writer/writer.ts';
import type { LeakedKey } from './leaked-keys.ts';

export const OPERATION = 'leaks.report';

/** Time for which a report waits until its changes are complete; GitHub waits for 30 s. */
const WAIT_MS = 20_000;
const DISABLED = { enabled: false };
const OFF = storedFields(DISABLED);

/** The facts of a report that each of its audit events has. */
export type Arrival = Pick<AuditEvent, 'time' | 'requestId' | 'traceId' | 'by'>;
type KeyLeak = Extract<LeakedKey, { kind: 'key' }>;
type RootKeyLeak = Exclude<LeakedKey, { kind: 'key' }>;

interface HandlerOptions {
  readonly policy: 'tell' | 'disable';
  readonly changeWriter: Pick<ChangeWriter, 'applyAll' | 'remainingTime'>;
  readonly rootKeys: Pick<RootKeys, 'setEnabled'>;
  readonly publishedRootKeys: Pick<PublishedRootKeys, 'publish'>;
  readonly audit: Pick<Audit, 'record' | 'recordAll'>;
  readonly log: Pick<Logger, 'warn'>;
}

/** Tells of leaked keys in the log and the audit log and, as the policy says, disables them. */
export class LeakHandler {
  readonly #options: HandlerOptions;

  constructor(options: HandlerOptions) {
    this.#options = options;
  }

  /**
   * Resolves when every change is complete, or after 20 s. Rejects with SERVICE_UNAVAILABLE; then any key may
   * have been disabled.
   */
  async handle(leaked: readonly LeakedKey[], arrival: Arrival): Promise<void> {
    for (const leak of leaked) {
      const { type, source, url } = leak.at;
      this.#options.log.warn({ ...subjectOf(leak), kind: leak.kind, type, source, url }, 'a secret leaked');
    }
    const isDisabled = (leak: LeakedKey) =>
      this.#options.policy === 'disable' && leak.kind !== 'bootstrap' && leak.enabled;
    const kept = leaked.filter((leak) => !isDisabled(leak));
    await this.#options.audit.recordAll(
      'done',
      kept.map((leak) => eventOf(leak, arrival)),
    );
    const rootKeys = leaked.filter((leak) => leak.kind !== 'key').filter(isDisabled);
    for (const leak of rootKeys) await this.#disableRootKey(leak, arrival);
    if (rootKeys.length > 0) await this.#options.publishedRootKeys.publish();
    const keys = leaked.filter((leak) => leak.kind === 'key').filter(isDisabled);
    const remainingMs = this.#options.changeWriter.remainingTime(WAIT_MS);
    for (const ofApi of Map.groupBy(keys, ({ apiId }) => apiId).values())
      await this.#disableKeys(ofApi, arrival, remainingMs());
  }

  async #disableRootKey(leak: RootKeyLeak, arrival: Arrival): Promise<void> {
    await this.#options.rootKeys.setEnabled(leak.rootKeyId, false);
    const effect = { before: { enabled: true }, after: DISABLED };
    await this.#options.audit.record('done', eventOf(leak, arrival, effect));
  }

  /** Disables keys of one API. */
  async #disableKeys(leaks: readonly KeyLeak[], arrival: Arrival, waitMs?: number): Promise<void> {
    const { audit, changeWriter } = this.#options;
    const byId = new Map(leaks.map((leak) => [leak.keyId, leak]));
    const [first, ...others] = [...byId.values()].map(
      ({ apiId, keyId }): Write => ({ apiId, operation: 'update', keyId, fields: OFF }),
    );
    if (!first) return;
    const records: Promise<void>[] = [];
    const events: BatchEvents = {
      onWritten(changes) {
        const written = changes.flatMap(({ write, entry }) => {
          const leak = byId.get(write.keyId);
          return leak ? [eventOf(leak, arrival, effectOf(entry, DISABLED))] : [];
        });
        records.push(audit.recordAll('done', written));
      },
      onUnknown(writes) {
        const unknown = writes.flatMap(({ keyId }) => {
          const leak = byId.get(keyId);
          return leak ? [eventOf(leak, arrival, { after: DISABLED }, 'SERVICE_UNAVAILABLE')] : [];
        });
        records.push(audit.recordAll('done', unknown));
      },
    };
    try {
      const { outcomes } = await changeWriter.applyAll([first, ...others], waitMs, events);
      for (const outcome of outcomes)
        if ('failure' in outcome && outcome.failure.code !== 'NOT_FOUND') throw outcome.failure;
    } finally {
      await Promise.all(records);
    }
  }
}

const subjectOf = (leak: LeakedKey): Subject =>
  leak.kind === 'key' ? { apiId: leak.apiId, keyId: leak.keyId } : { rootKeyId: leak.rootKeyId };

function eventOf(
  leak: LeakedKey,
  arrival: Arrival,
  effect: Pick<AuditEvent, 'before' | 'after' | 'sequence'> = {},
  outcome: AuditEvent['outcome'] = 'OK',
): AuditEvent {
  const { type, source, url } = leak.at;
  const after = { ...effect.after, leak: { type, source, url } };
  return { ...arrival, operation: OPERATION, outcome, on: subjectOf(leak), ...effect, after };
}
