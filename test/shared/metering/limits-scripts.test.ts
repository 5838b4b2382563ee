import { readFileSync } from 'node:fs';
import { beforeEach, expect, test } from 'vitest';
import { exchangeTurns } from '../../../shared/metering/exchange.ts';
import { type Anchor, calendarOf, type Period } from '../../../shared/protocol/records/calendar.ts';
import { apiKeys, broughtIndex, windowKey } from '../../../shared/redis/redis-keys.ts';
import { scriptsOnRedis } from '../../harness/scripts.ts';

const { at, run } = scriptsOnRedis();
const { members, held, recalls } = apiKeys('a');
const name = windowKey('a', 'k.1.default');
const DAY_MS = 86_400_000;
const LIMIT = 100;

beforeEach(async () => {
  await at.redis.zadd(members, 0, '2.a', 0, '2.b');
});

const present = () => Math.floor(Date.now() / DAY_MS);

/** One turn of a holder, and its reply by name. */
async function exchange(member: string, turn: number, said: object = {}, brought?: string) {
  const { spent, holding, kept, need, needs, wanted, number, limit, duration, recall } = {
    ...{
      spent: '-',
      holding: 0,
      kept: 0,
      need: 0,
      needs: '',
      wanted: 0,
      number: present(),
      limit: LIMIT,
      duration: DAY_MS,
      recall: 50,
    },
    ...said,
  } as Record<string, string | number>;
  const asked = [
    turn,
    spent ?? '-',
    holding ?? 0,
    kept ?? 0,
    need ? `${need}x1` : (needs ?? ''),
    wanted ?? 0,
  ];
  const names = brought ? [windowKey('a', brought), broughtIndex('a', brought)] : [name];
  const turns = [...asked, limit ?? LIMIT, duration ?? DAY_MS, number ?? '-', brought ? 2 : '-'];
  const about = { members, held, names, member, channel: recalls, recall: recall ?? 50, turns };
  const [reply] = await run(exchangeTurns(about));
  if (!reply) throw new Error('no reply');
  const { window, ...rest } = reply;
  return { ...rest, window: window?.number, leftMs: window?.leftMs };
}

test('grants what is needed and at most a quarter', async () => {
  expect(await exchange('2.a', 1, { need: 4, wanted: 1000 })).toMatchObject({
    ...{ status: 'OK', granted: 16, reserve: 4, total: 96, window: present() },
  });
  expect(await at.redis.hget(name, 'c')).toBe('16');
  expect(await at.redis.pttl(name)).toBeGreaterThan(DAY_MS);
  expect(await exchange('2.a', 2, { spent: 5, kept: 1 })).toMatchObject({ granted: 6, total: 95 });
  expect(await at.redis.hget(name, 'c')).toBe('6');
});

test('what another is late to tell of may come back, however late it is', async () => {
  await exchange('2.a', 1, { need: LIMIT });
  const refused = { status: 'SPOKEN', leastNeed: 1 };
  for (const turn of [1, 2, 3])
    expect(await exchange('2.b', turn, { need: 1, recall: 0 })).toMatchObject(refused);
  await exchange('2.a', 2, { spent: LIMIT - 1 });
  expect(await exchange('2.b', 4, { need: 1 })).toMatchObject({ status: 'OK', granted: 1 });
  expect(await exchange('2.b', 5, { spent: 1, need: 1 })).toMatchObject({ status: 'NONE' });
});

test('ignores what is late or says less', async () => {
  await exchange('2.a', 5, { need: 4 });
  await exchange('2.a', 6, { spent: 3 });
  const before = await at.redis.hgetall(name);
  expect((await exchange('2.a', 6, { spent: 4 })).status).toBe('OLD');
  expect((await exchange('2.a', 7, { spent: 2 })).status).toBe('OLD');
  expect((await exchange('nobody', 1, { need: 1 })).status).toBe('NOREG');
  expect(await at.redis.hgetall(name)).toEqual(before);
});

