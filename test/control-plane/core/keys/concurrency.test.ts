import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, useCommandLine } from '../../clients/cli/keyfence.ts';

/** Concurrency limits in the records of keys, identities and roles. */
let fleet: Fleet;
const commandLine = useCommandLine();
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1 });
});
afterAll(() => fleet.stop());

const jobs = (limit: number, more: object = {}) => ({ name: 'jobs', limit, ...more });
const rate = (name: string) => ({ name, limit: 100, duration: 60_000 });
const create = (fields: object, apiId = 'shop'): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId, ...fields });
const keyOf = (keyId: string) => fleet.ok('keys.getKey', { keyId });
const refusalOf = async (call: string, input: object) => {
  const { status, body } = await fleet.admin(call, input);
  return [status, body.error.message];
};
const TAKEN =
  'concurrency: must not have the name of a limit in ratelimits; give one of the two limits named jobs another name';

test('are set, changed and removed', async () => {
  const { key, keyId } = await create({ concurrency: [jobs(3), { name: 'exports', limit: 1_000_000 }] });
  const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop' });
  const listed = keys.find((each: { keyId: string }) => each.keyId === keyId);
  for (const shown of [await keyOf(keyId), listed, await fleet.ok('keys.whoami', { key })])
    expect(shown.concurrency).toEqual([jobs(3), { name: 'exports', limit: 1_000_000 }]);
  for (const none of [[], null]) {
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, concurrency: [jobs(5)] });
    expect(propagation.state).toBe('complete');
    expect((await keyOf(keyId)).concurrency).toEqual([jobs(5)]);
    await fleet.ok('keys.updateKey', { keyId, concurrency: none });
    expect(await keyOf(keyId)).not.toHaveProperty('concurrency');
    const { events } = await fleet.ok('audit.listEvents', { keyId, operation: 'keys.updateKey', limit: '1' });
    expect(events[0]).toMatchObject({ before: { concurrency: [jobs(5)] }, after: { concurrency: null } });
  }
  await fleet.ok('keys.updateKeys', { apiId: 'shop', keyIds: [keyId], concurrency: [jobs(7)] });
  expect((await keyOf(keyId)).concurrency).toEqual([jobs(7)]);
  expect(await fleet.verdict(key)).toBe('VALID');
});

test('stay with a key that is rotated or imported', async () => {
  const { keyId } = await create({ concurrency: [jobs(3)], name: 'Ada' });
  const rotated = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
  expect(await keyOf(rotated.keyId)).toMatchObject({ concurrency: [jobs(3)], name: 'Ada' });
  const keys = [
    { sha256: 'ab'.repeat(32), concurrency: [jobs(4)] },
    { sha256: 'cd'.repeat(32), concurrency: [jobs(4), jobs(5)] },
  ];
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys });
  expect((await keyOf(results[0].keyId)).concurrency).toEqual([jobs(4)]);
  expect(results[1]).toMatchObject({ message: 'concurrency: must contain jobs only once' });
});

test('are those of an identity', async () => {
  const { identityId } = await fleet.ok('identities.createIdentity', {
    externalId: 'ada',
    concurrency: [jobs(3)],
  });
  const identity = () => fleet.ok('identities.getIdentity', { identityId });
  expect(await identity()).toMatchObject({ concurrency: [jobs(3)], ratelimits: [] });
  const update = (fields: object) => fleet.ok('identities.updateIdentity', { identityId, ...fields });
  expect((await update({ concurrency: [jobs(6)] })).concurrency).toEqual([jobs(6)]);
  await update({ ratelimits: [rate('tokens')] });
  const { identities } = await fleet.ok('identities.listIdentities', {});
  expect(identities).toMatchObject([{ concurrency: [jobs(6)], ratelimits: [rate('tokens')] }]);
  expect((await update({ concurrency: [] })).concurrency).toEqual([]);
});

