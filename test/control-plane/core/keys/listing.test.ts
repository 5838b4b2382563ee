import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditKeyIndex, auditStream } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

/** Long listings, page by page: nothing twice, nothing left out, and an end that is the end. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

/** Follows the cursors. */
async function walk<Item>(
  operation: string,
  query: object,
  itemsOf: (page: Record<string, Item[]>) => Item[],
) {
  const pages: Item[][] = [];
  let cursor: string | undefined;
  do {
    const page = await fleet.ok(operation, { ...query, ...(cursor ? { cursor } : {}) });
    pages.push(itemsOf(page));
    cursor = page.cursor;
    expect(pages.length).toBeLessThan(2000);
  } while (cursor !== undefined);
  return pages;
}

describe('keys', () => {
  const COUNT = 1205;
  /** Those that have a name to be found by: at the ends, and around the most that one page looks at. */
  const FOUND = [0, 1, 500, 998, 999, 1000, 1001, 1203, 1204];
  let ids: string[];

  beforeAll(async () => {
    ids = [];
    for (let first = 0; first < COUNT; first += 500) {
      const keys = Array.from({ length: Math.min(500, COUNT - first) }, (_, i) => ({
        sha256: (first + i).toString(16).padStart(64, '0'),
        name: FOUND.includes(first + i) ? `found-${first + i}` : 'other',
      }));
      const { results } = await fleet.ok('keys.importKeys', { apiId: 'big', keys });
      ids.push(...results.map(({ keyId }: { keyId: string }) => keyId));
    }
  });
  const keysOf = (page: Record<string, { keyId: string }[]>) => page['keys'] ?? [];
  const listed = (query: object) => walk('apis.listKeys', { apiId: 'big', ...query }, keysOf);
  const idsOf = (pages: { keyId: string }[][]) => pages.flat().map(({ keyId }) => keyId);

  test.each(['7', '9', '100'])('of a long API are all found by name: %s each', async (limit) => {
    const wanted = FOUND.map((i) => ids[i]);
    expect(idsOf(await listed({ name: 'found', limit }))).toEqual(wanted);
    expect(idsOf(await listed({ name: 'found', limit, sort: '-createdAt' }))).toEqual(wanted.toReversed());
  });

  test('nameless, are searched a thousand a page', async () => {
    expect(await listed({ name: 'nobody', limit: '100' })).toEqual([[], []]);
  });

  test('fill every page, and end without a cursor', async () => {
    const pages = await listed({ limit: '100' });
    expect(pages.map(({ length }) => length)).toEqual([...new Array(12).fill(100), 5]);
    expect(idsOf(pages)).toEqual(ids);
    const full = await listed({ externalId: 'none', limit: '1' });
    expect(full).toEqual([[]]);
    for (const keyId of ids.slice(3, 7)) await fleet.ok('keys.updateKey', { keyId, externalId: 'o' });
    const owned = await listed({ externalId: 'o', limit: '2' });
    expect(owned.map((page) => idsOf([page]))).toEqual([ids.slice(3, 5), ids.slice(5, 7)]);
  });
});

