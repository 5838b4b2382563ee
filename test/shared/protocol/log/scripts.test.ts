import { describe, expect, test } from 'vitest';
import { updateApi } from '../../../../control-plane/core/apis/apis.ts';
import { announceBootstrap } from '../../../../control-plane/core/callers/bootstrap-keys.ts';
import {
  createRootKey,
  readRootKey,
  updateRootKey,
} from '../../../../control-plane/core/callers/root-keys.ts';
import { countCalls } from '../../../../control-plane/core/serve/rate-limits.ts';
import { recordEvents } from '../../../../control-plane/subjects/audit/audit.ts';
import { findKeys } from '../../../../shared/protocol/follower/pointers.ts';
import { reapRun, writeChange, writeChanges } from '../../../../shared/protocol/log/change-log.ts';
import { deletePointer, setPointer } from '../../../../shared/protocol/log/new-key-record.ts';
import { createApi } from '../../../../shared/protocol/log/new-log.ts';
import { KEY_LETTERS } from '../../../../shared/protocol/records/key-record.ts';
import { TOKEN_LEEWAY } from '../../../../shared/protocol/timing.ts';
import { forgetApi, setLease, setLending, sweepApi } from '../../../../shared/protocol/writer/sweep-store.ts';
import { deniedCommands } from '../../../../shared/redis/fitness.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { reportStatus } from '../../../../shared/reports/status-report.ts';
import { addUsage } from '../../../../shared/reports/usage-report.ts';
import { scriptsOnRedis } from '../../../harness/scripts.ts';

/** Scripts by themselves: each does and answers what its head says. Those of the protocol are held to its simulation. */
const { at, run } = scriptsOnRedis();

/** Of writes. */
const WRITE = {
  ...{ base: '', head: 'head', log: 'log', index: 'index', members: 'members', channel: 'channel' },
  ...{ now: 7, maxlen: 100, longest: 1024, needs: 1 },
};
/** Of reports of usage. */
const KEPT = { tagged: 'tags', minutes: 60, hours: 2, days: 3, letters: 'VDEF', seconds: 60 };

describe('pointers', () => {
  test('are set once, and keep what they hold', async () => {
    expect(await run(setPointer({ pointer: 'p', value: 'one' }))).toBe('one');
    expect(await run(setPointer({ pointer: 'p', value: 'two' }))).toBe('one');
    expect(await at.redis.get('p')).toBe('one');
  });

  test('are deleted by whose they are, and no others', async () => {
    await at.redis.set('p', 'one');
    expect(await run(deletePointer({ pointer: 'p', value: 'two' }))).toBe(0);
    expect(await at.redis.get('p')).toBe('one');
    expect(await run(deletePointer({ pointer: 'p', value: 'one' }))).toBe(1);
    expect(await at.redis.exists('p')).toBe(0);
    expect(await run(deletePointer({ pointer: 'p', value: 'one' }))).toBe(0);
  });

  test('are looked up together, each in its place', async () => {
    await at.redis.mset('p', 'shop key_1', 'r', 'shop key_2');
    expect(await run(findKeys({ pointers: ['p', 'q', 'r'] }))).toEqual({
      names: 'p q r',
      places: ['shop key_1', '', 'shop key_2'],
    });
  });
});

describe('changes', () => {
  /** Of every field but whether it is enabled. */
  const NONE = KEY_LETTERS.slice(1).map(() => '');

  test('are logged under their documented names', async () => {
    await at.redis.hset('record', 'p', 'secret-hash', 'e', '1', 'i', '1');
    await at.redis.hset('head', 'c', '1');
    const write = (operation: string, ...fields: string[]) =>
      run(
        writeChange({
          ...{ ...WRITE, operation, fields, record: 'record', long: 'long' },
          ...{ keyId: 'key_1', condition: '' },
        }),
      );
    const first = await write('update', 'e', '0');
    const second = await write('delete');
    expect([first, second]).toMatchObject([{ sequence: 1 }, { sequence: 2 }]);
    const [hash, next] = [first, second].map((reply) => 'hash' in reply && reply.hash);
    expect(await at.redis.xrange('log', '-', '+')).toEqual([
      ['1-0', ['h', hash, 'k', 'key_1', 'd', JSON.stringify(['set', 'secret-hash', '0', ...NONE])]],
      ['2-0', ['h', next, 'k', 'key_1', 'd', '["forget","secret-hash"]']],
    ]);
  });
});

