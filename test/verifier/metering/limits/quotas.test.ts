import { afterAll, beforeAll, expect, test } from 'vitest';
import { protocolFor } from '../../../../shared/protocol/records/protocol.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** Limits by the calendar, at two verifiers. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const codes = async (key: string, uses: number) => {
  const verdicts: string[] = [];
  for (let i = 0; i < uses; i++) verdicts.push(await fleet.verdict(key, { at: i % 2 }));
  return verdicts;
};

test('each period has the limit, until its end', async () => {
  const ratelimit = { limit: 3, interval: 'month', anchor: { day: 31, hour: 9, offsetMinutes: 60 } };
  const { key, keyId } = await create({ ratelimit });
  expect(await codes(key, 5)).toEqual(['VALID', 'VALID', 'VALID', 'RATE_LIMITED', 'RATE_LIMITED']);
  const { body } = await fleet.verify(key);
  const [state] = body.ratelimits;
  expect(state).toMatchObject({ name: 'default', limit: 3, interval: 'month', duration: 31 * 86_400_000 });
  // The last day of a month, at 08:00 UTC.
  const reset = new Date(state.reset);
  expect(reset.toISOString()).toMatch(/T08:00:00\.000Z$/);
  expect(new Date(state.reset + 86_400_000).getUTCDate()).toBe(1);
  expect(reset.getTime()).toBeGreaterThan(Date.now());
  const view = await fleet.ok('keys.getKey', { keyId });
  expect(view.ratelimit).toEqual({ ...ratelimit, duration: 31 * 86_400_000, async: true });
  const { rules } = await fleet.ok('keys.explain', { keyId });
  expect(JSON.stringify(rules)).toContain('default of the key: 3 each calendar month, 0 left, takes 1');
  // What an answer shows may be sent back.
  expect(
    await fleet.ok('keys.updateKey', { keyId, ratelimit: { ...view.ratelimit, limit: 4 } }),
  ).toMatchObject({
    propagation: { state: 'complete' },
  });
  expect(await codes(key, 2)).toEqual(['VALID', 'RATE_LIMITED']);
});

test('weeks, days and hours, of keys, identities and roles', async () => {
  const quota = (name: string, interval: string, anchor?: object) => ({
    ...{ name, limit: 2, interval, autoApply: true },
    ...(anchor ? { anchor } : {}),
  });
  const week = quota('week', 'week', { weekday: 7 });
  await fleet.ok('permissions.createRole', { name: 'daily', ratelimits: [quota('day', 'day', { hour: 4 })] });
  await fleet.ok('identities.createIdentity', { externalId: 'ada', ratelimits: [week], roles: ['daily'] });
  const { key } = await create({ externalId: 'ada', ratelimits: [quota('hour', 'hour')] });
  const { body } = await fleet.verify(key);
  // The other verifier has what is left, although the first asked two Redis scripts for three limits.
  expect(await fleet.verdict(key, { at: 1 })).toBe('VALID');
  expect(await codes(key, 2)).toEqual(['RATE_LIMITED', 'RATE_LIMITED']);
  const resets = Object.fromEntries(
    body.ratelimits.map(({ name, reset }: { name: string; reset: number }) => [name, new Date(reset)]),
  );
  expect(resets.hour.getUTCMinutes()).toBe(0);
  expect(resets.day.getUTCHours()).toBe(4);
  expect([resets.week.getUTCDay(), resets.week.getUTCHours()]).toEqual([0, 0]);
});

test('refills come weekly, and at an hour of a zone', async () => {
  const refill = { interval: 'weekly', amount: 5, anchor: { weekday: 3, hour: 12, offsetMinutes: -300 } };
  const { key, keyId } = await create({ remaining: 1, refill });
  expect((await fleet.ok('keys.getKey', { keyId })).refill).toEqual(refill);
  expect(await codes(key, 2)).toEqual(['VALID', 'USAGE_EXCEEDED']);
  const { keyId: monthly } = await create({ remaining: 1, refill: { interval: 'monthly', amount: 5 } });
  expect((await fleet.ok('keys.getKey', { keyId: monthly })).refill).toEqual({
    ...{ interval: 'monthly', amount: 5, refillDay: 1 },
  });
});

test('names the field of a bad period', async () => {
  const refusal = async (fields: object) =>
    (await fleet.admin('keys.createKey', { apiId: 'shop', ...fields })).body.error.message;
  const limit = (more: object) => refusal({ ratelimit: { limit: 1, ...more } });
  expect(await limit({})).toBe('ratelimit.duration: give this or interval');
  expect(await limit({ interval: 'day', duration: 1000 })).toBe(
    'ratelimit.duration: give either this or interval',
  );
  expect(await limit({ interval: 'year' })).toMatch(/^ratelimit\.interval: /);
  expect(await limit({ duration: 1000, anchor: { day: 1 } })).toBe(
    'ratelimit.anchor: allowed only with interval',
  );
  expect(await limit({ interval: 'day', anchor: { day: 1 } })).toBe(
    'ratelimit.anchor.day: allowed only for months',
  );
  expect(await limit({ interval: 'month', anchor: { weekday: 1 } })).toBe(
    'ratelimit.anchor.weekday: allowed only for weeks',
  );
  expect(await limit({ interval: 'hour', anchor: { hour: 1 } })).toMatch(
    /^ratelimit\.anchor\.hour: not allowed/,
  );
  expect(await limit({ interval: 'month', anchor: { day: 32 } })).toMatch(/^ratelimit\.anchor\.day: /);
  expect(await refusal({ ratelimits: [{ name: 'a', limit: 1 }] })).toBe(
    'ratelimits.0.duration: give this or interval',
  );
  const refill = { interval: 'daily', amount: 1, anchor: { day: 1 } };
  expect(await refusal({ remaining: 1, refill })).toBe('refill.anchor.day: allowed only for months');
  const both = { interval: 'monthly', amount: 1, refillDay: 2, anchor: { hour: 1 } };
  expect(await refusal({ remaining: 1, refill: both })).toBe('refill.refillDay: give anchor.day instead');
});

test('verifiers that ignore the calendar are kept out', () => {
  expect(protocolFor('key_1', { l: '{"limit":1,"duration":1000,"async":true}' }, { refill: 'm 5 1' })).toBe(
    1,
  );
  expect(protocolFor('key_1', {}, { thresholds: '80' })).toBe(2);
  expect(
    protocolFor('key_1', { L: '[{"name":"a","limit":1,"duration":1,"interval":"day","async":true}]' }),
  ).toBe(2);
  expect(protocolFor('key_1', { L: '[{"name":"interval","limit":1,"duration":1,"async":true}]' })).toBe(1);
  expect(protocolFor('key_1', {}, { refill: 'w 5' })).toBe(2);
  expect(protocolFor('key_1', {}, { refill: 'd 5 +3600 {"hour":1}' })).toBe(2);
  expect(protocolFor('role_1', { L: '[]' })).toBe(2);
  expect(protocolFor('identity_1', { R: 'role_1' })).toBe(2);
});
