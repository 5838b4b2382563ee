import type { AuditEvent, AuditKind } from '../schema/audit-event.ts';

// The parts of subjects and of the process that calls need, as far as they need them.

/** Finds the API of a key. */
export interface KeyIndex {
  /** Resolves with the API of a key; undefined = there is no such key. */
  apiOf(keyId: string): Promise<string | undefined>;
  /** The same, also of a key that was deleted lately. */
  apiOfDeleted(keyId: string): Promise<string | undefined>;
  isApiDeleted(apiId: string): Promise<boolean>;
  /** Resolves with undefined if no key has this secret. */
  lookUpSecret(secret: string): Promise<object | undefined>;
}

/** Knows which APIs there are. */
export interface ApiIndex {
  isKnown(apiId: string): Promise<boolean>;
}

/** Records calls in the audit log. */
export interface CallRecorder {
  record(kind: AuditKind, event: AuditEvent): Promise<void>;
  /** Records events in their order. */
  recordAll(kind: AuditKind, events: readonly AuditEvent[]): Promise<void>;
}

/** Counts requests. */
export interface CallMetrics {
  readonly requests: { observe(labels: { operation: string; status: number }, seconds: number): void };
  readonly rates: { inc(labels: { limit: string }): void };
  readonly shed: { inc(): void };
}
