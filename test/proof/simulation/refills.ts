import { Violation } from './checker.ts';
import type { Ledger } from './ledger.ts';
import type { Network } from './network.ts';
import { Random } from './random.ts';
import type { Pool } from './redis.ts';

/** Days by which the clock of Redis steps. */
const STEPS_DAYS = [-40, -3, -1, 0, 0, 1, 3, 40];
const DAY_MS = 86_400_000;

/** What was seen of a pool after the latest operation on it. */
interface Seen {
  readonly refill: string;
  readonly dueAtMs: number;
  readonly refilledAtMs: number;
  /** When it was made, or refilled last. */
  readonly atMs: number;
}

/** Refills of credits by the clock of Redis, which steps over many days, and back: one a day at most, and none is dropped. */
export class Refills {
  readonly #network: Network;
  readonly #ledger: Ledger;
  readonly #periodMs: number;
  readonly #isExact: boolean;
  readonly #random: Random;
  readonly #seen = new Map<string, Seen>();

  /**
   * @param periodMs about the time from one step of the clock to the next
   * @param isExact true = nothing loses credits, so that a refill is known to bring no more than what its amount lacks
   */
  constructor(network: Network, ledger: Ledger, periodMs: number, isExact: boolean, seed: number) {
    this.#network = network;
    this.#isExact = isExact;
    this.#ledger = ledger;
    this.#periodMs = periodMs;
    this.#random = new Random(seed);
    this.#step();
  }

  #step(): void {
    this.#network.timeline.after(this.#random.exponential(this.#periodMs), () => {
      // To the last moments of a day, so that the next one begins soon.
      const day = dayOf(this.#network.redisMs) + 1 + this.#random.pick(STEPS_DAYS);
      const atMs = day * DAY_MS - this.#random.between(0, 2 * this.#periodMs);
      this.#network.redisAheadMs += atMs - this.#network.redisMs;
      this.#step();
    });
  }

  /** Throws where an operation refilled what was not due, or dropped what was. */
  look(pools: ReadonlyMap<string, Pool>): void {
    const { redisMs } = this.#network;
    for (const [id, { refill, dueAtMs, refilledAtMs, lost, spoken }] of pools) {
      const seen = this.#seen.get(id) ?? { refill, dueAtMs, refilledAtMs, atMs: redisMs };
      // A clock that steps back may come to the very millisecond of an earlier refill.
      const isAgain = seen.dueAtMs <= redisMs && redisMs < dueAtMs && refilledAtMs === Math.floor(redisMs);
      const isNew = refilledAtMs !== seen.refilledAtMs || isAgain;
      const isOther = refill !== seen.refill || dueAtMs !== seen.dueAtMs;
      if (isNew) this.#refilled(id, refilledAtMs, seen, lost + spoken);
      else if (seen.refill && seen.dueAtMs <= redisMs && isOther)
        throw new Violation('I19', `${id} was due at ${seen.dueAtMs}, and is not any more`);
      // Another refill begins with the present, as where a clock that was wrong is set right.
      const atMs = isNew ? refilledAtMs : isOther ? redisMs : seen.atMs;
      this.#seen.set(id, { refill, dueAtMs, refilledAtMs, atMs });
    }
  }

  /** What is left and may be left of a pool: what work holds may come back. */
  #left(id: string, lost: number): number {
    const { granted, accepted, held } = this.#ledger.of(id);
    return granted - accepted + held - lost;
  }

  #refilled(id: string, refilledAtMs: number, { refill, atMs }: Seen, lost: number): void {
    if (dayOf(refilledAtMs) <= dayOf(atMs))
      throw new Violation('I19', `${id} of ${atMs} was refilled at ${refilledAtMs}`);
    const amount = Number(refill.slice(2));
    const isExact = this.#isExact && !this.#ledger.reduced.has(id);
    this.#ledger.grant(id, isExact ? Math.max(0, amount - this.#left(id, lost)) : amount);
    if (isExact) this.#ledger.refilled.add(id);
    else this.#ledger.reduced.add(id);
  }
}

const dayOf = (ms: number): number => Math.floor(ms / DAY_MS);
