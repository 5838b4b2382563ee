import type { KilledFollower } from './change-log-port.ts';

/** An API as the sweep sees it. */
export interface Head {
  readonly sequence: number;
  /** The lease that is granted now, milliseconds. */
  readonly grantedMs: number;
  /** The lease that fences wait for, milliseconds. */
  readonly fencedMs: number;
  /** Of the latest change of the lease. */
  readonly token: string;
  readonly created: boolean;
  readonly deleted: boolean;
  readonly members: number;
  /** Followers that were killed and not removed yet. */
  readonly killed: readonly KilledFollower[];
}

/**
 * Raising a lease: `fence-first`, then `grant`. Lowering it: `grant`, then, one old fence later, `fence-last`,
 * which does nothing if anybody set the lease in between.
 */
export type LeaseStep = 'fence-first' | 'grant' | 'fence-last';

/** The sweep's operations on Redis besides the change log. Every method rejects with SERVICE_UNAVAILABLE. */
export interface SweepStore {
  /** At most `limit` ids of APIs in order after `after`; '' = from the start, where the shared log is. */
  ids(after: string, limit: number): Promise<string[]>;
  head(apiId: string): Promise<Head>;
  /** Creates the shared log if it does not exist: verifiers follow it from the first key with an `externalId` on. */
  createSharedLog(leaseMs: number): Promise<void>;
  /** One step of changing a lease; whether it was done and all replicas hold it. */
  setLease(apiId: string, step: LeaseStep, leaseMs: number, token: string): Promise<boolean>;
  /** Removes a batch of a deleted API's keys; whether there was any left to remove. */
  removeKeys(apiId: string): Promise<boolean>;
  /** Ends a deleted API that has no keys; whether it is gone. */
  forget(apiId: string): Promise<boolean>;
}