describe('changes of many keys at once', () => {
  const ids = ['key_1', 'key_none', 'key_2'];
  const fields = ['e', '0', 'm', `{"a":"${'b'.repeat(80)}"}`, 'n', ''];
  const about = { ...WRITE, operation: 'update' };
  /** The call for keys, each with its condition. */
  const together = (...keys: readonly (readonly [id: string, condition: string])[]) =>
    writeChanges({
      ...{ ...about, count: keys.length, records: keys.flatMap(([id]) => recordOf(id)) },
      rest: [...keys.flat(), ...fields],
    });
  const fill = async () => {
    await at.redis.flushall();
    await at.redis.hset('head', 'c', '1', 'Lf', '500');
    for (const i of [1, 2])
      await at.redis.hset(`record ${i}`, 'p', `hash ${i}`, 'e', '1', 'i', i, 'n', 'name', 'm', '{}');
  };
  const all = async () => {
    const records = await Promise.all([1, 2].map((i) => at.redis.hgetall(`record ${i}`)));
    const metas = await Promise.all([1, 2].map((i) => at.redis.get(`long ${i}`)));
    return [await at.redis.hgetall('head'), await at.redis.xrange('log', '-', '+'), records, metas];
  };
  const recordOf = (id: string) => [id.replace('key_', 'record '), id.replace('key_', 'long ')] as const;
  const ok = (sequence: number) => ({ status: 'OK', sequence });

  test('do what one after the other does', async () => {
    await fill();
    const replies: unknown[] = [];
    for (const keyId of ids) {
      const [record, long] = recordOf(keyId);
      replies.push(await run(writeChange({ ...about, keyId, record, long, condition: '', fields })));
    }
    const expected = await all();
    await fill();
    expect(await run(together(...ids.map((id) => [id, ''] as const)))).toEqual(replies);
    expect(await all()).toEqual(expected);
    expect(replies).toMatchObject([ok(1), { status: 'NOT_FOUND' }, ok(2)]);
    expect(expected[2]).toMatchObject([
      { e: '0', M: '1', u: '7' },
      { e: '0', M: '1', u: '7' },
    ]);
  });

  test('are each made on a condition of its own', async () => {
    await fill();
    const [first = '', , third = ''] = ids;
    const write = (a: string, b: string) => run(together([first, a], [third, b]));
    expect(await write('never', '0')).toMatchObject([{ status: 'CONFLICT' }, ok(1)]);
    const version = (await at.redis.hget(recordOf(third)[0], 'v')) ?? '';
    expect(await write('0', version)).toMatchObject([ok(2), ok(3)]);
  });

  test('are made once if Redis forgot the script', async () => {
    await fill();
    const runs = ids.filter((id) => id !== 'key_none').map((id) => together([id, '']));
    const [{ script, read }] = runs as [(typeof runs)[number]];
    const write = async () => (await script.runAll(at.redis, runs, 0, 1000)).replies.flatMap(read);
    expect(await write()).toMatchObject([ok(1), ok(2)]);
    expect(await write()).toMatchObject([ok(3), ok(4)]);
    await at.redis.script('FLUSH');
    expect(await write()).toMatchObject([ok(5), ok(6)]);
    expect(await at.redis.xlen('log')).toBe(6);
  });

  test('are made once if Redis forgets it meanwhile', async () => {
    await fill();
    const run = together([ids[0] ?? '', '']);
    const other = at.redis.duplicate();
    const forgotten = async () => /errorstat_NOSCRIPT:count=(\d+)/.exec(await other.info('errorstats'))?.[1];
    await other.config('RESETSTAT');
    const made: unknown[] = [];
    while ((await forgotten()) === undefined) {
      let isOver = false;
      const work = run.script.runAll(at.redis, Array(500).fill(run), 0, 1000).finally(() => {
        isOver = true;
      });
      while (!isOver) await other.script('FLUSH');
      made.push(...(await work).replies.flatMap(run.read));
    }
    other.disconnect();
    const numbers = made.map((reply) => (reply as { sequence: number }).sequence).sort((a, b) => a - b);
    expect(numbers).toEqual(made.map((_, i) => i + 1));
  });
});

