import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
const hidden = ['aa-secret', 'b-secret', 'shop-secret', 'zz-secret'];
const mine = ['a-mine', 'm-mine', 'shop', 'z-mine'];

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  for (const apiId of [...hidden, ...mine]) await fleet.ok('apis.createApi', { name: apiId, apiId });
});
afterAll(() => fleet.stop());

/** The ids of a listing page by page, and every cursor that it gave. */
async function listed(rootKey: string, limit: string): Promise<{ pages: string[][]; cursors: string[] }> {
  const pages: string[][] = [];
  const cursors: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await fleet.ok('apis.listApis', { limit, ...(cursor ? { cursor } : {}) }, { rootKey });
    pages.push(page.apis.map(({ id }: { id: string }) => id));
    cursor = page.cursor;
    if (cursor === undefined) return { pages, cursors };
    cursors.push(cursor);
  }
}
const rootKeyWith = async (...permissions: string[]): Promise<string> =>
  (await fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions })).key;

test('shows no API that the caller may not read', async () => {
  const rootKey = await rootKeyWith(
    ...mine.map((apiId) => `api.${apiId}.read_api`),
    'api.nowhere.read_api',
    'api.b-secret.create_key',
  );
  for (const [limit, pages] of [
    ['1', mine.map((apiId) => [apiId])],
    ['2', [mine.slice(0, 2), mine.slice(2)]],
    ['3', [mine.slice(0, 3), mine.slice(3)]],
    ['100', [mine]],
  ] as const) {
    const found = await listed(rootKey, limit);
    expect(found.pages).toEqual(pages);
    const decoded = found.cursors.map((cursor) => Buffer.from(cursor, 'base64url').toString().slice(8));
    expect(decoded).toEqual(found.pages.slice(0, -1).map((page) => `after:${page.at(-1)}`));
  }
});

test('whoever may read none sees one empty page', async () => {
  for (const permission of ['api.shop.create_key', 'root.*.read_fleet']) {
    expect(await listed(await rootKeyWith(permission), '1')).toEqual({ pages: [[]], cursors: [] });
  }
});

test('whoever may read all sees each once, in order', async () => {
  const rootKey = await rootKeyWith('api.*.read_api');
  for (const limit of ['1', '3', '8']) {
    const { pages } = await listed(rootKey, limit);
    expect(pages.flat()).toEqual([...hidden, ...mine].sort());
  }
});

test('counts keys only for who may read them', async () => {
  await fleet.ok('keys.createKey', { apiId: 'counted' });
  await fleet.ok('keys.createKey', { apiId: 'counted' });
  expect((await fleet.ok('apis.getApi', { apiId: 'counted' })).keys).toBe(2);
  const may = async (...permissions: string[]) => {
    const { key } = await fleet.ok('rootKeys.createRootKey', { name: 'counter', permissions });
    const [{ apis }, api] = await Promise.all([
      fleet.ok('apis.listApis', {}, { rootKey: key }),
      fleet.ok('apis.getApi', { apiId: 'counted' }, { rootKey: key }),
    ]);
    return [apis.map(({ keys }: { keys?: number }) => keys), api.keys];
  };
  expect(await may('api.counted.read_api', 'api.counted.read_key')).toEqual([[2], 2]);
  expect(await may('api.counted.read_api')).toEqual([[undefined], undefined]);
});

test('a cursor of another listing is refused', async () => {
  for (const cursor of [
    'shop',
    Buffer.from('asc:1').toString('base64url'),
    Buffer.from('after:').toString('base64url'),
  ]) {
    const { status, body } = await fleet.admin('apis.listApis', { cursor });
    expect([status, body.error.message]).toEqual([
      400,
      'cursor: must be one that listApis returned for the same listing; begin without a cursor',
    ]);
  }
});
