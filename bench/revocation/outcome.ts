/** One question of a history; times are milliseconds of one monotonic clock. */
export interface Asked {
  readonly kind: 'ask';
  /** The revocation to which it belongs, and the instance that was asked; both from 0 up. */
  readonly trial: number;
  readonly instance: number;
  readonly sentMs: number;
  readonly answeredMs: number;
  readonly verdict: 'accepted' | 'refused' | 'failed';
}

/** One call that revokes. */
export interface Revoked {
  readonly kind: 'revoke';
  readonly trial: number;
  readonly sentMs: number;
  readonly answeredMs: number;
  /** False = the answer did not claim that the key is refused. */
  readonly isClaimed: boolean;
}

export type History = readonly (Asked | Revoked)[];

/** Figures of one revocation, in milliseconds from the sending of the call. */
export interface Outcome {
  /** The end of the call, if it claimed that the key is refused. */
  readonly claimedMs: number | undefined;
  /** When the last question that was accepted was sent; 0 = none was sent after the call. */
  readonly lastAcceptedMs: number;
  /** Questions that were sent after the claim, and accepted. */
  readonly falseComplete: number;
  /** The last of those, from the claim. */
  readonly afterClaimMs: number;
  /** Questions without an answer, or with one that is neither. */
  readonly failed: number;
}

/**
 * Judges each revocation by its history alone, so that anybody can check the figures. Only when a question was sent
 * counts: one that was on its way when the call ended may be answered either way.
 */
export function outcomes(history: History): Outcome[] {
  const calls = history.filter((event): event is Revoked => event.kind === 'revoke');
  return calls.map(({ trial, sentMs, answeredMs, isClaimed }) => {
    const asked = history.filter((event): event is Asked => event.kind === 'ask' && event.trial === trial);
    const accepted = asked.filter(({ verdict, sentMs: at }) => verdict === 'accepted' && at > sentMs);
    const late = isClaimed ? accepted.filter(({ sentMs: at }) => at > answeredMs) : [];
    const last = (events: readonly Asked[], from: number) =>
      events.reduce((most, event) => Math.max(most, event.sentMs - from), 0);
    return {
      claimedMs: isClaimed ? answeredMs - sentMs : undefined,
      lastAcceptedMs: last(accepted, sentMs),
      falseComplete: late.length,
      afterClaimMs: last(late, answeredMs),
      failed: asked.filter(({ verdict }) => verdict === 'failed').length,
    };
  });
}

/** Returns the value below which this share of the values lies; NaN = there are none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** One line of a table for all revocations. */
export function summary(all: readonly Outcome[]): {
  claimed: string;
  window: string;
  falseComplete: string;
} {
  const claims = all.flatMap(({ claimedMs }) => claimedMs ?? []);
  const windows = all.map(({ lastAcceptedMs }) => lastAcceptedMs);
  const late = all.filter(({ falseComplete }) => falseComplete > 0);
  const worst = Math.max(0, ...late.map(({ afterClaimMs }) => afterClaimMs));
  return {
    claimed:
      claims.length > 0
        ? `${spread(claims)}${claims.length < all.length ? ` (${claims.length} of ${all.length})` : ''}`
        : 'never',
    window: spread(windows),
    falseComplete:
      late.length > 0 ? `${late.length} of ${all.length}, up to ${duration(worst)}` : `0 of ${all.length}`,
  };
}

const spread = (values: readonly number[]) =>
  `${duration(percentile(values, 0.5))} / ${duration(percentile(values, 0.99))}`;

/** Milliseconds for people. */
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