test('are those of a role, per key or identity', async () => {
  const perIdentity = jobs(3, { per: 'identity' });
  const { roleId } = await fleet.ok('permissions.createRole', {
    name: 'pro',
    concurrency: [perIdentity, { name: 'exports', limit: 1, per: 'key' }],
  });
  const exports = { name: 'exports', limit: 1 };
  const role = () => fleet.ok('permissions.getRole', { roleId });
  expect(await role()).toMatchObject({ concurrency: [perIdentity, exports], ratelimits: [] });
  const set = (fields: object) => fleet.ok('permissions.setRoleLimits', { roleId, ...fields });
  await set({ ratelimits: [rate('tokens')] });
  expect(await role()).toMatchObject({ concurrency: [perIdentity, exports], ratelimits: [rate('tokens')] });
  await set({ concurrency: [jobs(9)] });
  expect(await role()).toMatchObject({ concurrency: [jobs(9)], ratelimits: [rate('tokens')] });
  const { events } = await fleet.ok('audit.listEvents', { limit: '1' });
  expect([events[0].before, events[0].after]).toEqual([
    { concurrency: [perIdentity, exports] },
    { concurrency: [jobs(9)] },
  ]);
  await set({ concurrency: [], ratelimits: [] });
  expect(await role()).toMatchObject({ concurrency: [], ratelimits: [] });
  expect(await refusalOf('permissions.setRoleLimits', { roleId })).toEqual([
    400,
    'ratelimits: give these, or concurrency, or both',
  ]);
});

test('share no name with a rate limit', async () => {
  const both = { concurrency: [jobs(3)], ratelimits: [rate('jobs')] };
  for (const [call, input] of [
    ['keys.createKey', { apiId: 'shop' }],
    ['identities.createIdentity', { externalId: 'both' }],
    ['permissions.createRole', { name: 'both' }],
  ] as const)
    expect(await refusalOf(call, { ...input, ...both }), call).toEqual([400, TAKEN]);
  // Each half is a change of its own.
  const { keyId } = await create({ concurrency: [jobs(3)] });
  const { identityId } = await fleet.ok('identities.createIdentity', {
    externalId: 'half',
    concurrency: [jobs(3)],
  });
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'half', concurrency: [jobs(3)] });
  for (const [call, input] of [
    ['keys.updateKey', { keyId }],
    ['identities.updateIdentity', { identityId }],
    ['permissions.setRoleLimits', { roleId }],
  ] as const) {
    const update = (fields: object) => fleet.ok(call, { ...input, ...fields });
    const ratelimits = [rate('tokens'), rate('jobs')];
    expect(await refusalOf(call, { ...input, ratelimits }), call).toEqual([400, TAKEN]);
    await update({ concurrency: [], ratelimits });
    expect(await refusalOf(call, { ...input, concurrency: [jobs(3)] }), call).toEqual([400, TAKEN]);
    await update({ concurrency: [jobs(3)], ratelimits: [rate('tokens')] });
  }
  const other = await create({});
  const { results } = await fleet.ok('keys.updateKeys', {
    ...{ apiId: 'shop', keyIds: [keyId, other.keyId], ratelimits: [rate('jobs')] },
  });
  expect(results).toMatchObject([
    { result: 'refused', code: 'BAD_REQUEST', message: TAKEN },
    { result: 'updated', keyId: other.keyId },
  ]);
  expect((await keyOf(keyId)).ratelimits).toMatchObject([rate('tokens')]);
});

test.each([
  [[jobs(0)], 'concurrency.0.limit'],
  [[jobs(1_000_001)], 'concurrency.0.limit'],
  [[jobs(1.5)], 'concurrency.0.limit'],
  [[{ name: 'a b', limit: 1 }], 'concurrency.0.name'],
  [[{ limit: 1 }], 'concurrency.0.name'],
  [[jobs(1, { duration: 1000 })], 'concurrency.0.duration'],
  [[jobs(1, { per: 'identity' })], 'concurrency.0.per'],
  [[{ name: 'default', limit: 1 }], 'concurrency: must not name a limit default'],
  [[jobs(1), jobs(2)], 'concurrency: must contain jobs only once'],
  [Array.from({ length: 9 }, (_, i) => ({ name: `n${i}`, limit: 1 })), 'concurrency: '],
  [jobs(1), 'concurrency: '],
])('refuses %j by its field', async (concurrency, message) => {
  const { keyId } = await create({});
  for (const [call, input] of [
    ['keys.createKey', { apiId: 'shop' }],
    ['keys.updateKey', { keyId }],
  ] as const)
    expect(await refusalOf(call, { ...input, concurrency })).toEqual([
      400,
      expect.stringMatching(`^${message}`),
    ]);
});

