import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Requests of mixed costs at several verifiers: nobody is refused while what is left suffices. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const [RUNS, REQUESTS, SPAN_MS, LEFT] = [150, 16, 20, 100];
const COSTS = [1, 2, 3, 5, 60];
const DAY_MS = 86_400_000;
const REFUSED = ['RATE_LIMITED', 'USAGE_EXCEEDED'];
/** Time for which a refusal is remembered, with some for this machine. */
const REMEMBERED_MS = 1100;
const ATTEMPTS = 3;
/** Runs in which a busy machine does not give back in 50 ms what was spoken for; before that was counted it was every second one. */
const LATE_RUNS_MAX = 4;
const pick = <T>(list: readonly T[]): T => list[Math.floor(Math.random() * list.length)] as T;

interface Kind {
  readonly name: string;
  readonly fields: object;
  readonly ask: (cost: number) => object;
  readonly left: (body: { ratelimit: { remaining: number }; remaining: number }) => number;
}

const KINDS: readonly Kind[] = [
  {
    name: 'a rate limit',
    fields: { ratelimit: { limit: LEFT, duration: 24 * DAY_MS } },
    ask: (cost) => ({ ratelimits: [{ name: 'default', cost }] }),
    left: ({ ratelimit }) => ratelimit.remaining,
  },
  {
    name: 'credits',
    fields: { remaining: LEFT },
    ask: (cost) => ({ remaining: { cost } }),
    left: ({ remaining }) => remaining,
  },
];

/** A key, and what is left of it by what verifiers accepted. */
class Run {
  rest = LEFT;
  /** Refusals that say themselves that so much is left, and those of what is left even now. */
  early: number[] = [];
  readonly #refused: number[] = [];
  readonly #kind: Kind;
  readonly #key: string;

  constructor(kind: Kind, key: string) {
    this.#kind = kind;
    this.#key = key;
  }

  static async begin(kind: Kind): Promise<Run> {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', ...kind.fields });
    return new Run(kind, key);
  }

  async ask(cost: number): Promise<void> {
    const { address } = pick(fleet.verifiers);
    const question = { key: this.#key, ...this.#kind.ask(cost) };
    const { status, body } = await fleet.post(`${address}/v1/keys.verifyKey`, question);
    expect({ status, refused: !body.valid }).toEqual({
      status: 200,
      refused: REFUSED.includes(body.code),
    });
    if (body.valid) this.rest -= cost;
    else if (cost <= this.#kind.left(body)) this.early.push(cost);
    else this.#refused.push(cost);
  }

  /** Many at once, and one after the other. */
  async burst(): Promise<void> {
    const one = async () => {
      await pause(Math.random() * SPAN_MS);
      await this.ask(pick(COSTS));
    };
    await Promise.all(Array.from({ length: REQUESTS }, one));
    this.early.push(...this.#refused.filter((cost) => cost <= this.rest));
  }

  /** All that still fits, at any verifier. Where one did not give back in time, as on a busy machine, it is asked for again. */
  async use(): Promise<void> {
    for (let attempt = 1; this.rest > 0 && attempt <= ATTEMPTS; attempt++) {
      await pause(REMEMBERED_MS);
      for (
        let cost = Math.max(0, ...fitting(this.rest));
        cost > 0;
        cost = Math.max(0, ...fitting(this.rest))
      ) {
        const before = this.rest;
        await this.ask(cost);
        if (this.rest === before) break;
      }
    }
  }
}

const fitting = (rest: number) => COSTS.filter((cost) => cost <= rest);

/** Refusals while others held enough and did not give it back in 50 ms, at all verifiers so far. */
async function withheld(): Promise<number> {
  let count = 0;
  for (const { adminAddress } of fleet.verifiers) {
    const text = await (await fetch(`${adminAddress}/metrics`)).text();
    for (const [, value] of text.matchAll(/^keyfence_(?:credits|limits)_withheld_total (\d+)/gm))
      count += Number(value);
  }
  return count;
}

describe.each(KINDS)('$name', (kind) => {
  test(`is used up to the last after ${RUNS} runs`, async () => {
    const runs = await Promise.all(Array.from({ length: RUNS }, () => Run.begin(kind)));
    for (let i = 0; i < RUNS; i += 10) await Promise.all(runs.slice(i, i + 10).map((run) => run.burst()));
    await Promise.all(runs.map((run) => run.use()));
    expect(runs.map(({ rest }) => rest).filter((rest) => rest !== 0)).toEqual([]);
    const early = runs.filter((run) => run.early.length > 0);
    expect(early.length, JSON.stringify(early)).toBeLessThanOrEqual(LATE_RUNS_MAX + (await withheld()));
  });
});