describe('root keys', () => {
  test('are created once and read whole', async () => {
    const create = (record: string, id: string, ancestors = '') =>
      run(
        createRootKey({
          ...{ record, index: 'index', descendants: 'descendants', id, secretHash: `hash of ${record}` },
          ...{ most: 2, mostDescendants: 1, ancestors, fields: ['name', 'n', 'enabled', '1'] },
        }),
      );
    expect(await create('record', 'root_1')).toBe('OK');
    expect(await create('record', 'root_2')).toBe('EXISTS');
    expect(await create('another', 'root_1')).toBe('EXISTS');
    expect(await at.redis.exists('another')).toBe(0);
    expect(await at.redis.hgetall('index')).toEqual({ root_1: 'hash of record' });
    const fields = await run(readRootKey({ record: 'record' }));
    expect(fields).toEqual(['id', 'root_1', 'ancestors', '', 'name', 'n', 'enabled', '1']);
    expect(await run(readRootKey({ record: 'none' }))).toEqual([]);
    expect(await create('child', 'root_3', 'root_0 root_1')).toBe('OK');
    expect(await create('more', 'root_4')).toBe('FULL');
    await at.redis.hdel('index', 'root_3');
    expect(await create('more', 'root_4', 'root_1')).toBe('root_1');
  });

  test('are enabled and disabled only if meant', async () => {
    const disable = (record: string, rootKeyId: string) =>
      run(updateRootKey({ record, rootKeyId, enabled: '0' }));
    await at.redis.hset('record', { id: 'root_1', enabled: '1' });
    expect(await disable('record', 'root_2')).toBe(false);
    expect(await disable('none', 'root_1')).toBe(false);
    expect(await at.redis.hget('record', 'enabled')).toBe('1');
    expect(await disable('record', 'root_1')).toBe(true);
    expect(await at.redis.hget('record', 'enabled')).toBe('0');
    expect(await at.redis.exists('none')).toBe(0);
  });

  test('of configurations are told to one another', async () => {
    const say = (own: string, now: number, since: number) =>
      run(announceBootstrap({ announcements: 'said', own, now, since }));
    expect(await say('a', 1000, 500)).toEqual([]);
    expect(await say('b', 1100, 600)).toEqual(['a']);
    expect(await say('a', 1200, 1100)).toEqual(['b']);
    expect(await say('a', 1300, 1101)).toEqual([]);
    expect(await at.redis.zrange('said', '0', '-1')).toEqual(['a']);
    for (let i = 0; i < 12; i++) await say(`c${i}`, 2000 + i, 0);
    const others = ['c11', 'c10', 'c9', 'c8', 'c7', 'c6', 'c5', 'c4', 'c3', 'c2'];
    expect(await say('a', 3000, 0)).toEqual(others);
    expect(await say('c0', 3001, 0)).toEqual(['a', ...others.slice(0, 9)]);
  });
});

