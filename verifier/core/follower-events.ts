import type { Change } from '#shared/contract/change.ts';

/** The reason why a follower forgot everything. */
export type DropReason = 'noreg' | 'diverged' | 'trimmed' | 'hole' | 'nonce' | 'damaged';

/** The periods of a follower. */
export interface FollowerLimits {
  /**
   * Period of SYNC, in milliseconds; ±10 % at random, so that verifiers do not synchronise at the same
   * moment.
   */
  readonly syncPeriodMs: number;
  /** Longest wait for a reply, in milliseconds. The connection is then cut. */
  readonly syncDeadlineMs: number;
  /** Time for which credits requested in advance should last, in milliseconds; 0 = no credits in advance. */
  readonly creditsSliceMs: number;
}

/** Events of a follower, for logs, metrics and the checker of the tests. */
export interface FollowerEvents {
  live(position: number, leaseMs: number): void;
  dropped(reason: DropReason, position: number): void;
  disconnected(reason: unknown, position: number): void;
  /** The follower reached Redis again after `disconnected`, without having dropped. */
  resumed(position: number): void;
  gap(position: number, sequence: number): void;
  /** A change was applied to memory, in order. */
  applied(change: Change, source: 'message' | 'sync'): void;
}