test('what work held comes back, and nothing more', async () => {
  await exchange('2.a', 1, { need: 60 });
  await exchange('2.a', 2, { spent: 60, holding: 50 });
  expect(await at.redis.hmget(name, 'c', 'e', '~2.a')).toEqual(['60', '50', '50']);
  // 41 may fit when the work ends, and 91 never.
  expect(await exchange('2.b', 3, { need: 90 })).toMatchObject({ status: 'SPOKEN', leastNeed: 90 });
  expect(await exchange('2.b', 4, { need: 91 })).toMatchObject({ status: 'NONE', leastNeed: 91 });
  expect((await exchange('2.a', 3, { spent: 9, holding: 0 })).status).toBe('OLD');
  expect((await exchange('2.a', 4, { spent: 12, holding: 2 })).status).toBe('OK');
  expect(await at.redis.hmget(name, 'c', 'e', '~2.a')).toEqual(['12', '2', '2']);
});

test('what a dead holder held is spent', async () => {
  await exchange('2.a', 1, { need: 60 });
  await exchange('2.a', 2, { spent: 60, holding: 50 });
  await at.redis.zrem(members, '2.a');
  expect(await exchange('2.b', 3, { need: 41 })).toMatchObject({ status: 'NONE', total: 40 });
  expect(await at.redis.hmget(name, 'e', '~2.a')).toEqual(['0', null]);
});

test('who forgot has spent all that was granted', async () => {
  await exchange('2.a', 1, { need: 4 });
  expect(await exchange('2.a', 2, { need: 1 })).toMatchObject({ spent: 4, granted: 5, total: 95 });
});

test('counts nothing said of the window before', async () => {
  await at.redis.hset(name, { n: present(), c: 10, p: 0, h: 6, '@2.a': '10 4 1 0' });
  expect(await exchange('2.a', 2, { spent: 40, kept: 40, number: present() - 1 })).toMatchObject({
    ...{ granted: 0, spent: 0, total: 100 },
  });
});

test('the next window has what slides from the last', async () => {
  const limit = 1e9; // so that one use slides out in less than a millisecond
  await at.redis.hset(name, { n: present() - 1, c: limit, p: 7, h: 3, '@2.b': '9 9 9 0' });
  const { status, refillMs, leftMs } = await exchange('2.a', 1, { need: limit, limit });
  const passed = DAY_MS - (Number(leftMs) + 1);
  expect(status).toBe('NONE');
  // All of it fits when the window before is over.
  expect(refillMs).toBe(Number(leftMs) + 2);
  const { c, p, n } = await at.redis.hgetall(name);
  expect({ c, p, n }).toEqual({ c: '0', p: String(limit), n: String(present()) });
  const free = Math.floor((limit * passed) / DAY_MS);
  const { total, leftMs: later } = await exchange('2.a', 2, { limit });
  const since = Number(leftMs) - Number(later);
  expect(Number(total) - free).toBeLessThanOrEqual(2 + (limit * since) / DAY_MS);
  await at.redis.hset(name, { n: present() - 2, c: limit });
  expect((await exchange('2.a', 1, { need: limit, limit })).status).toBe('OK');
});

test('a fraction of an earlier use refuses nothing', async () => {
  await at.redis.hset(name, { n: present(), c: 5, p: 1, h: 0 });
  expect((await exchange('2.a', 1, { need: 1, limit: 6 })).status).toBe('OK');
  expect((await exchange('2.a', 2, { need: 1, limit: 6 })).status).toBe('NONE');
});

test('a clock set back opens no window again', async () => {
  await at.redis.hset(name, { n: present() + 1, c: LIMIT, p: 0, h: 0 });
  expect(await exchange('2.a', 1, { need: 1 })).toMatchObject({
    status: 'NONE',
    window: present() + 1,
  });
});