describe('APIs', () => {
  test('are created once, and not while swept', async () => {
    const create = (now: number, lease: number, ...fields: string[]) =>
      run(createApi({ head: 'head', members: [], now, lease, fields }));
    expect(await create(7, 500, 'name', 'Shop')).toBe(true);
    expect(await at.redis.hgetall('head')).toEqual({ c: '7', L: '500', Lf: '500', name: 'Shop' });
    expect(await create(8, 600, 'name', 'Other')).toBe(false);
    expect(await at.redis.hget('head', 'name')).toBe('Shop');
  });

  test('have tokens only once changes wait for them', async () => {
    const step = (step: string, token: string, leeway: number = TOKEN_LEEWAY.usualMs) =>
      run(setLending({ head: 'head', step, name: token, outlives: leeway }));
    const update = (fence: string) =>
      run(updateApi({ head: 'head', condition: '', now: 9, fence, fields: ['T', '1'] }));
    expect(await step('fence-first', 'a')).toBe(false);
    await run(createApi({ head: 'head', members: [], now: 7, lease: 500, fields: [] }));
    expect(await update('a')).toEqual({ status: 'OVERTAKEN' });
    expect(await step('grant', 'a')).toBe(false);
    expect(await step('fence-first', 'a')).toBe(true);
    expect(await step('fence-first', 'b')).toBe(true);
    expect(await update('a')).toEqual({ status: 'OVERTAKEN' });
    expect(await update('b')).toMatchObject({ status: 'OK' });
    expect(await step('fence-last', 'b')).toBe(false);
    expect(await step('stop', 'a')).toBe(false);
    expect(await step('stop', 'b')).toBe(true);
    expect(await step('fence-last', 'a')).toBe(false);
    expect(await step('fence-last', 'b')).toBe(true);
    expect(await at.redis.hmget('head', 'T', 'Tf', 'Wf')).toEqual([null, null, null]);
  });

  test('have a longer leeway only once changes wait for it', async () => {
    await run(createApi({ head: 'head', members: [], now: 7, lease: 500, fields: [] }));
    const step = (step: string, token: string, leeway: number) =>
      run(setLending({ head: 'head', step, name: token, outlives: leeway }));
    const update = async (fence: string, leeway: number | '') => {
      const fields = ['leeway', leeway];
      return (await run(updateApi({ head: 'head', condition: '', now: 9, fence, fields }))).status;
    };
    const waitedFor = () => at.redis.hget('head', 'Wf');
    expect(await update('', 0)).toBe('OK');
    expect(await step('fence-first', 'a', 1000)).toBe(true);
    expect(await update('', 0)).toBe('OVERTAKEN');
    expect(await update('a', 1001)).toBe('OVERTAKEN');
    expect(await update('a', '')).toBe('OVERTAKEN');
    expect(await update('a', 1000)).toBe('OK');
    expect(await step('fence-first', 'b', 500)).toBe(true);
    expect([await update('a', 500), await update('b', 500), await waitedFor()]).toEqual([
      'OVERTAKEN',
      'OK',
      '1000',
    ]);
    expect([await step('lower', 'a', 500), await waitedFor()]).toEqual([false, '1000']);
    expect([await step('lower', 'b', 500), await waitedFor()]).toEqual([true, '500']);
    expect([await step('lower', 'b', 700), await waitedFor()]).toEqual([true, '500']);
    expect(await step('fence-first', 'c', TOKEN_LEEWAY.usualMs - 1)).toBe(true);
    expect(await update('c', '')).toBe('OVERTAKEN');
    expect(await step('fence-first', 'd', TOKEN_LEEWAY.usualMs)).toBe(true);
    expect(await update('d', '')).toBe('OK');
  });

  test('change while they exist, telling what was', async () => {
    const update = (...fields: string[]) =>
      run(updateApi({ head: 'head', condition: '', now: 9, fence: '', fields }));
    expect(await update('prefix', 'p')).toEqual({ status: 'NOT_FOUND' });
    expect(await at.redis.keys('*')).toEqual([]);
    const fields = ['name', 'Shop', 'bytes', 24];
    await run(createApi({ head: 'head', members: [], now: 7, lease: 500, fields }));
    expect(await update('prefix', 'p', 'bytes', '')).toEqual({
      ...{ status: 'OK', changes: 1, before: ['', '24'] },
    });
    expect(await update()).toEqual({ status: 'OK', changes: 1, before: [] });
    expect(await at.redis.hmget('head', 'name', 'prefix', 'bytes')).toEqual(['Shop', 'p', null]);
    await at.redis.hset('head', 'deleted', '8');
    expect(await update('name', 'x')).toEqual({ status: 'NOT_FOUND' });
    expect(await at.redis.hget('head', 'name')).toBe('Shop');
  });

  test('lose their keys in parts when deleted', async () => {
    await at.redis.hset('head', 'c', '1');
    for (const [i, owner] of ['ann', undefined, 'ann'].entries()) {
      await at.redis.hset(`k:${i}`, { p: 'hash', ...(owner ? { o: owner } : {}) });
      await at.redis.set(`m:${i}`, 'a long meta');
      await at.redis.zadd('index', i, String(i));
      if (owner) await at.redis.zadd(`o:${owner}`, i, String(i));
    }
    const sweep = (...keyIds: string[]) =>
      run(
        sweepApi({
          head: 'head',
          index: 'index',
          records: 'k:',
          metas: 'm:',
          owners: 'o:',
          pools: 'q:',
          keyIds,
        }),
      );
    expect(await sweep('0')).toBe(-1);
    expect(await at.redis.exists('k:0', 'm:0')).toBe(2);
    await at.redis.hset('head', 'deleted', '2');
    expect(await sweep('0', '1')).toBe(1);
    expect((await at.redis.keys('*')).sort()).toEqual(['head', 'index', 'k:2', 'm:2', 'o:ann']);
    expect(await at.redis.zrange('o:ann', '0', '-1')).toEqual(['2']);
    expect(await sweep('2')).toBe(0);
    expect(await at.redis.keys('*')).toEqual(['head']);
  });

  test('are forgotten once nothing is left of them', async () => {
    const keys = {
      ...{ head: 'head', log: 'log', members: 'members', index: 'index', creations: 'creations' },
      ...{
        held: 'held',
        usage: 'usage',
        tags: 'tags',
        due: 'due',
        marks: 'marks',
        unused: 'unused',
        declared: 'declared',
      },
    };
    const forget = () => run(forgetApi({ ...keys, days: [20_000, 20_001] }));
    for (const usage of ['usage', 'tags20000', 'tags20001']) await at.redis.hset(usage, 'x', '1');
    await at.redis.hset('head', 'c', '1');
    await at.redis.zadd('members', 1, 'f');
    await at.redis.mset('log', 'x', 'creations', 'x', 'held', 'x');
    expect(await forget()).toBe(false);
    await at.redis.hset('head', 'deleted', '2');
    await at.redis.zadd('index', 1, 'key_1');
    expect(await forget()).toBe(false);
    expect(await at.redis.exists(...Object.values(keys))).toBe(7);
    await at.redis.del('index');
    expect(await forget()).toBe(true);
    expect(await at.redis.keys('*')).toEqual([]);
  });

  test('change leases that fences wait out in full', async () => {
    const set = (step: string, lease: number, name = 't') =>
      run(setLease({ head: 'head', step, lease, name }));
    const leases = () => at.redis.hmget('head', 'L', 'Lf', 't');
    expect(await set('grant', 500)).toEqual({ status: 'NO_API' });
    await at.redis.hset('head', { c: '1', L: '1000', Lf: '1000' });
    expect(await set('grant', 2000)).toEqual({ status: 'CONFLICT' });
    expect(await set('fence-first', 2000, 'up')).toEqual({ status: 'OK', fencedMs: 2000 });
    expect(await leases()).toEqual(['1000', '2000', 'up']);
    expect(await set('fence-first', 1500, 'up')).toEqual({ status: 'OK', fencedMs: 2000 });
    expect(await set('grant', 2000, 'up')).toEqual({ status: 'OK', fencedMs: 2000 });
    expect(await leases()).toEqual(['2000', '2000', 'up']);
    expect(await set('grant', 500, 'down')).toEqual({ status: 'OK', fencedMs: 2000 });
    expect(await set('fence-last', 500, 'other')).toEqual({ status: 'CONFLICT' });
    expect(await set('fence-last', 600, 'down')).toEqual({ status: 'CONFLICT' });
    expect(await leases()).toEqual(['500', '2000', 'down']);
    expect(await set('fence-last', 500, 'down')).toEqual({ status: 'OK', fencedMs: 500 });
    expect(await leases()).toEqual(['500', '500', 'down']);
  });
});

