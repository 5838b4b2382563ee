import { expect, test } from 'vitest';
import type { Clock } from '#shared/process/clock.ts';
import type { Waiter } from '../../../shared/metering/demand.ts';
import type { PoolReply } from '../../../shared/metering/exchange.ts';
import { Pool } from '../../../shared/metering/pool.ts';

/** Replies as Pools does. */
function answer(pool: Pool, reply: PoolReply): void {
  const woken = new Set<Waiter>();
  pool.takeReply(reply, woken);
  for (const waiter of woken) waiter.again();
  pool.endTurn(reply);
}

/** A pool of a rate limit that was granted 10 in a window that ends 500 ms after the exchange was sent; or one of credits. */
function granted(isLimit = true) {
  const now = { monotonicMs: 1000, wallMs: 1_700_000_000_000 };
  const clock: Clock = {
    monotonicMs: () => now.monotonicMs,
    wallMs: () => now.wallMs,
    after: () => ({ cancel: () => undefined }),
  };
  const window = isLimit ? { limit: 10, durationMs: 1000, isExact: false } : undefined;
  let requested = 0;
  const pool = new Pool(
    'key_1.1000.default',
    clock,
    2000,
    { request: () => requested++, isLive: () => true, position: () => 0 },
    window,
  );
  pool.beginTurn(1);
  const counts = {
    turn: 1,
    status: 'OK',
    granted: 10,
    spent: 0,
    reserve: 0,
    total: 0,
    refillMs: -1,
    leastNeed: 0,
  } as const;
  answer(pool, { ...counts, ...(isLimit ? { window: { number: 7, leftMs: 500 } } : {}) });
  return { pool, now, requests: () => requested };
}

test.each([
  ['both clocks', 501, 501],
  ['the monotonic clock, whose date was set back', 501, -9000],
  ['the date, where the machine was suspended and the monotonic clock stood', 0, 501],
])('a grant ends with its window: by %s', (_, monotonicMs, wallMs) => {
  const { pool, now } = granted();
  now.monotonicMs += 400;
  now.wallMs += 400;
  expect([pool.available, pool.look(1, now)]).toEqual([10, 'enough']);
  now.monotonicMs += monotonicMs - 400;
  now.wallMs += wallMs - 400;
  expect([pool.available, pool.look(1, now)]).toEqual([0, undefined]);
});

test('what remains is told to lookers for a second', () => {
  const { pool, now } = granted();
  now.monotonicMs += 450;
  now.wallMs += 450;
  expect([pool.look(0, now), pool.look(1, now)]).toEqual(['enough', 'enough']);
  const { pool: credits, now: then } = granted(false);
  then.monotonicMs += 999;
  expect(credits.look(0, then)).toBe('enough');
  then.monotonicMs += 1;
  expect([credits.look(0, then), credits.look(1, then)]).toEqual([undefined, 'enough']);
});

test('serves those who wait in their order', () => {
  const { pool, now } = granted(false);
  const served: number[] = [];
  const wait = (cost: number) => {
    const again = () => {
      const outlook = pool.look(cost, now);
      if (outlook === 'enough') pool.take(cost, now.monotonicMs);
      served.push(outlook === 'enough' ? cost : -cost);
    };
    pool.ask({ over: false, again, fail: () => undefined }, cost);
  };
  for (const cost of [60, 12, 12, 11]) wait(cost);
  expect(pool.beginTurn(2)).toMatchObject({
    kept: 10,
    needs: [
      { cost: 60, times: 1 },
      { cost: 12, times: 2 },
      { cost: 11, times: 1 },
    ],
  });
  const reply = {
    turn: 2,
    granted: 24,
    spent: 0,
    reserve: 14,
    total: 10,
    refillMs: -1,
    leastNeed: 11,
  };
  answer(pool, { ...reply, status: 'NONE' });
  expect(served).toEqual([12, 12, -60, -11]);
  expect(pool.remaining()).toBe(0);
  expect(pool.look(10, now)).toBeUndefined();
  now.monotonicMs += 1000;
  expect(pool.look(11, now)).toBeUndefined();
});

