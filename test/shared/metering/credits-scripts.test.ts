import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import { endDebt } from '../../../shared/metering/end-debt.ts';
import { exchangeTurns } from '../../../shared/metering/exchange.ts';
import { apiKeys, poolKey, recordKey } from '../../../shared/redis/redis-keys.ts';
import { scriptsOnRedis } from '../../harness/scripts.ts';

const { at, run } = scriptsOnRedis();
const { members, held, recalls } = apiKeys('a');
const pool = poolKey('a', 'p');
const DAY_S = 86_400;

/** One turn of a holder, and its reply by name. */
async function exchange(member: string, turn: number, said: object = {}) {
  const { spent, holds, position, divide, kept, need, wanted } = {
    ...{ spent: '-', holds: 0, position: 9, divide: '', kept: 0, need: 0, wanted: 0 },
    ...said,
  } as Record<string, string | number>;
  const turns = [
    turn,
    spent ?? '-',
    `${holds} ${position} ${divide}`,
    kept ?? 0,
    need ? `${need}x1` : '',
    wanted ?? 0,
    '-',
    '-',
    '-',
    '-',
  ];
  const about = { members, held, names: [pool], member, channel: recalls, recall: 50, turns };
  const [reply] = await run(exchangeTurns(about));
  if (!reply) throw new Error('no reply');
  return reply;
}

