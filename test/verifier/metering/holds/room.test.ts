import { expect, test } from 'vitest';
import type { PoolReply } from '../../../../shared/metering/exchange.ts';
import { Pool } from '../../../../shared/metering/pool.ts';
import { instant, systemClock } from '../../../../shared/process/clock.ts';
import { ownLimit } from '../../../../shared/protocol/records/limits-in-memory.ts';
import { LookupGivenUp } from '../../../../verifier/core/given-up.ts';
import { type Need, spend } from '../../../../verifier/metering/allowance.ts';
import { Holds } from '../../../../verifier/metering/holds.ts';

const clock = { ...systemClock, after: () => ({ cancel: () => undefined }) };
const newHolds = () =>
  new Holds(
    { verifierId: 'verifier_1', clock, waitMs: 50, tooSlow: () => new Error('too slow'), placeOf: () => '' },
    () => undefined,
  );
const begin = (holds: Holds, keyId: string, needs: readonly Need[] = []) =>
  holds.begin({ keyId, epoch: { apiId: 'shop' } }, { key: '' }, needs, { forMs: 1000 }).id;
const full = (holds: Holds, keyId: string) => {
  try {
    holds.checkRoom(keyId);
    return undefined;
  } catch (error) {
    return error instanceof LookupGivenUp ? error.reason : error;
  }
};

test('one key leaves room for others', () => {
  const holds = newHolds();
  const ids = Array.from({ length: 10_000 }, () => begin(holds, 'key_1'));
  expect([full(holds, 'key_1'), full(holds, 'key_2')]).toEqual(['held', undefined]);
  void holds.release(ids[0] ?? '');
  expect(full(holds, 'key_1')).toBeUndefined();
});

test('a verifier has 50,000 holds at most', () => {
  const holds = newHolds();
  for (let i = 0; i < 50_000; i++) begin(holds, `key_${i % 10}`);
  expect([holds.size, full(holds, 'key_new')]).toEqual([50_000, 'held']);
});

test('without room nothing is taken, and a refusal is one', () => {
  const limit = { ...ownLimit('calls', 5, 60_000), isBrought: false, isAutoApplied: true };
  const pool = new Pool(
    'k.60000.calls',
    clock,
    0,
    { request: () => undefined, isLive: () => true, position: () => 0 },
    limit,
  );
  pool.ask({ over: false, again: () => undefined, fail: () => undefined }, 1, 5);
  pool.beginTurn(1);
  const reply: PoolReply = {
    ...({ turn: 1, status: 'NONE', granted: 2, spent: 0, reserve: 0, total: 0, refillMs: 60_000 } as const),
    ...{ leastNeed: 3, window: { number: 1, leftMs: 60_000 } },
  };
  pool.takeReply(reply, new Set());
  pool.endTurn(reply);
  const need = (cost: number): Need => ({ pool, cost, limit });
  const noRoom = () => {
    throw new LookupGivenUp('held', 'too many holds are open');
  };
  expect(() => spend([need(2)], instant(clock), noRoom)).toThrow(LookupGivenUp);
  expect(pool.available).toBe(2);
  expect(spend([need(3)], instant(clock), noRoom)?.code).toBe('RATE_LIMITED');
});

test('a release takes more only under a lease', async () => {
  const holds = newHolds();
  let isLive = true;
  const pool = new Pool(
    'credits',
    clock,
    0,
    { request: () => undefined, isLive: () => isLive, position: () => 0 },
    undefined,
  );
  pool.ask({ over: false, again: () => undefined, fail: () => undefined }, 9);
  pool.beginTurn(1);
  const reply: PoolReply = {
    ...({ turn: 1, status: 'OK', granted: 9, spent: 0, reserve: 9, total: 0, refillMs: -1 } as const),
    leastNeed: 0,
  };
  pool.takeReply(reply, new Set());
  pool.endTurn(reply);
  const needs: Need[] = [{ pool, cost: 3, limit: undefined }];
  spend(needs, instant(clock), () => undefined);
  const id = begin(holds, 'key_1', needs);
  isLive = false;
  await expect(holds.release(id, { credits: 5 })).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
  expect(pool.available).toBe(6);
  isLive = true;
  expect(await holds.release(id, { credits: 5 })).toMatchObject({ charged: 5 });
  expect(pool.available).toBe(4);
});