test('asks others and refuses until it fits', async () => {
  await at.redis.hset(name, { n: present(), c: LIMIT, p: 0, h: 5, '@2.b': '5 0 1 0' });
  expect((await exchange('2.a', 1, { need: 5 })).status).toBe('WAIT');
  const { status, total, refillMs, leftMs } = await exchange('2.a', 2, { need: 6 });
  expect({ status, total }).toEqual({ status: 'NONE', total: 5 });
  // In the next window, once so much of this one slid out.
  expect(refillMs).toBeGreaterThan(Number(leftMs));
  await at.redis.hset(name, '@2.b', `5 0 1 0 ${Date.now() - 500}`);
  expect((await exchange('2.a', 3, { need: 5 })).status).toBe('HELD');
  // Who came after the others were asked is asked, too.
  await at.redis.zadd(members, 0, '2.c');
  await at.redis.hset(name, { c: LIMIT, h: 10, '@2.c': '5 0 1 0' });
  expect((await exchange('2.a', 5, { need: 5 })).status).toBe('WAIT');
  expect((await exchange('2.a', 6, { need: 8 })).status).toBe('HELD');
  await at.redis.hdel(name, '@2.c');
  expect((await exchange('2.a', 7, { need: 101 })).refillMs).toBeGreaterThan(DAY_MS);
});

test('asks others once for what may come back', async () => {
  await at.redis.hset(name, { n: present(), c: LIMIT, p: 0, h: 0, '@2.b': '5 0 1 5' });
  expect((await exchange('2.a', 1, { need: 6 })).status).toBe('NONE');
  expect(await exchange('2.a', 2, { need: 5 })).toMatchObject({ status: 'SPOKEN', total: 0 });
  expect(await at.redis.hget(name, '@2.b')).toMatch(/^5 0 1 5 \d+$/);
  await at.redis.hset(name, '@2.b', `5 0 1 5 ${Date.now() - 60}`);
  expect((await exchange('2.a', 3, { need: 5 })).status).toBe('SPOKEN');
  // Its next turn says what became of it.
  await exchange('2.b', 2, { spent: 2 });
  expect(await exchange('2.a', 4, { need: 3 })).toMatchObject({ status: 'OK', reserve: 3 });
});

test('gives those who wait what fits, in order', async () => {
  const turn = async (needs: string, at: number) => {
    const { status, granted, reserve, leastNeed } = await exchange('2.a', at, { needs, wanted: 1000 });
    return [status, granted, reserve, leastNeed].join(' ');
  };
  expect(await turn('60x1 5x2 60x1 3x20', 1)).toBe('NONE 100 100 3');
  await at.redis.del(name);
  expect(await turn('60x1 50x1', 2)).toBe('NONE 60 60 50');
  await at.redis.del(name);
  // Where all of it fits there is a slice besides.
  expect(await turn('60x1', 3)).toBe('OK 65 60 0');
});

test('drops what those had who are gone', async () => {
  const gone = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`@2.gone${i}`, '3 1 1 0']));
  await at.redis.hset(name, { n: present(), c: 95, p: 0, h: 62, '@2.b': '5 3 1 0', ...gone });
  expect((await exchange('2.a', 1, { need: 2 })).total).toBe(5);
  expect((await at.redis.hkeys(name)).filter((field) => field.startsWith('@'))).toEqual(['@2.b', '@2.a']);
});

test('brings 100 limits of a key at a time', async () => {
  const bring = async (turn: number, id: string) => (await exchange('2.a', turn, { need: 1 }, id)).status;
  const ids = Array.from({ length: 100 }, (_, i) => `k.1.mine.${i}`);
  for (const [i, id] of ids.entries()) expect(await bring(i + 1, id)).toBe('OK');
  expect(await bring(101, 'k.1.mine.100')).toBe('FULL');
  expect(await at.redis.exists(windowKey('a', 'k.1.mine.100'))).toBe(0);
  // Those that are counted go on, and another key has its own hundred.
  expect(await bring(102, 'k.1.mine.7')).toBe('OK');
  expect(await bring(103, 'other.1.mine.100')).toBe('OK');
  // The index is forgotten with the last of them, and each makes room when it is.
  const index = broughtIndex('a', 'k.1.mine.7');
  const ends = await Promise.all(ids.map((id) => at.redis.pexpiretime(windowKey('a', id))));
  expect(Math.abs((await at.redis.pexpiretime(index)) - Math.max(...ends))).toBeLessThan(100);
  await at.redis.zadd(index, Date.now() - 1, windowKey('a', 'k.1.mine.5'));
  expect(await bring(104, 'k.1.mine.100')).toBe('OK');
});

