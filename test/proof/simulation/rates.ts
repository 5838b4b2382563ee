import { Violation } from './checker.ts';

/** A rate limit of a key, or of its identity. */
interface Rate {
  readonly limit: number;
  readonly duration: number;
}

/** An accepted use. What it costs may turn out to be less, if it is held. */
export interface Use {
  readonly atMs: number;
  cost: number;
  readonly limit: number;
}

/** Accepted uses of each limit, held against it by the clock of Redis. */
export class Rates {
  readonly #accepted = new Map<string, Use[]>();

  /**
   * Throws where more is accepted in a window than the limit, or in the time of one more than it slides.
   * @param inForce the largest limit that may be in force; undefined = `limit` never changes
   */
  accept(pool: string, rate: Rate, cost: number, atMs: number, who: string, inForce?: number): Use {
    const { limit, duration } = rate;
    const use: Use = { atMs, cost, limit };
    if (cost === 0) return use;
    const sinceMs = atMs - duration;
    const latest = (this.#accepted.get(pool) ?? []).filter((each) => each.atMs > sinceMs);
    latest.push(use);
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
    if (inForce !== undefined) return use;
    const slides = Math.ceil(limit * (1 + (atMs - beganAtMs) / duration));
    if (sum(sinceMs) > slides)
      throw new Violation(
        'I15',
        `${who} accepted ${sum(sinceMs)} of ${pool} in ${duration} ms, not ${slides}`,
      );
    return use;
  }
}
