import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { KeyView } from '../../../../control-plane/core/records/key-view.ts';
import { OrderedKeys } from '../../../../control-plane/core/records/ordered-keys.ts';
import { CostlyReads } from '../../../../control-plane/core/serve/turns.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys, identityIndexKey, usageKey } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { PATIENT } from '../../../harness/waiting.ts';

/** Listings in orders without an index: complete, in order and without end only where there is one. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

interface Listed {
  readonly keyId: string;
  readonly name?: string;
  readonly expires?: number;
  readonly lastUsedAt?: number;
}

/** Follows the cursors from a page on; returns the pages. */
async function walk(query: object, from?: string): Promise<Listed[][]> {
  const pages: Listed[][] = [];
  let cursor = from;
  do {
    const page = await fleet.ok('apis.listKeys', { ...query, ...(cursor ? { cursor } : {}) });
    pages.push(page.keys);
    cursor = page.cursor;
    expect(pages.length).toBeLessThan(1000);
  } while (cursor !== undefined);
  return pages;
}
const idsOf = (pages: Listed[][]) => pages.flat().map(({ keyId }) => keyId);

const COUNT = 2500;
const FAR = 4_000_000_000_000;
/** Different orders of the numbers below COUNT, with ties where it divides. */
const shuffled = (i: number) => (i * 1009) % COUNT;

/** What is known of key `i`. Names differ in case and in numbers, some are equal, some keys have none. */
const facts = Array.from({ length: COUNT }, (_, i) => {
  const word = ['Ada', 'ada', 'ADA', 'bob', 'Bob', 'Zoë'][i % 6] ?? '';
  const number = shuffled(i) % 700;
  return {
    ...(i % 10 === 7 ? {} : { name: `${word} ${number}`, word: word.toLowerCase(), number }),
    ...(i % 4 === 1 ? {} : { expires: FAR + (shuffled(i) % 900) }),
    ...(i % 5 === 2 ? {} : { lastUsedAt: 1_000_000_000_000 + (shuffled(i + 3) % 800) * 1000 }),
    enabled: i % 3 !== 0,
    externalId: i % 7 === 0 ? 'customer' : 'other',
  };
});
type Fact = (typeof facts)[number];
let ids: string[];

beforeAll(async () => {
  ids = [];
  for (let first = 0; first < COUNT; first += 500) {
    const keys = facts
      .slice(first, first + 500)
      .map(({ word: _word, number: _number, lastUsedAt: _lastUsedAt, ...fields }, i) => ({
        ...fields,
        sha256: (first + i).toString(16).padStart(64, '0'),
      }));
    const { results } = await fleet.ok('keys.importKeys', { apiId: 'big', keys });
    ids.push(...results.map(({ keyId }: { keyId: string }) => keyId));
  }
  const pipeline = fleet.client.pipeline();
  for (const [i, { lastUsedAt }] of facts.entries())
    if (lastUsedAt !== undefined) pipeline.hset(usageKey('big', ids[i] ?? ''), 't', lastUsedAt);
  await pipeline.exec();
});

const number = (a = 0, b = 0) => a - b;
const ORDERS: Record<string, { has: (fact: Fact) => boolean; compare: (a: Fact, b: Fact) => number }> = {
  name: {
    has: ({ name }) => name !== undefined,
    compare: (a, b) => number(...wordPlaces(a, b)) || number(a.number, b.number),
  },
  expires: {
    has: ({ expires }) => expires !== undefined,
    compare: (a, b) => number(a.expires, b.expires),
  },
  lastUsedAt: {
    has: ({ lastUsedAt }) => lastUsedAt !== undefined,
    compare: (a, b) => number(a.lastUsedAt, b.lastUsedAt),
  },
};
const wordPlaces = (...both: [Fact, Fact]) =>
  both.map(({ word = '' }) => ['ada', 'bob', 'zoë'].indexOf(word)) as [number, number];

/** The ids of the keys that a listing should have, in its order. */
function sorted(sort: string, keep: (fact: Fact, i: number) => boolean): string[] {
  const { has, compare } = ORDERS[sort.replace('-', '')] ?? {};
  if (!has || !compare) throw new Error(`no order ${sort}`);
  const kept = facts.flatMap((fact, i) => (keep(fact, i) ? [{ fact, i }] : []));
  const direction = sort.startsWith('-') ? -1 : 1;
  return [
    ...kept.filter(({ fact }) => has(fact)).sort((a, b) => direction * compare(a.fact, b.fact) || a.i - b.i),
    ...kept.filter(({ fact }) => !has(fact)),
  ].map(({ i }) => ids[i] ?? '');
}

const SORTS = Object.keys(ORDERS).flatMap((field) => [field, `-${field}`]);

describe.each(SORTS)('2,500 keys in the order %s', (sort) => {
  test('are all listed once, a full page at a time', async () => {
    const pages = await walk({ apiId: 'big', sort });
    expect(idsOf(pages)).toEqual(sorted(sort, () => true));
    expect(pages.map(({ length }) => length)).toEqual(new Array(25).fill(100));
  });

  test.each<[object, (fact: Fact) => boolean]>([
    [{ enabled: 'false' }, ({ enabled }) => !enabled],
    [{ externalId: 'customer', limit: '9' }, ({ externalId }) => externalId === 'customer'],
    [{ name: 'Ad' }, ({ name }) => name?.startsWith('Ad') ?? false],
    [{ search: 'OB 6', limit: '37' }, ({ name }) => /ob 6/i.test(name ?? '')],
    [{ search: 'nobody' }, () => false],
    [
      { externalId: 'customer', enabled: 'true', search: 'ada ' },
      (fact) => fact.externalId === 'customer' && fact.enabled && fact.word === 'ada',
    ],
  ])('are filtered by %j', async (filter, keep) => {
    expect(idsOf(await walk({ apiId: 'big', sort, ...filter }))).toEqual(sorted(sort, keep));
  });
});