describe('events', () => {
  const COUNT = 401;
  const EARLIEST = 1_700_000_000_000;
  const stored = Array.from({ length: COUNT }, (_, i) => ({
    time: i,
    requestId: `r${i}`,
    operation: i % 100 === 0 ? 'x.rare' : 'x.usual',
    outcome: 'OK',
    by: { rootKeyId: `root_${i % 3}`, address: 'a' },
    on: { keyId: `key_${i % 7}`, apiId: `api_${i % 200}` },
  }));
  type Event = (typeof stored)[number];

  beforeAll(async () => {
    const pipeline = fleet.client.pipeline();
    await fleet.client.del(auditStream('done'));
    for (const [i, event] of stored.entries())
      pipeline
        .xadd(auditStream('done'), `${EARLIEST + i}-0`, 'e', JSON.stringify(event), 'k', event.on.keyId)
        .zadd(auditKeyIndex(event.on.keyId), EARLIEST + i, `${EARLIEST + i}-0`);
    await pipeline.exec();
  });
  const listed = (query: object) =>
    walk('audit.listEvents', query, (page: Record<string, Event[]>) => page['events'] ?? []);
  const wanted = (keep: (event: Event) => boolean) =>
    stored
      .filter(keep)
      .map(({ requestId }) => requestId)
      .toReversed();
  const requestsOf = (pages: Event[][]) => pages.flat().map(({ requestId }) => requestId);

  test.each(['1', '2', '99', '100'])('are all listed under every filter, %s a page', async (limit) => {
    for (const [filter, keep] of [
      [{ operation: 'x.rare' }, ({ operation }: Event) => operation === 'x.rare'],
      [{ rootKeyId: 'root_1' }, ({ by }: Event) => by.rootKeyId === 'root_1'],
      [{ keyId: 'key_3' }, ({ on }: Event) => on.keyId === 'key_3'],
      [{ apiId: 'api_0' }, ({ on }: Event) => on.apiId === 'api_0'],
      [{ apiId: 'api_199' }, ({ on }: Event) => on.apiId === 'api_199'],
      [
        { keyId: 'key_0', rootKeyId: 'root_0', operation: 'x.rare' },
        ({ time }: Event) => time % 21 === 0 && time % 100 === 0,
      ],
    ] as const) {
      const requests = wanted(keep);
      // Hundreds of pages tell no more than dozens.
      if (requests.length / Number(limit) > 70) continue;
      expect(requestsOf(await listed({ ...filter, limit })), JSON.stringify(filter)).toEqual(requests);
    }
  });

  test('fill every page, and end without a cursor', async () => {
    const pages = await listed({ limit: '100' });
    expect(pages.map(({ length }) => length)).toEqual([100, 100, 100, 100, 1]);
    expect(requestsOf(pages)).toEqual(wanted(() => true));
    const since = await listed({ limit: '100', since: String(EARLIEST + 1) });
    expect(since.map(({ length }) => length)).toEqual([100, 100, 100, 100]);
    expect(requestsOf(since)).toEqual(wanted(({ time }) => time >= 1));
    const until = await listed({ limit: '100', until: String(EARLIEST) });
    expect(requestsOf(until)).toEqual(wanted(({ time }) => time <= 0));
    const two = await listed({ limit: '2', since: String(EARLIEST + COUNT - 4) });
    expect(two.map(({ length }) => length)).toEqual([2, 2]);
  });
});

test('a search ignores case and composition', async () => {
  const names = ['Éclair', 'Việt', 'МОСКВА Йод', 'straße', 'Ωmega', 'plain'];
  for (const form of ['NFC', 'NFD'])
    for (const [i, name] of names.entries()) {
      const text = `${name} ${form}`.normalize(form);
      await fleet.ok('keys.createKey', { apiId: 'letters', name: text, externalId: `${form} ${i}` });
      await fleet.ok('identities.createIdentity', { externalId: text, waitMs: 0 });
      await fleet.ok('permissions.createRole', { name: `letters-${i}-${form}`, description: text });
    }
  const found = async (search: string) => {
    const roles = await fleet.post(
      `${fleet.controlPlanes[0]?.address}/v2/permissions.listRoles`,
      { search },
      { authorization: `Bearer ${ROOT_KEY}` },
    );
    const keys = await fleet.ok('apis.listKeys', { apiId: 'letters', search });
    const byName = await fleet.ok('apis.listKeys', { apiId: 'letters', search, sort: 'name' });
    const { identities } = await fleet.ok('identities.listIdentities', { search });
    const nameOf = (text: string) => text.normalize('NFC').slice(0, -4);
    const lists: string[][] = [
      keys.keys.map(({ name }: { name: string }) => nameOf(name)),
      byName.keys.map(({ name }: { name: string }) => nameOf(name)).sort(),
      identities.map(({ externalId }: { externalId: string }) => nameOf(externalId)),
      roles.body.data.map(({ description }: { description: string }) => nameOf(description)),
    ];
    return lists.map((list) => list.join());
  };
  for (const name of names)
    for (const form of ['NFC', 'NFD'])
      for (const search of [name, name.slice(0, 1), name.toLowerCase(), name.toUpperCase()]) {
        // Ids have single letters of A–Z, too, and ß has no capital.
        if (search.length === 1 && search < '\x80') continue;
        if (search === 'STRASSE') continue;
        const expected = names.filter((each) => each.toLowerCase().includes(search.toLowerCase()));
        const twice = [...expected, ...expected];
        const [keys, byName, identities, roles] = await found(search.normalize(form));
        expect([search, form, keys, identities, roles]).toEqual([
          ...[search, form, twice.join(), twice.join(), twice.join()],
        ]);
        expect(byName).toBe(twice.sort().join());
      }
});
