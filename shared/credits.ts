/** When credits come back by themselves: every UTC day, or every month at 00:00 UTC of a day, of the last where it is shorter. */
export interface Refill {
  readonly interval: 'daily' | 'monthly';
  /** Credits that there are after it; where more are left they stay. */
  readonly amount: number;
  readonly refillDay?: number;
}

/** The protocol that verifiers must speak to take credits into account. */
export const CREDITS_PROTOCOL = 2;

/** A pool's credits are kept as doubles in Redis, and summed. */
export const CREDITS_MAX = 1_000_000_000_000;

/** The form in Redis. */
export const refillText = ({ interval, amount, refillDay = 1 }: Refill): string =>
  interval === 'daily' ? `d ${amount}` : `m ${amount} ${refillDay}`;

/** Reads what `refillText` wrote; undefined = none. */
export function refillOf(text: string): Refill | undefined {
  const [kind, amount, day] = text.split(' ');
  if (!kind) return undefined;
  return kind === 'd'
    ? { interval: 'daily', amount: Number(amount) }
    : { interval: 'monthly', amount: Number(amount), refillDay: Number(day) };
}
