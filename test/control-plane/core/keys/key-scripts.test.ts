import { describe, expect, test } from 'vitest';
import { listIds, listKeys, readKey } from '../../../../control-plane/core/records/key-view.ts';
import { writeChange } from '../../../../shared/protocol/log/change-log.ts';
import { createKey } from '../../../../shared/protocol/log/new-key-record.ts';
import { scriptsOnRedis } from '../../../harness/scripts.ts';

/** Scripts that create and read keys, by themselves: each does and answers what its head says. */
const { at, run } = scriptsOnRedis();

describe('keys', () => {
  const CREATIONS_KEPT = 100;
  /** Fields asked for of a key: its start, name, owner and whether it is enabled. */
  const LETTERS = ['s', 'n', 'o', 'e'];
  const FIELDS = ['p', 'hash', 's', 'shop_1', 'e', '1', 'c', '7'];
  const create = (
    keyId: string,
    options: {
      auto?: string;
      meta?: string;
      owner?: string;
      foreign?: string;
      content?: string;
      defaults?: string;
    } = {},
  ) =>
    run(
      createKey({
        ...{ head: 'head', index: 'index', creations: 'creations', members: 'members', base: '' },
        ...{ record: `k:${keyId}`, long: `m:${keyId}`, keyId, now: 7, lease: 500, needs: 1, credits: '' },
        owners: options.owner === undefined ? `k:${keyId}` : `o:${options.owner}`,
        ...{ auto: options.auto ?? '1', meta: options.meta ?? '', owner: options.owner ?? '' },
        ...{ foreign: options.foreign ?? '0', kept: CREATIONS_KEPT, content: options.content ?? 'content' },
        ...{ defaults: options.defaults ?? '*', fields: FIELDS },
      }),
    );
  const list = async (
    source: string,
    ...[order, from, limit, most, enabled, prefix, part = '']: readonly (string | number)[]
  ) => {
    const [head, index] = ['head', 'index'];
    const page = await run(
      listKeys({
        ...{ head, index, source, base: '', letters: LETTERS },
        ...{ order: order ?? '', from: from ?? '', limit: limit ?? 0, most: most ?? 0 },
        conditions: JSON.stringify({
          ...(enabled ? { enabled: enabled === '1' } : {}),
          ...(prefix ? { namePrefix: prefix } : {}),
          ...(part ? { part } : {}),
        }),
      }),
    );
    return page ? [page.total, page.next, ...page.rows] : [];
  };
  const idsOf = ([, , ...keys]: unknown[]) => keys.map((key) => (key as string[])[0]);

  test('get the defaults their API has at the moment', async () => {
    expect(await create('key_1', { defaults: 'old 32' })).toEqual({ status: 'OTHER_DEFAULTS', present: ' ' });
    expect(await at.redis.keys('*')).toEqual([]);
    expect(await create('key_1', { defaults: ' ' })).toEqual({ status: 'OK', expires: '' });
    await at.redis.hset('head', 'prefix', 'shop');
    expect(await create('key_2', { defaults: ' ' })).toEqual({ status: 'OTHER_DEFAULTS', present: 'shop ' });
    await at.redis.hset('head', 'bytes', '24');
    expect(await create('key_2', { defaults: 'shop ' })).toEqual({
      status: 'OTHER_DEFAULTS',
      present: 'shop 24',
    });
    expect(await at.redis.zrange('index', '0', '-1')).toEqual(['key_1']);
    expect(await create('key_2', { defaults: 'shop 24' })).toEqual({ status: 'OK', expires: '' });
    expect(await create('key_3', { defaults: '*' })).toEqual({ status: 'OK', expires: '' });
  });

  test('are created once, with or without their API', async () => {
    expect(await create('key_1', { auto: '0' })).toEqual({ status: 'NO_API' });
    expect(await at.redis.keys('*')).toEqual([]);
    expect(await create('key_1')).toEqual({ status: 'OK', expires: '' });
    expect(await at.redis.hmget('head', 'c', 'L', 'Lf', 'foreign')).toEqual(['7', '500', '500', null]);
    expect(await create('key_1')).toEqual({ status: 'EXISTS' });
    expect(await create('key_2', { auto: '0', foreign: '1', owner: 'ann', meta: '{"a":1}' })).toEqual({
      ...{ status: 'OK', expires: '' },
    });
    expect(await at.redis.hget('head', 'foreign')).toBe('1');
    expect(await at.redis.zrange('index', '0', '-1', 'WITHSCORES')).toEqual(['key_1', '1', 'key_2', '2']);
    expect(await at.redis.zrange('o:ann', '0', '-1', 'WITHSCORES')).toEqual(['key_2', '2']);
    await at.redis.hset('head', 'deleted', '9');
    expect(await create('key_3')).toEqual({ status: 'DELETED' });
    expect(await at.redis.exists('k:key_3')).toBe(0);
  });

  test('leave a number and a hash each', async () => {
    const marks = async (...contents: string[]) => {
      await at.redis.flushall();
      for (const [i, content] of contents.entries()) await create(`key_${i}`, { content });
      const [n, g] = await at.redis.hmget('head', 'n', 'g');
      const creations = await at.redis.xrange('creations', '-', '+');
      expect(n).toBe(String(contents.length));
      expect(creations.map(([id]) => id)).toEqual(contents.map((_, i) => `${i + 1}-0`));
      expect(g).toBe(`${n}-${creations.at(-1)?.[1][1]}`);
      return creations.map(([, [, hash]]) => hash);
    };
    const [one, two] = await marks('a', 'b');
    expect([one, two].every((hash) => /^[0-9a-f]{16}$/.test(hash ?? ''))).toBe(true);
    expect(await marks('a', 'b')).toEqual([one, two]);
    const [other, after] = await marks('x', 'b');
    expect([other === one, after === two]).toEqual([false, false]);
    expect((await marks('a', 'c'))[1]).not.toBe(two);
  });

  test('keep a long meta beside the record', async () => {
    const [short, long] = [`"${'s'.repeat(62)}"`, `"${'l'.repeat(63)}"`];
    await create('short', { meta: short, owner: 'ann' });
    await create('long', { meta: long });
    expect([await at.redis.hget('k:short', 'm'), await at.redis.exists('m:short')]).toEqual([short, 0]);
    expect([await at.redis.hget('k:long', 'm'), await at.redis.get('m:long')]).toEqual([null, long]);
    const read = (keyId: string) =>
      run(readKey({ head: 'head', record: `k:${keyId}`, long: `m:${keyId}`, base: '', letters: LETTERS }));
    expect(await read('short')).toEqual([short, 'shop_1', '', 'ann', '1']);
    expect(await read('long')).toEqual([long, 'shop_1', '', '', '1']);
    expect(await read('none')).toEqual([]);
    const listed = await list('index', 'asc', '', 2, 10, '', '');
    expect(listed.slice(2)).toEqual([
      ['short', short, 'shop_1', '', 'ann', '1'],
      ['long', long, 'shop_1', '', '', '1'],
    ]);
    await at.redis.hset('head', 'deleted', '9');
    const gone = await read('short');
    expect(gone).toEqual([]);
  });

  test('are read with the meta they have now', async () => {
    await create('key_1', { meta: `"${'l'.repeat(63)}"` });
    const become = async (meta: string) => {
      await run(
        writeChange({
          ...{ base: '', head: 'head', log: 'log', index: 'index', members: 'members', channel: 'channel' },
          ...{ record: 'k:key_1', long: 'm:key_1', keyId: 'key_1', operation: 'update', condition: '' },
          ...{ now: 7, maxlen: 100, longest: 1024, needs: 1, fields: ['m', meta] },
        }),
      );
      const about = { head: 'head', record: 'k:key_1', long: 'm:key_1', base: '' };
      const [now] = await run(readKey({ ...about, letters: LETTERS }));
      const [, , [, shown] = []] = (await list('index', 'asc', '', 1, 10, '', '')) as [
        number,
        string,
        string[]?,
      ];
      return [now, shown, await at.redis.exists('m:key_1')];
    };
    expect(await become('{"a":1}')).toEqual(['{"a":1}', '{"a":1}', 0]);
    const long = `"${'n'.repeat(63)}"`;
    expect(await become(long)).toEqual([long, long, 1]);
    expect(await become('')).toEqual(['', '', 0]);
  });

  test('are listed in any order, under every filter', async () => {
    expect(await list('index', 'asc', '', 2, 10, '', '')).toEqual([]);
    for (let i = 1; i <= 7; i++) {
      await create(`key_${i}`, i % 2 ? { owner: 'ann' } : {});
      await at.redis.hset(`k:key_${i}`, { n: i < 4 ? `first ${i}` : `later ${i}`, e: i === 5 ? '0' : '1' });
    }
    const whole = (i: number) => [`key_${i}`, '', 'shop_1', `first ${i}`, i % 2 ? 'ann' : '', '1'];
    expect(await list('index', 'asc', '', 2, 10, '', '')).toEqual([7, '3', whole(1), whole(2)]);
    const from3 = await list('index', 'asc', '3', 5, 10, '', '');
    expect([from3[1], idsOf(from3)]).toEqual(['', ['key_3', 'key_4', 'key_5', 'key_6', 'key_7']]);
    const back = await list('index', 'desc', '5', 3, 10, '', '');
    expect([back[1], idsOf(back)]).toEqual(['2', ['key_5', 'key_4', 'key_3']]);
    expect(idsOf(await list('o:ann', 'asc', '', 9, 10, '', ''))).toEqual([
      'key_1',
      'key_3',
      'key_5',
      'key_7',
    ]);
    expect(idsOf(await list('index', 'asc', '', 9, 10, '0', ''))).toEqual(['key_5']);
    expect(idsOf(await list('index', 'asc', '', 9, 10, '', '', 'key_5'))).toEqual(['key_5']);
    expect(idsOf(await list('index', 'asc', '', 9, 10, '1', 'later'))).toEqual(['key_4', 'key_6', 'key_7']);
    // Three are examined, of which none fits; the fourth is where to go on.
    expect(await list('index', 'asc', '', 9, 3, '', 'later')).toEqual([7, '4']);
    const some = await list('index', 'asc', '', 2, 10, '', 'first');
    expect([some[1], idsOf(some)]).toEqual(['3', ['key_1', 'key_2']]);
    await at.redis.hset('head', 'deleted', '9');
    expect(await list('index', 'asc', '', 2, 10, '', '')).toEqual([]);
  });

  test('are listed by their ids, page after page', async () => {
    const ids = async (source: string, from: string, limit: number) => {
      const page = await run(listIds({ head: 'head', source, from, limit }));
      return page ? [page.next, ...page.keyIds] : [];
    };
    expect(await ids('index', '', 2)).toEqual([]);
    for (const [i, owner] of ['ann', 'bob', 'ann'].entries()) await create(`key_${i}`, { owner });
    expect(await ids('index', '', 2)).toEqual(['3', 'key_0', 'key_1']);
    expect(await ids('index', '3', 2)).toEqual(['', 'key_2']);
    expect(await ids('o:ann', '', 2)).toEqual(['', 'key_0', 'key_2']);
    expect(await ids('o:none', '', 2)).toEqual(['']);
    await at.redis.hset('head', 'deleted', '9');
    expect(await ids('index', '', 2)).toEqual([]);
  });
});
