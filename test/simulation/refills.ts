import { Violation } from './checker.ts';
import type { Ledger } from './ledger.ts';
import type { Network } from './network.ts';
import type { PoolState } from './pools.ts';
import { Random } from './random.ts';

/** Times by which the clock of Redis steps, in days of the simulation. */
const STEPS_DAYS = [-40, -3, -1, -0.4, 0.4, 1, 3, 40];

/** What was seen of a pool after the latest operation on it. */
interface Seen {
  readonly refills: number;
  readonly refill: PoolState['refill'];
  readonly dueAtMs: number;
  /** When it was made, or refilled last. */
  readonly atMs: number;
}

/** Refills of credits by the clock of Redis, which steps over many days, and back: one a day at most, and none is dropped. */
export class Refills {
  readonly #network: Network;
  readonly #ledger: Ledger;
  readonly #dayMs: number;
  readonly #random: Random;
  readonly #seen = new Map<string, Seen>();

  constructor(network: Network, ledger: Ledger, dayMs: number, seed: number) {
    this.#network = network;
    this.#ledger = ledger;
    this.#dayMs = dayMs;
    this.#random = new Random(seed);
    this.#step();
  }

  #step(): void {
    this.#network.timeline.after(this.#random.exponential(2 * this.#dayMs), () => {
      this.#network.redisAheadMs += this.#random.pick(STEPS_DAYS) * this.#dayMs;
      this.#step();
    });
  }

  /** Throws where an operation refilled what was not due, or dropped what was. */
  look(pools: ReadonlyMap<string, PoolState>): void {
    for (const [id, pool] of pools) {
      const { refill, dueAtMs, refills } = pool;
      const seen = this.#seen.get(id) ?? this.#atFirst(pool);
      const isNew = refills > seen.refills;
      if (isNew) this.#refilled(id, pool, seen);
      else if (
        seen.refill &&
        seen.dueAtMs <= this.#network.redisMs &&
        (refill !== seen.refill || dueAtMs !== seen.dueAtMs)
      )
        throw new Violation('I19', `${id} was due at ${seen.dueAtMs}, and is not any more`);
      // Another refill begins with the present, as where a clock that was wrong is set right.
      const isOther = refill !== seen.refill;
      const atMs = isOther ? this.#network.redisMs : isNew ? pool.refilledAtMs : seen.atMs;
      this.#seen.set(id, { refills, refill, dueAtMs, atMs });
    }
  }

  /** Returns the state of a pool before its first operation. A refill that is due before the pool was made was set by that operation, after the clock had gone back. */
  #atFirst({ refill, dueAtMs, madeAtMs }: PoolState): Seen {
    const atMs = dueAtMs <= madeAtMs ? this.#network.redisMs : madeAtMs;
    return { refills: 0, refill, dueAtMs, atMs };
  }

  #refilled(id: string, { refills, refilledAtMs, refilledTo }: PoolState, seen: Seen): void {
    const days = [seen.atMs, refilledAtMs].map((ms) => Math.floor(ms / this.#dayMs));
    if (refills !== seen.refills + 1 || (days[1] ?? 0) <= (days[0] ?? 0))
      throw new Violation('I19', `${id} of ${seen.atMs} was refilled at ${refilledAtMs}, time ${refills}`);
    this.#ledger.grant(id, refilledTo);
    this.#ledger.reduced.add(id);
  }
}