describe('an exchange', () => {
  beforeEach(async () => {
    await at.redis.zadd(members, 0, '2.a', 0, '2.b');
    await at.redis.hset(pool, { b: 100, h: 0 });
  });

  test('grants what is needed and at most a quarter', async () => {
    expect(await exchange('2.a', 1, { need: 4, wanted: 1000 })).toMatchObject({
      ...{ status: 'OK', granted: 16, reserve: 4, total: 96 },
    });
    expect(await at.redis.hget(pool, 'b')).toBe('84');
  });

  test('takes back what was not kept or not received', async () => {
    await exchange('2.a', 1, { need: 4, wanted: 1000 });
    expect(await exchange('2.a', 2, { spent: 1 })).toMatchObject({ status: 'OK', granted: 1, total: 99 });
    expect(await at.redis.hget(pool, 'b')).toBe('99');
  });

  test('counts what is out by what is spent', async () => {
    await exchange('2.a', 1, { need: 4, wanted: 1000 });
    for (const [turn, spent] of [
      [2, 5],
      [3, 6],
    ] as const) {
      await exchange('2.a', turn, { spent, kept: 16 - spent });
      expect(await at.redis.hmget(pool, 'b', 'h')).toEqual(['84', String(16 - spent)]);
    }
  });

  test('changes nothing if late or about an old pool', async () => {
    await exchange('2.a', 5, { need: 4 });
    await exchange('2.a', 6, { spent: 3 });
    const before = await at.redis.hgetall(pool);
    expect((await exchange('2.a', 6, { spent: 4 })).status).toBe('OLD');
    expect((await exchange('nobody', 1, { need: 1 })).status).toBe('OLD');
    expect(await at.redis.hgetall(pool)).toEqual(before);
    await at.redis.del(pool);
    expect((await exchange('2.a', 8)).status).toBe('STALE');
    expect(await at.redis.exists(pool)).toBe(0);
  });

  test('takes back what was held and not needed', async () => {
    await exchange('2.a', 1, { need: 40 });
    await exchange('2.a', 2, { spent: 40 });
    expect(await at.redis.hmget(pool, 'b', '@2.a')).toEqual(['60', '40 40 2 0']);
    await exchange('2.a', 3, { spent: 10 });
    expect(await at.redis.hmget(pool, 'b', '@2.a')).toEqual(['90', '10 10 3 0']);
  });

  test('a refill counts what may come back', async () => {
    await at.redis.hset(pool, { r: 'd 100', t: 1 });
    await exchange('2.a', 1, { need: 90 });
    expect(await exchange('2.a', 2, { spent: 90, holds: 90 })).toMatchObject({ total: 10 });
    await at.redis.hset(pool, { t: 1 });
    await exchange('2.a', 3, { spent: 90, holds: 90 });
    expect(await at.redis.hmget(pool, 'b', 'e', '~2.a')).toEqual(['10', '90', '90']);
    expect(await exchange('2.a', 4, { spent: 0 })).toMatchObject({ total: 100, most: 100 });
    expect(await at.redis.hmget(pool, 'b', 'e', '~2.a')).toEqual(['100', '0', null]);
  });

  test('a refill brings no more because what is spoken for may pay', async () => {
    await at.redis.hset(pool, { b: 6, r: 'd 3', t: 9e12 });
    await exchange('2.a', 1, { need: 2 });
    await exchange('2.a', 2, { spent: 2, holds: 2, need: 4 });
    await at.redis.hset(pool, { o: 6, '!2.a': '6 7', t: 1 });
    expect(await exchange('2.b', 1)).toMatchObject({ total: 3 });
    // What is spoken for comes back, and then what work held: both pay.
    expect(await exchange('2.a', 3, { spent: 2, holds: 2 })).toMatchObject({ total: 3 });
    expect(await exchange('2.a', 4, { spent: 0 })).toMatchObject({ total: 3 });
    expect(await at.redis.hmget(pool, 'b', 'o')).toEqual(['3', null]);
  });

  test('what is spoken for pays nothing of what others can spend', async () => {
    await at.redis.hset(recordKey('a', 'k'), 'q', 'p');
    await at.redis.hset(pool, { b: 10, o: 4, '@2.a': '4 0 1 4', '!2.a': '4 7' });
    expect(await run(endDebt('a', 'k'))).toEqual({ isEnded: '0', remaining: '10' });
  });

  test.each([
    ['comes back', 0, ['0', null]],
    ['comes back in part', 30, ['0', null]],
    ['is spent', 90, ['0', null]],
  ] as const)('what was owed and %s pays or is forgiven', async (_, spent, after) => {
    await exchange('2.a', 1, { need: 90 });
    await exchange('2.a', 2, { spent: 90, holds: 90 });
    await at.redis.hset(pool, { b: 0, o: 90, '!2.a': 90 });
    await exchange('2.a', 3, { spent });
    expect(await at.redis.hmget(pool, 'b', 'o')).toEqual(after);
  });

  test('an increment does not pay what is owed', async () => {
    await exchange('2.a', 1, { need: 90 });
    await exchange('2.a', 2, { spent: 90, holds: 90 });
    await at.redis.hset(pool, { b: 5, o: 90, '!2.a': 90 });
    await exchange('2.b', 1, { need: 5 });
    expect(await at.redis.hmget(pool, 'b', 'o', '@2.b')).toEqual(['0', '90', '5 0 1 5']);
  });

  test('what was granted since pays nothing', async () => {
    await exchange('2.a', 1, { need: 90 });
    await exchange('2.a', 2, { spent: 90, holds: 90 });
    await at.redis.hset(pool, { b: 100, o: 90, '!2.a': 90 });
    for (const member of ['2.a', '2.b'] as const) {
      const spent = member === '2.a' ? 90 : 0;
      await exchange(member, 3, { spent, holds: spent, need: 20 });
      await exchange(member, 4, { spent, holds: spent });
      expect(await at.redis.hmget(pool, 'b', 'o')).toEqual(['100', '90']);
    }
    await exchange('2.a', 5, { spent: 90 });
    expect(await at.redis.hmget(pool, 'b', 'o', '!2.a')).toEqual(['100', null, null]);
  });

  test('new work does not hide what came back', async () => {
    await exchange('2.a', 1, { need: 90 });
    await exchange('2.a', 2, { spent: 90, holds: 90 });
    await at.redis.hset(pool, { b: 100, o: 90, '!2.a': '90 7' });
    // It has not applied the decrement yet, then it has.
    expect(await exchange('2.a', 3, { spent: 90, holds: 90, position: 6 })).toMatchObject({
      isDivide: false,
    });
    expect(await exchange('2.a', 4, { spent: 90, holds: 90, need: 80 })).toMatchObject({ isDivide: true });
    // Of 80 held since and 90 from before, 70 came back and 20 were spent.
    await exchange('2.a', 5, { spent: 100, holds: 80, divide: '0 4 70' });
    expect(await at.redis.hmget(pool, 'b', 'o', '!2.a')).toEqual(['20', null, null]);
  });

  test('what is held is not used', async () => {
    await at.redis.hset(pool, { d: '100 0 50' });
    await exchange('2.a', 1, { need: 90 });
    await exchange('2.a', 2, { spent: 90, holds: 90 });
    expect(await at.redis.exists('kf:{a}:u:!x')).toBe(0);
    await exchange('2.a', 3, { spent: 60 });
    expect(await at.redis.hkeys('kf:{a}:u:!x')).toEqual(['p 50']);
  });

  test('of a former name gets nothing more', async () => {
    await exchange('2.a', 1, { need: 4, wanted: 1000 });
    await at.redis.zrem(members, '2.a');
    expect((await exchange('2.a', 2, { spent: 2, need: 1 })).status).toBe('NOREG');
    expect(await at.redis.hget(pool, 'b')).toBe('98');
  });

  test('asks others for what they hold, once', async () => {
    await at.redis.hset(pool, { b: 0, h: 5, '@2.b': '5 0 1 0' });
    const heard: string[] = [];
    const listener = at.redis.duplicate();
    listener.on('message', (_channel: string, message: string) => heard.push(message));
    await listener.subscribe(recalls);
    expect((await exchange('2.a', 1, { need: 5 })).status).toBe('WAIT');
    expect((await exchange('2.a', 2, { need: 5 })).status).toMatch(/WAIT|HELD/);
    expect(await exchange('2.a', 3, { need: 6 })).toMatchObject({ status: 'NONE', total: 5 });
    await at.redis.hset(pool, '@2.b', `5 0 1 0 ${Date.now() - 500}`);
    expect((await exchange('2.a', 4, { need: 5 })).status).toBe('HELD');
    await listener.quit();
    expect(heard).toEqual(['p']);
  });

  test('refills once, and never above the amount', async () => {
    const today = Math.floor(Date.now() / 1000 / DAY_S) * DAY_S;
    await at.redis.zadd(held, today, 'gone');
    await at.redis.hset(pool, {
      b: 1,
      h: 12,
      r: 'd 50',
      t: today - 1,
      '@2.b': '5 0 1 0',
      '@gone': '9 2 1 3',
      '@forgotten': '6 1 1 2',
    });
    const first = await exchange('2.a', 1, { need: 1 });
    // 50 with the 5 of a live holder; what a former one had is lost.
    expect(first).toMatchObject({ status: 'OK', total: 49 });
    expect(first.refillMs).toBeGreaterThan(0);
    expect(await at.redis.hmget(pool, 'b', 'l', 'h')).toEqual(['44', '12', '5']);
    expect(await at.redis.hexists(pool, '@forgotten')).toBe(0);
    expect((await exchange('2.a', 2, { spent: 1, need: 1 })).total).toBe(48);
    expect((await exchange('gone', 2, { spent: 2 })).status).toBe('OLD');
  });
});

