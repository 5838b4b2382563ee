import { Violation } from './checker.ts';
import type { Plan } from './plan.ts';

/** Accepted verifications of each key, held against its rate limit by the clock of Redis. */
export class Rates {
  readonly #rate: NonNullable<Plan['rate']>;
  readonly #accepted = new Map<string, { readonly atMs: number; readonly cost: number }[]>();

  constructor(rate: NonNullable<Plan['rate']>) {
    this.#rate = rate;
  }

  /** Throws where more is accepted in a window than the limit, or in the time of one more than it slides. */
  accept(keyId: string, cost: number, atMs: number, who: string): void {
    const { limit, duration } = this.#rate;
    const sinceMs = atMs - duration;
    const latest = (this.#accepted.get(keyId) ?? []).filter((each) => each.atMs > sinceMs);
    latest.push({ atMs, cost });
    this.#accepted.set(keyId, latest);
    const beganAtMs = Math.floor(atMs / duration) * duration;
    const sum = (fromMs: number) =>
      latest.reduce((all, each) => (each.atMs >= fromMs ? all + each.cost : all), 0);
    if (sum(beganAtMs) > limit)
      throw new Violation('I15', `${who} accepted ${sum(beganAtMs)} of ${limit} of ${keyId} in a window`);
    const slides = Math.ceil(limit * (1 + (atMs - beganAtMs) / duration));
    if (sum(sinceMs) > slides)
      throw new Violation(
        'I15',
        `${who} accepted ${sum(sinceMs)} of ${keyId} in ${duration} ms, not ${slides}`,
      );
  }
}
