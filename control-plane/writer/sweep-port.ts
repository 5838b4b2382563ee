import type { KilledFollower } from './change-log-port.ts';

/** An API as the sweep sees it. */
export interface Head {
  readonly sequence: number;
  /** The lease that verifiers are granted now, milliseconds. */
  readonly grantedMs: number;
  /** The lease that fences wait for, milliseconds. */
  readonly fencedMs: number;
  /** Token of the latest change of the lease. */
  readonly token: string;
  readonly created: boolean;
  readonly deleted: boolean;
  readonly members: number;
  /** Followers that were killed and not yet removed. */
  readonly killed: readonly KilledFollower[];
}

/**
 * Steps of changing a lease. To raise it: `fence-first`, then `grant`. To lower it: `grant`, then, one old
 * fence later, `fence-last`, which does nothing if another call set the lease in between.
 */
export type LeaseStep = 'fence-first' | 'grant' | 'fence-last';

/** The sweep's operations on Redis besides the change log. Every method rejects with SERVICE_UNAVAILABLE. */
export interface SweepStore {
  /**
   * At most `limit` ids of APIs in order, those after `after`; '' = from the start, which is the shared log.
   */
  ids(after: string, limit: number): Promise<string[]>;
  head(apiId: string): Promise<Head>;
  /**
   * Creates the shared log if it does not exist: verifiers follow it as soon as they meet a key with an
   * `externalId`.
   */
  createSharedLog(leaseMs: number): Promise<void>;
  /** Makes one step of changing a lease; returns whether it was made and all replicas have it. */
  setLease(apiId: string, step: LeaseStep, leaseMs: number, token: string): Promise<boolean>;
  /** Removes a batch of a deleted API's keys; returns whether there were any. */
  removeKeys(apiId: string): Promise<boolean>;
  /** Removes a deleted API that has no keys left; returns whether it is gone. */
  forget(apiId: string): Promise<boolean>;
}