test('refills a month on its day or its last one', async () => {
  const credits = readFileSync(new URL('../../../shared/metering/credits.lua', import.meta.url), 'utf8');
  const lua = `${credits.replace("redis.call('TIME')", "{ARGV[1], '0'}")}
    local _, due = creditsOf('m', 'h').refillOf(ARGV[2])
    return string.format('%.0f', due)`;
  const next = async (now: string, refill: string) =>
    new Date(1000 * Number(await at.redis.eval(lua, 0, Date.parse(now) / 1000, refill))).toISOString();
  expect(await next('2026-01-31T00:00:00Z', 'm 5 31')).toBe('2026-02-28T00:00:00.000Z');
  expect(await next('2028-02-01T12:00:00Z', 'm 5 30')).toBe('2028-02-29T00:00:00.000Z');
  expect(await next('2026-12-15T00:00:00Z', 'm 5 15')).toBe('2027-01-15T00:00:00.000Z');
  expect(await next('2026-03-14T23:59:59Z', 'm 5 15')).toBe('2026-03-15T00:00:00.000Z');
  expect(await next('2026-12-31T23:59:59Z', 'd 5')).toBe('2027-01-01T00:00:00.000Z');
  for (let day = 0; day < 3000; day += 7) {
    const now = new Date(Date.UTC(2026, 0, 1 + day, 5)).toISOString();
    const due = new Date(await next(now, 'm 1 31'));
    expect(due.getTime()).toBeGreaterThan(Date.parse(now));
    expect(new Date(due.getTime() + 1000 * DAY_S).getUTCDate()).toBe(1);
  }
});
