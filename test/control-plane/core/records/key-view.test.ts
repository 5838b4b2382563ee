import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1 });
});
afterAll(() => fleet.stop());

/** A meta that fits into the record, and one that lies beside it. */
const SHORT = { plan: 'free' };
const LONG = { plan: 'x'.repeat(1000) };

interface Shown {
  readonly meta: object;
  readonly name?: string;
  readonly externalId?: string;
}

/** Collects the finds of `look` while `change` goes on, until there are many. */
async function whileChanging(
  change: (round: number) => Promise<unknown>,
  look: () => Promise<readonly Shown[]>,
): Promise<Shown[]> {
  const found: Shown[] = [];
  let over = false;
  const changing = (async () => {
    for (let round = 0; !over; round++) await change(round);
  })();
  const looking = Array.from({ length: 8 }, async () => {
    while (found.length < 600) found.push(...(await look()));
  });
  await Promise.all(looking);
  over = true;
  await changing;
  return found;
}

test('shows a key as it was at one moment', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'whole', name: 'SHORT', meta: SHORT });
  const change = (round: number) =>
    fleet.ok('keys.updateKey', {
      keyId,
      waitMs: 0,
      ...(round % 2 === 0 ? { name: 'LONG', meta: LONG } : { name: 'SHORT', meta: SHORT }),
    });
  const right = new Set([JSON.stringify(['SHORT', SHORT]), JSON.stringify(['LONG', LONG])]);
  const told = ({ name, meta }: Shown) => JSON.stringify([name, meta]);

  const got = await whileChanging(change, async () => [await fleet.ok('keys.getKey', { keyId })]);
  expect(new Set(got.map(told))).toEqual(right);
  const listed = await whileChanging(
    change,
    async () => (await fleet.ok('apis.listKeys', { apiId: 'whole' })).keys,
  );
  expect(new Set(listed.map(told))).toEqual(right);
});

test('never shows the keys of an owner with another', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'owned', externalId: 'a' });
  const change = (round: number) =>
    fleet.ok('keys.updateKey', { keyId, waitMs: 0, externalId: round % 2 === 0 ? 'b' : 'a' });
  const look = async () => (await fleet.ok('apis.listKeys', { apiId: 'owned', externalId: 'a' })).keys;
  const found = await whileChanging(change, look);
  expect(new Set(found.map(({ externalId }) => externalId))).toEqual(new Set(['a']));
});

test('finds a name by its start, in any script', async () => {
  const names = ['Ада', 'Адам', 'Aда', '🦊 fox', '🦋', '%_*'];
  for (const name of names) await fleet.ok('keys.createKey', { apiId: 'named', name });
  const named = async (name: string) =>
    (await fleet.ok('apis.listKeys', { apiId: 'named', name })).keys.map((key: Shown) => key.name);
  expect(await named('Ад')).toEqual(['Ада', 'Адам']);
  expect(await named('🦊')).toEqual(['🦊 fox']);
  expect(await named('%_')).toEqual(['%_*']);
  expect(await named('.')).toEqual([]);
});