describe('followers', () => {
  test('are removed by the number of their kill', async () => {
    const { members } = apiKeys('a');
    await at.redis.zadd(members, -5, 'killed', -6, 'killed anew', 3, 'alive');
    const names = ['killed', 'killed anew', 'alive', 'gone'];
    expect(
      await run(
        reapRun(
          'a',
          names.map((name) => ({ name, kill: -5 })),
        ),
      ),
    ).toBe(1);
    expect(await at.redis.zrange(members, '0', '-1')).toEqual(['killed anew', 'alive']);
    expect(
      await run(
        reapRun('a', [
          { name: 'alive', kill: 3 },
          { name: 'none', kill: 0 },
        ]),
      ),
    ).toBe(1);
  });

  test('keep their report until it expires', async () => {
    await at.redis.zadd('ids', 0, 'crashed');
    const [second = 0] = (await at.redis.time()).map(Number);
    const timeMs = await run(
      reportStatus({ ids: 'ids', report: 'v:me', own: 'me', text: '{}', ms: 60_000, reports: 'v:' }),
    );
    expect(timeMs - 1000 * second).toBeGreaterThanOrEqual(0);
    expect(timeMs - 1000 * second).toBeLessThan(60_000);
    expect(await at.redis.get('v:me')).toBe('{}');
    const left = await at.redis.pttl('v:me');
    expect(left).toBeGreaterThan(50_000);
    expect(left).toBeLessThanOrEqual(60_000);
    // At most two are looked at, and there are two.
    expect(await at.redis.zrange('ids', '0', '-1', 'WITHSCORES')).toEqual(['me', '0']);
  });
});

