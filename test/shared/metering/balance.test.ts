import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Balance } from '../../../shared/metering/balance.ts';

/** A balance to which 10 are granted under the limit 10. */
function tenOf(limit = 10): Balance {
  const balance = new Balance();
  balance.begin(0, limit);
  balance.reply(10, 0, limit);
  return balance;
}

test('what is granted is for its limit or a higher one', () => {
  const balance = tenOf(6);
  expect([5, 6, 7].map((limit) => balance.availableUnder(limit))).toEqual([0, 10, 10]);
});

test('what a hold did not need can be spent again', () => {
  const balance = tenOf();
  balance.hold(8);
  expect([balance.available, balance.uses, balance.held]).toEqual([2, 8, 8]);
  expect(balance.settle(balance.since, 8, 3)).toBe('here');
  expect([balance.available, balance.uses, balance.held]).toEqual([7, 3, 0]);
});

test.each([
  ['a change', (balance: Balance) => balance.void()],
  ['a turn under a lower limit', (balance: Balance) => balance.begin(0, 4)],
  ['a turn after a change', (balance: Balance) => balance.begin(0, 10, true)],
])('after %s, what comes back is for Redis', (_, change) => {
  const balance = tenOf();
  const { since } = balance;
  balance.hold(8);
  change(balance);
  expect(balance.available).toBe(0);
  expect(balance.settle(since, 8, 3)).toBe('Redis');
  expect([balance.available, balance.uses, balance.held]).toEqual([0, 3, 0]);
});

test('what an earlier window held comes back nowhere', () => {
  const balance = tenOf();
  const { since } = balance;
  balance.hold(8);
  balance.begin(0, 10);
  balance.enter();
  balance.reply(10, 0, 10);
  expect([balance.available, balance.uses, balance.held]).toEqual([10, 0, 0]);
  expect(balance.settle(since, 8, 3)).toBe('nowhere');
  expect([balance.available, balance.uses, balance.held]).toEqual([10, 0, 0]);
});

test('a reply does not know what went back meanwhile', () => {
  const balance = tenOf();
  const { since } = balance;
  balance.hold(8);
  balance.void();
  balance.begin(0, 10);
  balance.settle(since, 8, 0);
  // Redis heard of 8 that are held, and granted 2 more.
  balance.reply(10, 8, 10);
  expect([balance.available, balance.uses]).toEqual([2, 0]);
});

test('a new name brings what is held, and no more', () => {
  const balance = tenOf();
  balance.spend(2);
  const { since } = balance;
  balance.hold(3);
  balance.rename();
  expect([balance.uses, balance.held, balance.available]).toEqual([3, 3, 0]);
  balance.settle(since, 3, 0);
  expect([balance.uses, balance.available]).toEqual([0, 0]);
});

test('tells work from before a divide apart', () => {
  const balance = new Balance();
  balance.reply(10, 0, 10);
  const old = [balance.since, balance.since] as const;
  balance.hold(2);
  balance.hold(3);
  balance.void();
  balance.begin(0, Number.POSITIVE_INFINITY);
  balance.settle(old[0], 2, 1);
  balance.divideAt(7);
  balance.reply(10, 0, 10);
  expect(balance.divide).toEqual({ turn: 7, held: 3, back: 1 });
  const { since } = balance;
  balance.hold(4);
  balance.settle(since, 4, 0);
  balance.settle(old[1], 3, 1);
  expect(balance.divide).toEqual({ turn: 7, held: 0, back: 3 });
});

/** Units one by one, each with the limit and the change after which it was granted. */
class Units {
  free: { limit: number; since: number }[] = [];
  held: { limit: number; since: number }[][] = [];
  spent = 0;
  since = 0;
  under = Number.POSITIVE_INFINITY;
}

const STEP = fc.oneof(
  fc.record({ kind: fc.constant('turn' as const), limit: fc.constantFrom(2, 4, 6), more: fc.nat(5) }),
  fc.record({
    kind: fc.constantFrom('spend' as const, 'hold' as const),
    limit: fc.constantFrom(2, 4, 6),
    cost: fc.nat(4),
  }),
  fc.record({ kind: fc.constant('settle' as const), at: fc.nat(9), cost: fc.nat(4) }),
  fc.record({ kind: fc.constant('change' as const) }),
);

test('agrees with a ledger that knows each unit', () => {
  fc.assert(
    fc.property(fc.array(STEP, { maxLength: 60 }), (steps) => {
      const balance = new Balance();
      const units = new Units();
      const holds: { since: number; held: number }[] = [];
      for (const step of steps) {
        if (step.kind === 'turn') {
          if (step.limit < units.under && units.under !== Number.POSITIVE_INFINITY) units.since++;
          const kept = balance.availableUnder(step.limit);
          units.free = units.free.filter(({ limit }) => limit <= step.limit);
          expect(units.free).toHaveLength(kept);
          balance.begin(kept, step.limit);
          balance.reply(balance.uses + kept + step.more, 0, step.limit);
          units.under = step.limit;
          const fresh = Array.from({ length: step.more }, () => ({ limit: step.limit, since: units.since }));
          // A balance takes all for the limit of its latest turn.
          units.free = [...units.free.map((unit) => ({ ...unit, limit: step.limit })), ...fresh];
        } else if (step.kind === 'change') {
          balance.void();
          units.since++;
          units.free = [];
        } else if (step.kind === 'settle') {
          const [hold] = holds.splice(step.at, 1);
          const [own] = units.held.splice(step.at, 1);
          if (!hold || !own) continue;
          const cost = Math.min(step.cost, hold.held);
          balance.settle(hold.since, hold.held, cost);
          units.spent += cost;
          const back = own.slice(cost).filter(({ since }) => since === units.since);
          units.free.push(...back.map((unit) => ({ ...unit, limit: units.under })));
        } else if (balance.availableUnder(step.limit) >= step.cost) {
          const part = units.free.splice(0, step.cost);
          expect(part.every(({ limit, since }) => limit <= step.limit && since <= units.since)).toBe(true);
          if (step.kind === 'spend') {
            balance.spend(step.cost);
            units.spent += step.cost;
          } else {
            balance.hold(step.cost);
            holds.push({ since: balance.since, held: step.cost });
            units.held.push(part.map((unit) => ({ ...unit, since: units.since })));
          }
        }
        const held = units.held.flat().length;
        expect([balance.available, balance.uses, balance.held]).toEqual([
          units.free.length,
          units.spent + held,
          held,
        ]);
      }
    }),
    { numRuns: 500 },
  );
});
