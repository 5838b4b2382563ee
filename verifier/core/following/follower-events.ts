import type { Change } from '#shared/contract/change.ts';

/** The reason why a follower forgot everything it had. */
export type DropReason = 'noreg' | 'diverged' | 'trimmed' | 'hole' | 'nonce' | 'damaged';

/** The periods of a follower. */
export interface FollowerLimits {
  /** The period of SYNC, milliseconds; ±10 % at random so that a fleet does not beat in step. */
  readonly syncPeriodMs: number;
  /** After this long without a reply the connection is cut, milliseconds. */
  readonly syncDeadlineMs: number;
  /** Time for which the credits that are asked for in advance last, milliseconds; 0 = none are. */
  readonly creditsSliceMs: number;
}

/** Events of a follower, for logs, metrics and the tests' checker. */
export interface FollowerEvents {
  live(position: number, leaseMs: number): void;
  dropped(reason: DropReason, position: number): void;
  disconnected(reason: unknown, position: number): void;
  /** In touch again after `disconnected`, without having dropped. */
  resumed(position: number): void;
  gap(position: number, sequence: number): void;
  /** A change was applied to memory, in order. */
  applied(change: Change, source: 'message' | 'sync'): void;
}