test('counts calls in the window of the first', async () => {
  const count = (calls = 1) => run(countCalls({ counter: 'counter', window: 60_000, count: calls }));
  expect(await count()).toEqual({ current: 1, ttl: 60_000 });
  const { current, ttl: left } = await count(3);
  expect(current).toBe(4);
  expect(left).toBeGreaterThan(50_000);
  expect(left).toBeLessThanOrEqual(60_000);
  // One without an end, as a crash between two commands of an older version could leave it, is given one.
  await at.redis.persist('counter');
  expect(await count()).toEqual({ current: 5, ttl: 60_000 });
  expect(await at.redis.pttl('counter')).toBeGreaterThan(0);
});

test('keeps the latest events, with an index by key', async () => {
  const add = (...events: string[]) =>
    run(recordEvents({ stream: 'stream', again: 'again', most: 100, index: 'of:', events }));
  const written: string[] = [];
  for (let i = 0; i < 400; i++) written.push(...(await add(`event ${i}`, '', i % 4 === 0 ? 'ada' : '')));
  const [id = '', last = ''] = await add('the last but one', '', '', 'the last', '', 'bob');
  // Written before, and not confirmed: the one is there, the other's id a failover gave to another event.
  const [again, anew = ''] = await add('the last', last, 'bob', 'another', id, 'bob');
  expect(again).toBe(last);
  expect(anew > last).toBe(true);
  expect(await at.redis.get('again')).toBe(last);
  expect(await at.redis.xrevrange('stream', '+', '-', 'COUNT', 3)).toEqual([
    [anew, ['e', 'another', 'k', 'bob']],
    [last, ['e', 'the last', 'k', 'bob']],
    [id, ['e', 'the last but one', 'k', '']],
  ]);
  expect(await at.redis.zrange('of:bob', '0', '-1')).toEqual([last, anew]);
  const kept = (await at.redis.xrange('stream', '-', '+')).map(([each]) => each);
  expect(kept.length).toBeGreaterThanOrEqual(100);
  expect(kept.length).toBeLessThanOrEqual(200);
  const ofAda = written.filter((each, i) => i % 4 === 0 && kept.includes(each));
  expect(new Set(await at.redis.zrange('of:ada', '0', '-1'))).toEqual(new Set(ofAda));
  expect(ofAda.length).toBeGreaterThan(20);
});

test('tells commands that are denied or unknown', async () => {
  await at.redis.acl(
    'SETUSER',
    'half',
    'on',
    '>x',
    '~a*',
    '&*',
    '+eval',
    '+evalsha',
    '+get',
    '+set',
    '-flushall',
  );
  const half = at.redis.duplicate({ username: 'half', password: 'x' });
  try {
    const denied = await deniedCommands(half, ['get a1', 'get b', 'flushall', 'nonsense x', 'set a1  x']);
    expect(denied).toEqual(['get b', 'flushall', 'nonsense x']);
  } finally {
    half.disconnect();
  }
});

test('adds usage by hour and day, dropping the old', async () => {
  const [seconds = 0] = (await at.redis.time()).map(Number);
  const [hour, day] = [Math.floor(seconds / 3600), Math.floor(seconds / 86_400)];
  const old = { [`h${hour - 2}V`]: 1, [`h${hour - 1}V`]: 1, [`d${day - 3}E`]: 1, [`d${day - 2}E`]: 1 };
  await at.redis.hset('one', old);
  const NONE = [0, 0, 0, 0];
  const add = (keys: readonly string[], number: number, counts: readonly number[]) =>
    run(
      addUsage({
        ...{ ...KEPT, mark: 'mark', number, mostTags: 5 },
        ...{ usages: ['all', ...keys], counts: [...NONE, ...counts] },
      }),
    );
  expect(await add(['one', 'two'], 1, [5, 0, 0, 1, 0, 2, 0, 0])).toBe(1);
  expect(await add(['one'], 2, [1, 0, 4, 0])).toBe(1);
  const { t: usedAt = '', r: refusedAt, ...one } = await at.redis.hgetall('one');
  expect(one).toEqual({
    [`h${hour - 1}V`]: '1',
    [`d${day - 2}E`]: '1',
    [`h${hour}V`]: '6',
    [`d${day}V`]: '6',
    [`h${hour}F`]: '1',
    [`d${day}F`]: '1',
    [`h${hour}E`]: '4',
    [`d${day}E`]: '4',
  });
  expect(Number(usedAt)).toBeGreaterThanOrEqual(seconds * 1000);
  expect(Number(usedAt)).toBeLessThan((seconds + 60) * 1000);
  expect(refusedAt).toBe(usedAt);
  expect(await at.redis.hgetall('two')).toEqual({
    ...{ [`h${hour}D`]: '2', [`d${day}D`]: '2', r: expect.any(String) },
  });
  for (const usage of ['one', 'two']) expect(await at.redis.ttl(usage)).toBeGreaterThan(4 * 86_400 - 60);
  expect(await at.redis.ttl('one')).toBeLessThanOrEqual(4 * 86_400);
});