/** The end and the beginning of the period of a calendar at a time, by JavaScript's dates. */
function periodAt(interval: Period, anchor: Anchor, seconds: number): readonly [end: number, start: number] {
  const { day = 1, weekday = 1, hour = 0, offsetMinutes = 0 } = anchor;
  const shift = 3600 * hour - 60 * offsetMinutes;
  const local = new Date(1000 * (seconds - shift));
  const [year, month, date] = [local.getUTCFullYear(), local.getUTCMonth(), local.getUTCDate()];
  const ofMonth = (months: number) => {
    const lastDay = new Date(Date.UTC(year, months + 1, 0)).getUTCDate();
    return Date.UTC(year, months, Math.min(day, lastDay));
  };
  const since = (local.getUTCDay() + 7 - (weekday % 7)) % 7;
  const starts = {
    hour: (n: number) => Date.UTC(year, month, date, local.getUTCHours() + n),
    day: (n: number) => Date.UTC(year, month, date + n),
    week: (n: number) => Date.UTC(year, month, date - since + 7 * n),
    month: (n: number) => ofMonth(month + n + (ofMonth(month) > local.getTime() ? -1 : 0)),
  };
  return [starts[interval](1) / 1000 + shift, starts[interval](0) / 1000 + shift];
}

test('finds the period of every calendar', async () => {
  const lua = readFileSync(new URL('../../../shared/metering/credits.lua', import.meta.url), 'utf8');
  const script = `${lua}
    local periodOf, all = creditsOf('m', 'h').periodOf, {}
    for i = 2, #ARGV do
      local finish, start = periodOf(ARGV[1], tonumber(ARGV[i]))
      all[#all + 1] = string.format('%.0f %.0f', finish, start)
    end
    return all`;
  const anchors: readonly (readonly [Period, Anchor])[] = [
    ...(['hour', 'day', 'week', 'month'] as const).map((interval) => [interval, {}] as const),
    ...[1, 28, 29, 30, 31].map((day) => ['month', { day, hour: 9, offsetMinutes: -420 }] as const),
    ...[1, 2, 6, 7].map((weekday) => ['week', { weekday, hour: 23, offsetMinutes: 840 }] as const),
    ['day', { hour: 5, offsetMinutes: 330 }],
    ['hour', { offsetMinutes: 30 }],
  ];
  // From 1999 to 2101, at odd times of the day, and at both sides of each beginning.
  const times = Array.from({ length: 900 }, (_, i) => Date.UTC(1999) / 1000 + i * 3_571_111);
  for (const [interval, anchor] of anchors) {
    const starts = times.map((at) => periodAt(interval, anchor, at)[1]);
    const all = [...times, ...starts, ...starts.map((start) => start - 1)];
    const found = (await at.redis.eval(script, 0, calendarOf(interval, anchor), ...all)) as string[];
    expect(found).toEqual(all.map((each) => periodAt(interval, anchor, each).join(' ')));
  }
});

test('a quota counts nothing of the period before', async () => {
  const calendar = calendarOf('month', { day: 15, hour: 6 });
  const [end, start] = periodAt('month', { day: 15, hour: 6 }, Date.now() / 1000);
  const about = { limit: 6, duration: calendar, need: 1 };
  await at.redis.hset(name, { n: start, c: 6, p: 0, h: 0 });
  expect(await exchange('2.a', 1, about)).toMatchObject({ status: 'OK', window: end });
  const ttl = await at.redis.pexpiretime(name);
  expect(Math.abs(ttl - 1000 * end)).toBeLessThan(5000);
  const { status, refillMs, leftMs } = await exchange('2.a', 2, { ...about, need: 6, number: end });
  expect({ status, refillMs }).toEqual({ status: 'NONE', refillMs: Number(leftMs) + 2 });
  // A clock that was set back by less than a period does not open it again.
  const [later] = periodAt('month', { day: 15, hour: 6 }, end);
  await at.redis.hset(name, { n: later, c: 6 });
  expect(await exchange('2.a', 3, { ...about, number: later })).toMatchObject({
    status: 'NONE',
    window: later,
  });
});