test('asks again if the window ended meanwhile', () => {
  const { pool, now } = granted();
  let asked = 0;
  const waiter = {
    over: false,
    fail: () => undefined,
    again: () => {
      if (asked++ < 1000 && pool.look(0, now, 10) === undefined) pool.ask(waiter, 0, 10);
    },
  };
  pool.ask(waiter, 0, 10);
  pool.beginTurn(2);
  now.monotonicMs += 700;
  const reply = { turn: 2, granted: 0, spent: 0, reserve: 0, total: 5, refillMs: -1, leastNeed: 0 };
  answer(pool, { ...reply, status: 'OK', window: { number: 7, leftMs: 600 } });
  expect(asked).toBe(1);
  expect(pool.beginTurn(3)).toMatchObject({ needs: [] });
});

test.each([
  ['NONE', 59_999],
  ['SPOKEN', 999],
  ['HELD', 999],
] as const)('a limit that is refused with %s is for %i ms', (status, ms) => {
  const { pool, now } = granted();
  pool.beginTurn(2);
  const reply = {
    turn: 2,
    granted: 0,
    spent: 0,
    reserve: 0,
    total: 0,
    refillMs: 300_000,
    leastNeed: 3,
  };
  answer(pool, { ...reply, status, window: { number: 7, leftMs: 600_000 } });
  now.monotonicMs += ms;
  expect([pool.look(3, now, 10), pool.look(2, now, 10)]).toEqual(['too little', undefined]);
  expect([pool.look(3, now, 9), pool.look(3, now, 11)]).toEqual(['too little', undefined]);
  now.monotonicMs += 1;
  expect(pool.look(3, now, 10)).toBeUndefined();
});

test('says what was spent when asked to give back', () => {
  const { pool, now, requests } = granted(false);
  pool.take(10, now.monotonicMs);
  const before = requests();
  pool.recall();
  expect(requests()).toBe(before + 1);
  pool.beginTurn(2);
  pool.recall();
  const reply = {
    turn: 2,
    granted: 15,
    spent: 10,
    reserve: 5,
    total: 10,
    refillMs: -1,
    leastNeed: 0,
  };
  answer(pool, { ...reply, status: 'OK' });
  expect(requests()).toBe(before + 2);
  expect(pool.beginTurn(3)).toMatchObject({ spent: 10, kept: 0 });
});

test('reset is the end of the window in Redis time', () => {
  const { pool, now } = granted();
  now.wallMs += 3_600_000;
  expect(pool.resetMs(now.monotonicMs)).toBe(8000);
  expect(pool.resetMs(now.monotonicMs + 499)).toBe(8000);
  expect(pool.resetMs(now.monotonicMs + 500)).toBe(9000);
  expect(pool.resetMs(now.monotonicMs + 2600)).toBe(11_000);
});

test('a new window leaves out the spent of the old', () => {
  const { pool, now } = granted();
  pool.take(3, now.monotonicMs);
  now.monotonicMs += 600;
  now.wallMs += 600;
  expect(pool.beginTurn(2)).toMatchObject({ spent: 3, window: { number: 7 } });
  const counts = {
    turn: 2,
    status: 'OK',
    granted: 4,
    spent: 0,
    reserve: 1,
    total: 8,
    refillMs: -1,
    leastNeed: 0,
  } as const;
  answer(pool, { ...counts, window: { number: 8, leftMs: 900 } });
  expect([pool.remaining(10), pool.available]).toEqual([9, 4]);
  pool.take(1, now.monotonicMs);
  expect(pool.remaining(10)).toBe(8);
});

test('takes off what was spent during the reply', () => {
  const { pool, now } = granted();
  pool.beginTurn(2);
  pool.take(3, now.monotonicMs);
  const counts = {
    turn: 2,
    status: 'OK',
    granted: 10,
    spent: 0,
    reserve: 0,
    total: 10,
    refillMs: -1,
    leastNeed: 0,
  } as const;
  answer(pool, { ...counts, window: { number: 7, leftMs: 400 } });
  expect([pool.remaining(10), pool.available]).toEqual([7, 7]);
});

test('what an ended pool gets back is told, whatever was asked before', () => {
  const timers: (() => void)[] = [];
  const clock: Clock = {
    monotonicMs: () => 1000,
    wallMs: () => 1000,
    after: (_ms, run) => {
      timers.push(run);
      return { cancel: () => undefined };
    },
  };
  const pool = new Pool(
    'p',
    clock,
    0,
    { request: () => undefined, isLive: () => true, position: () => 0 },
    undefined,
  );
  pool.beginTurn(1);
  const counts = { turn: 1, granted: 60, spent: 0, reserve: 60, total: 0, refillMs: -1, leastNeed: 0 };
  pool.takeReply({ ...counts, status: 'OK' }, new Set());
  pool.take(60, 1000, true);
  const since = pool.begin();
  pool.endTurn({ ...counts, status: 'OK' });
  pool.giveBack();
  pool.end(new Error('not in sync'));
  expect(pool.isReleased).toBe(false);
  pool.settle(since, 60, 0);
  expect(pool.isReleased).toBe(true);
  for (const run of timers.splice(0)) run();
  expect(pool.beginTurn(2)).toMatchObject({ spent: 0, held: 0, kept: 0 });
});