test('skips only the key deleted between pages', async () => {
  const keys = Array.from({ length: 30 }, (_, i) => ({
    sha256: (COUNT + i).toString(16).padStart(64, '0'),
    name: `n${i}`,
  }));
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shrinking', keys });
  const keyIds: string[] = results.map(({ keyId }: { keyId: string }) => keyId);
  const first = await fleet.ok('apis.listKeys', { apiId: 'shrinking', sort: 'name', limit: '10' });
  for (const i of [3, 9, 10, 15]) await fleet.ok('keys.deleteKey', { keyId: keyIds[i] });
  const rest = await walk({ apiId: 'shrinking', sort: 'name', limit: '10' }, first.cursor);
  expect(first.keys.map(({ keyId }: Listed) => keyId)).toEqual(keyIds.slice(0, 10));
  expect(idsOf(rest)).toEqual(keyIds.filter((_, i) => i > 10 && i !== 15));
});

test('the cursor has room for the longest name', async () => {
  const name = '🔑'.repeat(256);
  for (let i = 0; i < 3; i++) await fleet.ok('keys.createKey', { apiId: 'long', name });
  const pages = await walk({ apiId: 'long', sort: '-name', limit: '1' });
  expect(pages.map((page) => page.map(({ name: listed }) => listed))).toEqual([[name], [name], [name]]);
});

test('refuses a cursor of another order or listing', async () => {
  const { cursor } = await fleet.ok('apis.listKeys', { apiId: 'big', sort: 'name', limit: '1' });
  const errorOf = async (query: object) => {
    const { status, body } = await fleet.admin('apis.listKeys', { apiId: 'big', ...query });
    return `${status} ${body.error.message}`;
  };
  for (const sort of ['createdAt', '-createdAt', '-name', 'expires'])
    expect(await errorOf({ sort, cursor })).toBe(
      '400 cursor: must be one that listKeys returned for the same listing; begin without a cursor',
    );
  const strange = Buffer.from('size:1:2').toString('base64url');
  expect(await errorOf({ sort: 'name', cursor: strange })).toBe(
    '400 cursor: must be one that listKeys returned for the same listing; begin without a cursor',
  );
});

test('orders over 200,000 keys only for an identity', async () => {
  await fleet.ok('keys.createKey', { apiId: 'huge', externalId: 'one', name: 'only' });
  const fill = "for i = 1001, 201000 do redis.call('ZADD', KEYS[1], i, 'key_' .. i) end";
  await fleet.client.eval(fill, 1, apiKeys('huge').index);
  expect(await fleet.client.zcard(identityIndexKey('huge', 'one'))).toBe(1);
  const { status, body } = await fleet.admin('apis.listKeys', { apiId: 'huge', sort: '-expires' });
  expect(status).toBe(400);
  expect(body.error.message).toBe(
    'sort: orders up to 200000 keys by expires, and the API has 200001; add externalId, or use createdAt',
  );
  const page = await fleet.ok('apis.listKeys', { apiId: 'huge', sort: '-expires', externalId: 'one' });
  expect(page.keys.map(({ name }: Listed) => name)).toEqual(['only']);
});

test('has no order of an API that does not exist', async () => {
  expect((await fleet.admin('apis.listKeys', { apiId: 'nowhere', sort: 'name' })).status).toBe(404);
});

test('only a listing of many keys takes a turn', async () => {
  const log = createLogger('control-plane', 'silent');
  const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
  const nodes = new RedisNodes(config, systemClock, log);
  const reads = new CostlyReads();
  const orderedKeys = new OrderedKeys(nodes, new KeyView(nodes), reads);
  const { promise, resolve } = Promise.withResolvers<void>();
  const held = reads.run('a', () => promise);
  const large = orderedKeys.list('a', 'big', {}, 1, 'name');
  expect((await orderedKeys.list('a', 'long', {}, 1, 'name'))?.total).toBe(3);
  expect((await orderedKeys.list('b', 'big', {}, 1, 'name'))?.total).toBe(COUNT);
  resolve();
  await held;
  expect((await large)?.total).toBe(COUNT);
  await nodes.close();
});

test('a caller of many listings holds up nobody', async () => {
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'flood', permissions: ['api.*.read_key', 'api.*.read_api'] },
  });
  const query = { apiId: 'big', sort: 'name', limit: '1' };
  const flood = Array.from({ length: 40 }, () => fleet.admin('apis.listKeys', query, { rootKey }));
  await Promise.race(flood);
  const others = await Promise.all(Array.from({ length: 5 }, () => fleet.admin('apis.listKeys', query)));
  expect(others.map(({ status }) => status)).toEqual(new Array(5).fill(200));
  expect((await Promise.all(flood)).map(({ status }) => status)).toEqual(new Array(40).fill(200));
});
