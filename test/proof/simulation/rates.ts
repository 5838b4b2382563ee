import { Violation } from './checker.ts';

/** A rate limit of a key, or of its identity. */
interface Rate {
  readonly limit: number;
  readonly duration: number;
}

/** Accepted uses of each limit, held against it by the clock of Redis. */
export class Rates {
  readonly #accepted = new Map<
    string,
    { readonly atMs: number; readonly cost: number; readonly limit: number }[]
  >();

  /**
   * Throws where more is accepted in a window than the limit, or in the time of one more than it slides.
   * @param inForce the largest limit that may be in force; undefined = `limit` never changes
   */
  accept(pool: string, rate: Rate, cost: number, atMs: number, who: string, inForce?: number): void {
    if (cost === 0) return;
    const { limit, duration } = rate;
    const sinceMs = atMs - duration;
    const latest = (this.#accepted.get(pool) ?? []).filter((each) => each.atMs > sinceMs);
    latest.push({ atMs, cost, limit });
    this.#accepted.set(pool, latest);
    const beganAtMs = Math.floor(atMs / duration) * duration;
    const sum = (fromMs: number, under = Number.POSITIVE_INFINITY) =>
      latest.reduce((all, each) => (each.atMs >= fromMs && each.limit <= under ? all + each.cost : all), 0);
    // A use under a higher limit may follow one that was granted before.
    const [used, most] =
      inForce !== undefined && sum(beganAtMs) > inForce
        ? [sum(beganAtMs), inForce]
        : [sum(beganAtMs, limit), limit];
    if (used > most) throw new Violation('I15', `${who} accepted ${used} of ${most} of ${pool} in a window`);
    if (inForce !== undefined) return;
    const slides = Math.ceil(limit * (1 + (atMs - beganAtMs) / duration));
    if (sum(sinceMs) > slides)
      throw new Violation(
        'I15',
        `${who} accepted ${sum(sinceMs)} of ${pool} in ${duration} ms, not ${slides}`,
      );
  }
}