const REPLY = { status: 'OK', spent: 0, reserve: 0, total: 0, refillMs: -1, leastNeed: 0 } as const;
const WINDOW = { number: 7, leftMs: 500 };

test('a grant that is over counts as nothing in a turn', () => {
  const { pool, now } = granted();
  now.wallMs += 501;
  expect(pool.beginTurn(2)).toMatchObject({ kept: 0 });
});

test('what was granted before every verifier obeys a change serves only those who waited for it', () => {
  const { pool, now } = granted();
  let served = 0;
  const wait = () => {
    const again = () => {
      if (pool.look(1, now, 10) !== 'enough') return;
      pool.take(1, now.monotonicMs);
      served++;
    };
    pool.ask({ over: false, again, fail: () => undefined }, 1, 10);
  };
  pool.heed(now.monotonicMs + 100);
  expect(pool.look(1, now, 10)).toBeUndefined();
  wait();
  expect(pool.beginTurn(2)).toMatchObject({ kept: 0, slice: 0, needs: [{ cost: 1, times: 1 }] });
  answer(pool, { ...REPLY, turn: 2, granted: 3, reserve: 1, window: WINDOW });
  expect([served, pool.look(1, now, 10)]).toEqual([1, undefined]);
  now.monotonicMs += 100;
  expect(pool.look(1, now, 10)).toBeUndefined();
  expect(pool.beginTurn(3)).toMatchObject({ kept: 0 });
  answer(pool, { ...REPLY, turn: 3, granted: 3, spent: 1, window: WINDOW });
  expect(pool.look(1, now, 10)).toBe('enough');
});

test('a turn does not renew what it keeps', () => {
  const { pool, now } = granted();
  now.monotonicMs += 50;
  expect(pool.beginTurn(2)).toMatchObject({ kept: 10 });
  answer(pool, { ...REPLY, turn: 2, granted: 10, window: WINDOW });
  expect(pool.look(1, now, 10)).toBe('enough');
  pool.heed(now.monotonicMs - 1);
  expect(pool.look(1, now, 10)).toBeUndefined();
});

test('what is reserved for one who waits for another pool stays so after a change, and is for nobody else', () => {
  const { pool, now } = granted();
  const waiter = { over: false, again: () => undefined, fail: () => undefined };
  pool.heed(now.monotonicMs + 100);
  const again = () => pool.keep(waiter, 2, 10);
  pool.ask({ over: false, again, fail: () => undefined }, 2, 10);
  pool.beginTurn(2);
  answer(pool, { ...REPLY, turn: 2, granted: 2, reserve: 2, window: WINDOW });
  expect(pool.look(2, now, 10)).toBe('enough');
  expect(pool.beginTurn(3)).toMatchObject({ kept: 2 });
  answer(pool, { ...REPLY, turn: 3, granted: 2, window: WINDOW });
  waiter.over = true;
  expect(pool.look(2, now, 10)).toBeUndefined();
});

test('a place is free at Redis, not here, if its work began before every verifier obeyed a change', () => {
  const { pool, now } = granted();
  pool.take(1, now.monotonicMs, true);
  const since = pool.begin();
  pool.heed(now.monotonicMs + 100);
  now.monotonicMs += 150;
  pool.beginTurn(2);
  answer(pool, { ...REPLY, turn: 2, granted: 1, window: WINDOW });
  pool.settle(since, 1, 0);
  expect([pool.look(1, now, 10), pool.available]).toEqual([undefined, 0]);
});

test('a question may spend what could have been granted under its limit', () => {
  const { pool, now } = granted();
  pool.beginTurn(2);
  answer(pool, { ...REPLY, turn: 2, granted: 10, under: 6, window: WINDOW });
  expect([5, 6, 10].map((limit) => pool.look(1, now, limit))).toEqual([undefined, 'enough', 'enough']);
});