test('counts an API by the minute, for an hour', async () => {
  const [seconds = 0] = (await at.redis.time()).map(Number);
  const minute = Math.floor(seconds / 60);
  await at.redis.hset('all', { [`m${minute - 60}V`]: '1', [`m${minute - 58}V`]: '2' });
  const report = { ...KEPT, mark: 'me', mostTags: 5, usages: ['all', 'one'] };
  for (const number of [1, 2])
    await run(addUsage({ ...report, number, counts: [...[3, 1, 0, 0], ...[3, 1, 0, 0]] }));
  const minutesOf = async (usage: string) =>
    Object.entries(await at.redis.hgetall(usage)).filter(([field]) => field.startsWith('m'));
  const counts = await minutesOf('all');
  expect(counts.map(([field]) => field)).not.toContain(`m${minute - 60}V`);
  const sumOf = (letter: string) =>
    counts.reduce((sum, [field, count]) => (field.endsWith(letter) ? sum + Number(count) : sum), 0);
  expect([sumOf('V'), sumOf('D')]).toEqual([8, 2]);
  expect(await minutesOf('one')).toEqual([]);
});

test('adds a repeated report of usage once', async () => {
  const add = (mark: string, number: number) =>
    run(
      addUsage({
        ...{ ...KEPT, mark, number, mostTags: 5, usages: ['all', 'one'] },
        counts: [...[3, 1, 0, 0], ...[3, 1, 0, 0], ...['a', 3, 0, 0, 0]],
      }),
    );
  expect(await Promise.all([add('me', 4), add('me', 4), add('me', 3), add('you', 4)])).toEqual([1, 0, 0, 1]);
  expect(await add('me', 5)).toBe(1);
  const [seconds = 0] = (await at.redis.time()).map(Number);
  const day = Math.floor(seconds / 86_400);
  for (const usage of ['all', 'one'])
    expect(await at.redis.hmget(usage, `d${day}V`, `d${day}D`)).toEqual(['9', '3']);
  expect(await at.redis.hgetall(`tags${day}`)).toEqual({ '#': '1', '=a': '1', '1V': '9' });
  expect(await at.redis.ttl('me')).toBeGreaterThan(0);
});

test('counts tags beyond the first as others', async () => {
  const add = (number: number, ...tags: string[]) =>
    run(
      addUsage({
        ...{ ...KEPT, mark: 'me', number, mostTags: 2, usages: ['all'] },
        counts: [...[0, 0, 0, 0], ...tags.flatMap((tag) => [tag, 1, 0, 0, 2])],
      }),
    );
  const odd = '🦊\n=#0V';
  await add(1, odd, '#', 'third', '', 'fourth');
  await add(2, 'third', odd);
  const [seconds = 0] = (await at.redis.time()).map(Number);
  const tags = `tags${Math.floor(seconds / 86_400)}`;
  expect(await at.redis.hgetall(tags)).toEqual({
    ...{ '#': '2', [`=${odd}`]: '1', '=#': '2' },
    ...{ '0V': '4', '0F': '8', '1V': '2', '1F': '4', '2V': '1', '2F': '2' },
  });
  expect(await at.redis.ttl(tags)).toBeGreaterThan(4 * 86_400 - 60);
  expect(await at.redis.exists('all')).toBe(0);
});
