/** Microseconds of CPU time of Redis' main thread, unless a field says otherwise. */
export interface Costs {
  readonly createUs: number;
  /** A change with its message and the check of its fence, without verifiers. */
  readonly updateUs: number;
  /** The message of a change, per verifier. */
  readonly publishUs: number;
  /** The SYNC that acknowledges a change, per verifier. */
  readonly ackUs: number;
  /** A SYNC without news; each verifier sends one per second and API. */
  readonly idleSyncUs: number;
  /** The look-up of a key that a verifier meets for the first time: its pointer and its record. */
  readonly lookupUs: number;
  /** Bytes of Redis' memory. */
  readonly bytesPerKey: number;
  readonly bytesPerVerifier: number;
  /** CPU time of the verifier for one verifyKey over HTTP, from memory. */
  readonly verifyUs: number;
}

/** One API on one Redis. Times in milliseconds. */
export interface OneApi {
  readonly verifiers: number;
  readonly changesPerSecond: number;
  /** Busy share of Redis' main thread, 0..1. */
  readonly busy: number;
  /** Time from a change reaching Redis until every verifier has acknowledged it. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** All times below are in microseconds. */
const SIMULATED_MIN = 4_000_000;
const CHANGES_MIN = 20;
const SYNC_PERIOD = 1_000_000;
/**
 * The one-way delay between two machines of a data centre, and the maximum of a random delay until a process
 * reads what arrived.
 */
const NETWORK = 250;
const HANDLING_MAX = 1000;

interface Verifier {
  applied: number;
  /** The sequence that Redis knows the verifier to have applied. */
  acknowledged: number;
  syncing: boolean;
  /** True if another SYNC is due as soon as the present one is answered. */
  again: boolean;
}

/**
 * Simulates the protocol on a Redis that does one thing at a time, each for its measured cost: changes at
 * random times with a message for each verifier, a SYNC after each message (messages that arrive during a
 * SYNC share the next), and each verifier's idle SYNC once a second.
 */
export function simulate(costs: Costs, verifiers: number, changesPerSecond: number): OneApi {
  const length = Math.max(SIMULATED_MIN, (CHANGES_MIN * 1_000_000) / changesPerSecond);
  const random = generator(verifiers + changesPerSecond);
  const simulation = new Simulation(costs, random);
  const all = simulation.addVerifiers(verifiers, length);
  for (let at = 0; ; ) {
    at += (-Math.log(1 - random()) * 1_000_000) / changesPerSecond;
    if (at > length) break;
    simulation.addChange(at, all);
  }
  const { endedAt, worked, tookMs } = simulation.run();
  const percentile = (share: number) => tookMs[Math.floor((tookMs.length - 1) * share)] ?? Number.NaN;
  return {
    verifiers,
    changesPerSecond,
    busy: worked / Math.max(length, endedAt),
    p50Ms: percentile(0.5),
    p99Ms: percentile(0.99),
  };
}

/** One run: its agenda, Redis, and the unacknowledged changes. */
class Simulation {
  readonly #costs: Costs;
  readonly #random: () => number;
  readonly #agenda = new Agenda();
  /** When each change arrived, and how many verifiers have not acknowledged it. */
  readonly #changes: { at: number; missing: number }[] = [];
  readonly #tookMs: number[] = [];
  /** Time at which Redis will have finished its queue. */
  #freeAt = 0;
  /** Total time for which Redis worked. */
  #worked = 0;

  constructor(costs: Costs, random: () => number) {
    this.#costs = costs;
    this.#random = random;
  }

  /** Adds verifiers that send an idle SYNC about once a second, until `length`. */
  addVerifiers(count: number, length: number): Verifier[] {
    const all = Array.from(
      { length: count },
      (): Verifier => ({ applied: 0, acknowledged: 0, syncing: false, again: false }),
    );
    for (const verifier of all) {
      const tick = (now: number) => {
        if (now > length) return;
        this.#sync(now, verifier);
        this.#agenda.add(now + SYNC_PERIOD * (0.9 + 0.2 * this.#random()), tick);
      };
      this.#agenda.add(this.#random() * SYNC_PERIOD, tick);
    }
    return all;
  }

  /** Adds a change, which sends a message to each verifier. */
  addChange(at: number, verifiers: readonly Verifier[]): void {
    const { updateUs, publishUs } = this.#costs;
    this.#agenda.add(at, (now) => {
      const sequence = this.#changes.push({ at: now, missing: verifiers.length });
      const done = this.#serve(now, updateUs + verifiers.length * publishUs);
      for (const verifier of verifiers) {
        this.#agenda.add(done + this.#travel(), (arrived) => {
          verifier.applied = Math.max(verifier.applied, sequence);
          this.#sync(arrived, verifier);
        });
      }
    });
  }

  /** Runs until the agenda is empty. */
  run(): { readonly endedAt: number; readonly worked: number; readonly tookMs: readonly number[] } {
    const endedAt = this.#agenda.run();
    return { endedAt, worked: this.#worked, tookMs: this.#tookMs.sort((a, b) => a - b) };
  }

  #travel(): number {
    return NETWORK + this.#random() * HANDLING_MAX;
  }

  /** Occupies Redis for `duration` as soon as it is free; returns when it is done. */
  #serve(now: number, duration: number): number {
    this.#worked += duration;
    this.#freeAt = Math.max(this.#freeAt, now) + duration;
    return this.#freeAt;
  }

  #sync(now: number, verifier: Verifier): void {
    if (verifier.syncing) {
      verifier.again = true;
      return;
    }
    verifier.syncing = true;
    const { ackUs, idleSyncUs } = this.#costs;
    const position = verifier.applied;
    this.#agenda.add(now + this.#travel(), (arrived) => {
      const done = this.#serve(arrived, position > verifier.acknowledged ? ackUs : idleSyncUs);
      for (const change of this.#changes.slice(verifier.acknowledged, position)) {
        if (--change.missing === 0) this.#tookMs.push((done - change.at) / 1000);
      }
      verifier.acknowledged = position;
      this.#agenda.add(done + this.#travel(), (replied) => {
        verifier.syncing = false;
        if (verifier.again) this.#sync(replied, verifier);
        verifier.again = false;
      });
    });
  }
}

type Event = { readonly at: number; readonly run: (now: number) => void };

/** Events in the order of time: a binary heap. */
class Agenda {
  readonly #heap: Event[] = [];

  add(at: number, run: (now: number) => void): void {
    const heap = this.#heap;
    let i = heap.push({ at, run }) - 1;
    for (;;) {
      const parent = (i - 1) >> 1;
      const [above, here] = [heap[parent], heap[i]];
      if (!above || !here || above.at <= here.at) return;
      heap[parent] = here;
      heap[i] = above;
      i = parent;
    }
  }

  /** Runs all events; returns the time of the last. */
  run(): number {
    for (let now = 0; ; ) {
      const next = this.#take();
      if (!next) return now;
      now = next.at;
      next.run(now);
    }
  }

  #take(): Event | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (!last || heap.length === 0) return first;
    heap[0] = last;
    for (let i = 0; ; ) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if ((heap[child]?.at ?? Number.POSITIVE_INFINITY) < (heap[least]?.at ?? 0)) least = child;
      }
      const [here, below] = [heap[i], heap[least]];
      if (least === i || !here || !below) return first;
      heap[i] = below;
      heap[least] = here;
      i = least;
    }
  }
}

/** Mulberry32, which generates the same numbers for the same seed. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
