import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Limits of identities: three verifiers, and customers with keys in several APIs. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const DAY_MS = 86_400_000;
const NAMED = { ratelimits: [{ name: 'tokens' }] };
const tokens = (limit: number, more: object = {}) => ({
  ratelimits: [{ name: 'tokens', limit, duration: DAY_MS, ...more }],
});
let made = 0;

/** A customer with these limits, and a key of theirs in each of two APIs. */
async function customer(limits: object, fields: object = {}) {
  const externalId = `limited-${++made}`;
  const create = (apiId: string) => fleet.ok('keys.createKey', { apiId, externalId, ...fields });
  const early = await create('shop');
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId, ...limits });
  const keys: string[] = [early.key, (await create('books')).key];
  const set = (next: object) => fleet.ok('identities.updateIdentity', { externalId, ...next });
  return { externalId, identityId, keys, set, create };
}

/** The verdicts of so many verifications at once, over all keys and verifiers. */
const many = (keys: readonly string[], times: number, fields: object = NAMED) =>
  Promise.all(
    Array.from({ length: times }, (_, i) =>
      fleet.verdict(keys[i % keys.length] ?? '', { at: i % 3, ...fields }),
    ),
  );
const validOf = (codes: readonly string[]) => codes.filter((code) => code === 'VALID').length;

describe('a limit of an identity', () => {
  test.each([true, false])('is shared by all keys and APIs (async: %s)', async (async) => {
    const { keys } = await customer(tokens(30, { async }));
    const codes = await many(keys, 90);
    expect(new Set(codes)).toEqual(new Set(['VALID', 'RATE_LIMITED']));
    expect(validOf(codes)).toBe(30);
    // Only who names it is held to it.
    expect(validOf(await many(keys, 6, {}))).toBe(6);
    const { body } = await fleet.verify(keys[0] ?? '', NAMED);
    expect(body).toMatchObject({
      ...{ code: 'RATE_LIMITED', ratelimit: { limit: 30, remaining: 0 } },
      ratelimits: [{ name: 'tokens', limit: 30, duration: DAY_MS, exceeded: true }],
    });
  });

  test('comes after the limit of the key itself', async () => {
    const { externalId, keys, create } = await customer(tokens(1));
    const own = (await create('shop')).key;
    const special = await fleet.ok('keys.createKey', { apiId: 'shop', externalId, ...tokens(2) });
    expect(validOf(await many([special.key], 6))).toBe(2);
    expect(validOf(await many([own, ...keys], 9))).toBe(1);
    const other = await customer(tokens(4));
    expect(validOf(await many(other.keys, 9))).toBe(4);
  });

  test('with autoApply is obeyed unnamed, and once', async () => {
    const { externalId, keys, create, set } = await customer(tokens(30, { autoApply: true }));
    expect(validOf(await many(keys, 20, {}))).toBe(20);
    const taken = await fleet.verify(keys[0] ?? '', { ratelimits: [{ name: 'tokens', cost: 4 }] });
    expect(taken.body).toMatchObject({ code: 'VALID', ratelimits: [{ name: 'tokens' }] });
    expect(validOf(await many(keys, 20, {}))).toBe(6);
    const own = await fleet.ok('keys.createKey', { apiId: 'shop', externalId, ...tokens(2) });
    expect(validOf(await many([own.key], 6, {}))).toBe(6);
    expect(validOf(await many([own.key], 6))).toBe(2);
    expect((await fleet.ok('identities.getIdentity', { externalId })).ratelimits[0].autoApply).toBe(true);
    await set(tokens(30));
    expect(validOf(await many([...keys, (await create('shop')).key], 12, {}))).toBe(12);
  });

  test('holds as it is once its change is complete', async () => {
    const { keys, set } = await customer(tokens(1));
    expect(validOf(await many(keys, 6))).toBe(1);
    expect((await set(tokens(5))).propagation.state).toBe('complete');
    // What was used in the window counts.
    expect(validOf(await many(keys, 12))).toBe(4);
    await set({ ratelimits: [] });
    const answer = await fleet.verify(keys[0] ?? '', NAMED);
    expect([answer.status, answer.body.error.message]).toEqual([
      400,
      'ratelimits: neither the key nor its identity or roles have a limit named tokens',
    ]);
    await set(tokens(6));
    expect(validOf(await many(keys, 6))).toBe(1);
    // Verifiers have slices of it, which are void.
    await set(tokens(1000));
    expect(validOf(await many(keys, 300))).toBe(300);
    await set(tokens(100));
    expect(validOf(await many(keys, 60))).toBe(0);
  });

  test('takes nothing from refused requests', async () => {
    const { keys, set } = await customer(tokens(2), { ratelimit: { limit: 1, duration: DAY_MS } });
    const [first = '', second = ''] = keys;
    expect(await fleet.verdict(first, NAMED)).toBe('VALID');
    expect(await fleet.verdict(first, NAMED)).toBe('RATE_LIMITED');
    await set({ enabled: false });
    expect(await fleet.verdict(second, NAMED)).toBe('DISABLED');
    await set({ enabled: true });
    expect(await fleet.verdict(second, NAMED)).toBe('VALID');
    expect(await fleet.verdict(second, NAMED)).toBe('RATE_LIMITED');
  });

  test('is shown, and refused if malformed', async () => {
    const { externalId, set } = await customer({});
    expect((await fleet.ok('identities.getIdentity', { externalId })).ratelimits).toEqual([]);
    const changed = await set(tokens(7));
    expect(changed.ratelimits).toEqual([{ name: 'tokens', limit: 7, duration: DAY_MS, async: true }]);
    const { events } = await fleet.ok('audit.listEvents');
    expect(events[0]).toMatchObject({
      before: { ratelimits: null },
      after: { ratelimits: changed.ratelimits },
    });
    for (const [ratelimits, message] of [
      [[{ name: 'default', limit: 1, duration: 1000 }], 'ratelimits: must not name a limit default'],
      [[...tokens(1).ratelimits, ...tokens(2).ratelimits], 'ratelimits: must contain tokens only once'],
      [[{ name: 'a b', limit: 1, duration: 1000 }], 'ratelimits.0.name'],
      [[{ name: 'a', limit: 0, duration: 1000 }], 'ratelimits.0.limit'],
    ] as const) {
      const refused = await fleet.admin('identities.updateIdentity', { externalId, ratelimits });
      expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining(message)]);
    }
  });
});