test('need verifiers of protocol 2, and nothing else', async () => {
  const { keyId } = await create({ ratelimits: [rate('jobs')] }, 'old');
  await fleet.client.zadd(apiKeys('old').members, 0, '1.old');
  await fleet.client.zadd(apiKeys(SHARED_LOG).members, 0, '1.old');
  await fleet.client.hdel(apiKeys(SHARED_LOG).head, 'P'); // as before the tests above
  const concurrency = [jobs(1)];
  for (const [call, input] of [
    ['keys.createKey', { apiId: 'old', concurrency }],
    ['keys.updateKey', { keyId, ratelimits: [], concurrency }],
    ['identities.createIdentity', { externalId: 'new', concurrency }],
    ['permissions.createRole', { name: 'new', concurrency }],
  ] as const) {
    const { status, body } = await fleet.admin(call, input);
    expect([call, status, body.error.code]).toEqual([call, 409, 'VERIFIERS_TOO_OLD']);
  }
  await fleet.ok('keys.updateKey', { keyId, ratelimits: [], concurrency: [], waitMs: 0 });
  expect(await fleet.client.hget(apiKeys('old').head, 'P')).toBeNull();
  await fleet.client.zrem(apiKeys('old').members, '1.old');
  await fleet.client.zrem(apiKeys(SHARED_LOG).members, '1.old');
  await fleet.ok('keys.updateKey', { keyId, concurrency });
  expect(await fleet.client.hget(apiKeys('old').head, 'P')).toBe('2');
});

test('are explained by name, the largest of several roles', async () => {
  await fleet.ok('permissions.createRole', { name: 'small', concurrency: [jobs(2)] });
  await fleet.ok('permissions.createRole', {
    name: 'large',
    concurrency: [jobs(8, { per: 'identity' }), { name: 'exports', limit: 5 }],
  });
  const { keyId } = await create({ concurrency: [{ name: 'exports', limit: 1 }], roles: ['small', 'large'] });
  const { code, rules } = await fleet.ok('keys.explain', { keyId });
  expect([code, rules.filter(({ rule }: { rule: string }) => rule === 'concurrency')]).toEqual([
    'VALID',
    [
      { rule: 'concurrency', passed: true, detail: 'exports of the key: 1 holds at the same time, 0 in use' },
      {
        rule: 'concurrency',
        passed: true,
        detail: 'jobs of the role large: 8 holds at the same time, 0 in use',
      },
    ],
  ]);
});

test('are explained as verifiers decide', async () => {
  const ratelimits = [{ name: 'calls', limit: 1, duration: 3_600_000, autoApply: true }];
  const { keyId, key } = await create({ concurrency: [jobs(1)], remaining: 0, ratelimits });
  const hold = { forMs: 60_000, credits: 0 };
  const held = await fleet.verify(key, { hold });
  expect(held.body.code, JSON.stringify(held.body)).toBe('VALID');
  const refused = ({ code, rules }: { code: string; rules: { rule: string; passed: boolean }[] }) => [
    code,
    rules.filter(({ passed }) => !passed).map(({ rule }) => rule),
  ];
  expect(refused(await fleet.ok('keys.explain', { keyId, cost: 10 ** 12 }))).toEqual([
    'RATE_LIMITED',
    ['ratelimit', 'concurrency', 'credits'],
  ]);
  await fleet.ok('keys.updateKey', { keyId, ratelimits: [] });
  const ended = { keyId, cost: 1 };
  expect(refused(await fleet.ok('keys.explain', ended))).toEqual([
    'CONCURRENCY_EXCEEDED',
    ['concurrency', 'credits'],
  ]);
});

test('are given at the command line', async () => {
  const run = async (...words: string[]) => (await commandLine.run(words, envOf(fleet))).stdout;
  const text = '[{"name":"jobs","limit":3}]';
  const made = JSON.parse(await run('keys', 'create', 'shop', '--concurrency', text, '--json'));
  expect(await run('keys', 'get', made.keyId)).toContain('jobs 3');
  await run('identities', 'create', 'grace', '--concurrency', text);
  expect(await run('identities', 'get', 'grace')).toContain('jobs 0 of 3 at once');
  const { roleId } = JSON.parse(await run('roles', 'create', 'cli', '--concurrency', text, '--json'));
  expect(await run('roles', 'get', roleId)).toContain('jobs');
  await run('roles', 'set-limits', roleId, '--concurrency', '[]');
  expect((await fleet.ok('permissions.getRole', { roleId })).concurrency).toEqual([]);
});
