import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { UNIX_MS_MIN } from '../../../../shared/rules/unix-ms.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { envOf, useCommandLine } from '../../clients/cli/keyfence.ts';

let fleet: Fleet;
const commandLine = useCommandLine();
beforeAll(async () => {
  fleet = await Fleet.start({ env: { FOREIGN_KEYS: 'true', USAGE_PERIOD_MS: '0' } });
});
afterAll(() => fleet.stop());

interface Rule {
  readonly rule: string;
  readonly passed: boolean;
  readonly detail: string;
}
const explain = (input: object, rootKey?: string): Promise<{ code: string; valid: boolean; rules: Rule[] }> =>
  fleet.ok('keys.explain', input, rootKey === undefined ? {} : { rootKey });
const detailOf = (rules: readonly Rule[], name: string) => rules.find(({ rule }) => rule === name)?.detail;
const created = (fields: object): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

test('tells every rule in order, consuming nothing', async () => {
  await fleet.ok('permissions.createRole', { name: 'editor', permissions: ['files.write'] });
  await fleet.ok('identities.createIdentity', {
    externalId: 'ada',
    ratelimits: [{ name: 'shared', limit: 7, duration: 3_600_000, autoApply: true }],
  });
  const { key, keyId } = await created({
    name: 'Ada',
    externalId: 'ada',
    allowedIps: ['192.0.2.0/24'],
    permissions: ['files.read'],
    roles: ['editor'],
    remaining: 5,
    ratelimit: { limit: 10, duration: 3_600_000 },
    ratelimits: [{ name: 'tokens', limit: 100, duration: 60_000 }],
  });
  const asked = { apiId: 'shop', clientIp: '192.0.2.7', permissions: 'files.read AND files.write' };
  const more = { cost: 2, ratelimits: [{ name: 'tokens', cost: 30 }] };
  for (let i = 0; i < 3; i++) {
    const { code, rules } = await explain({ key, ...asked, ...more });
    expect(code).toBe('VALID');
    expect(rules.map(({ rule, detail }) => [rule, detail])).toEqual([
      ['secret', 'its checksum is right'],
      ['key', `${keyId}, Ada`],
      ['api', 'of shop'],
      ['enabled', 'the key is enabled'],
      ['identity', 'ada is enabled'],
      ['expires', 'never'],
      ['address', '192.0.2.7 is in 192.0.2.0/24'],
      ['origin', 'the key may be used by any web page, and without one'],
      ['permissions', 'files.read: by the key; files.write: by role editor'],
      ['ratelimit', 'default of the key: 10 an hour, 10 left, takes 1'],
      ['ratelimit', 'tokens of the key: 100 a minute, 100 left, takes 30'],
      ['ratelimit', 'shared of the identity: 7 an hour, 7 left, takes 1'],
      ['credits', '5 left, takes 2'],
    ]);
  }
  expect((await fleet.ok('keys.getKey', { keyId })).remaining).toBe(5);

  const verdict = await fleet.verify(key, { clientIp: '192.0.2.7', remaining: { cost: 4 } });
  expect(verdict.body.code).toBe('VALID');
  const spent = await explain({ keyId, clientIp: '192.0.2.7', permissions: 'a OR files.read', cost: 4 });
  expect(spent.code).toBe('USAGE_EXCEEDED');
  expect(detailOf(spent.rules, 'credits')).toMatch(/^1 left(, of which verifiers hold \d)?, takes 4$/);
  expect(detailOf(spent.rules, 'ratelimit')).toBe('default of the key: 10 an hour, 9 left, takes 1');
  expect(detailOf(spent.rules, 'permissions')).toBe('a: missing; files.read: by the key');

  await fleet.ok('identities.updateIdentity', { externalId: 'ada', enabled: false });
  const stopped = await explain({ keyId, apiId: 'other', permissions: 'admin' });
  expect(stopped.code).toBe('FORBIDDEN');
  expect(stopped.rules.filter(({ passed }) => !passed).map(({ rule, detail }) => [rule, detail])).toEqual([
    ['api', 'of shop, not of other'],
    ['identity', 'ada is disabled'],
    ['address', 'clientIp is unknown, and must be in 192.0.2.0/24'],
    ['permissions', 'admin: missing'],
  ]);
});

test('explains a secret whether or not its key is', async () => {
  const { key, keyId } = await created({});
  const failed = async (secret: string, rootKey?: string) => {
    const { code, rules } = await explain({ key: secret }, rootKey);
    return [code, rules.filter(({ passed }) => !passed).map(({ rule }) => rule)];
  };
  expect(await failed(generateKey(16))).toEqual(['NOT_FOUND', ['key']]);
  expect(await failed(`${key.slice(0, -1)}_`)).toEqual(['NOT_FOUND', ['secret', 'key']]);
  const foreign = { sha256: 'a'.repeat(64) };
  expect((await fleet.ok('keys.importKeys', { apiId: 'shop', keys: [foreign] })).results).toHaveLength(1);
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
    name: 'n',
    permissions: ['api.other.explain_key', 'api.shop.read_key'],
  });
  expect(await failed(key, rootKey)).toEqual(['NOT_FOUND', ['key']]);
  expect((await fleet.admin('keys.explain', { keyId }, { rootKey })).status).toBe(403);
  const wrong = async (input: object) => (await fleet.admin('keys.explain', input)).body.error.message;
  expect(await wrong({})).toBe('body: must have either keyId or key');
  expect(await wrong({ key, keyId })).toBe('body: must have either keyId or key');
  expect(await wrong({ keyId, clientIp: 'x' })).toBe('clientIp: must be an IPv4 or IPv6 address');
  expect(await wrong({ keyId, permissions: 'a AND' })).toMatch(/^permissions: expected a permission/);
  expect(await wrong({ keyId, ratelimits: [{ name: 'none' }] })).toBe(
    'ratelimits.0.name: neither the key nor its identity or roles have this limit',
  );
  expect(fleet.logged.join('')).not.toContain(key);
});

test('tells a refusal before a limit that nobody has', async () => {
  const { key, keyId } = await created({ enabled: false });
  const question = { ratelimits: [{ name: 'none' }] };
  const { code, rules } = await explain({ keyId, ...question });
  expect(code).toBe((await fleet.verify(key, question)).body.code);
  expect(code).toBe('DISABLED');
  expect(detailOf(rules, 'ratelimit')).toMatch(/^ratelimits.0.name: neither the key/);
});

test('the command line explains an id or a secret', async () => {
  const { key, keyId } = await created({ enabled: false });
  const byId = await commandLine.run(['keys', 'explain', keyId], envOf(fleet));
  expect(byId.status).toBe(1);
  expect(byId.stdout).toMatch(/DISABLED[\s\S]*enabled +NO +the key is disabled/);
  const bySecret = await commandLine.run(
    ['keys', 'explain', '--api', 'shop', '--json'],
    envOf(fleet, { KEYFENCE_KEY: key }),
  );
  expect(JSON.parse(bySecret.stdout)).toMatchObject({ code: 'DISABLED', keyId });
});

test('agrees with the verifier in all cases', async () => {
  await fleet.ok('permissions.createRole', { name: 'reader', permissions: ['a'] });
  for (const [externalId, enabled] of [
    ['on', true],
    ['off', false],
  ] as const) {
    await fleet.ok('identities.createIdentity', { externalId, apiIds: ['shop'] });
    if (!enabled) await fleet.ok('identities.updateIdentity', { externalId, enabled });
  }
  const some = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
  const fields = fc.record({
    apiId: fc.constantFrom('shop', 'other'),
    externalId: some(fc.constantFrom('on', 'off', 'nobody')),
    expires: some(fc.constantFrom(UNIX_MS_MIN, 4_000_000_000_000)),
    allowedIps: some(fc.constantFrom(['192.0.2.0/24'], ['2001:db8::/32', '10.0.0.0/8'])),
    allowedOrigins: some(fc.constantFrom(['https://a.example'], ['https://*.a.example', 'http://b'])),
    permissions: some(fc.constantFrom(['a'], ['b'], ['a', 'b'])),
    roles: some(fc.constant(['reader'])),
    remaining: some(fc.constantFrom(0, 3)),
    ratelimit: some(fc.constantFrom({ limit: 2, duration: 86_400_000 })),
  });
  const question = fc.record({
    apiId: some(fc.constantFrom('shop', 'other')),
    clientIp: some(fc.constantFrom('192.0.2.1', '10.1.1.1', '2001:db8::1', '::ffff:10.0.0.1')),
    origin: some(fc.constantFrom('https://a.example/x', 'https://x.a.example', 'http://b:80', 'null')),
    permissions: some(fc.constantFrom('a', 'a AND b', 'a OR c', 'c')),
    cost: some(fc.constantFrom(0, 1, 4)),
  });
  const clean = (record: object) =>
    Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined));
  const codes = new Set<string>();
  await fc.assert(
    fc.asyncProperty(
      fields,
      fc.boolean(),
      fc.array(question, { minLength: 3, maxLength: 3 }),
      async (key, isOff, questions) => {
        const { expires, ...rest } = key;
        const made = await created({ ...clean(rest), ...(isOff ? { enabled: false } : {}) });
        if (expires !== undefined) await fleet.ok('keys.updateKey', { keyId: made.keyId, expires });
        for (const asked of questions) {
          const { code } = await explain({ keyId: made.keyId, ...clean(asked) });
          const { permissions, cost, ...place } = clean(asked) as { permissions?: string; cost?: number };
          const verdict = await fleet.verdict(made.key, {
            ...place,
            ...(permissions === undefined ? {} : { authorization: { permissions } }),
            ...(cost === undefined ? {} : { remaining: { cost } }),
          });
          expect(verdict, JSON.stringify({ key, asked })).toBe(code);
          codes.add(code);
        }
      },
    ),
    { numRuns: 120 },
  );
  expect(codes.size).toBeGreaterThanOrEqual(5);
});

test('says of a customer and its keys how much is left', async () => {
  const month = { name: 'monthly', limit: 1000, interval: 'month', autoApply: true, per: 'identity' };
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'plan free' });
  await fleet.ok('permissions.setRoleLimits', {
    ...{ roleId, ratelimits: [month], concurrency: [{ name: 'jobs', limit: 2, per: 'identity' }] },
  });
  await fleet.ok('identities.createIdentity', {
    ...{ externalId: 'metered', roles: ['plan free'] },
    ...{ credits: { remaining: 500, refill: { interval: 'monthly', amount: 800 } } },
  });
  const { key, keyId } = await created({
    ...{ externalId: 'metered', ratelimit: { limit: 10, duration: 3_600_000 } },
  });
  const ofIdentity = () => fleet.ok('identities.getAllowances', { externalId: 'metered' });
  const monthly = {
    name: 'monthly',
    limit: 1000,
    per: 'month',
    from: 'role:plan free',
    sharedBy: 'identity',
  };
  const jobs = { name: 'jobs', limit: 2, inUse: 0, from: 'role:plan free', sharedBy: 'identity' };
  expect(await ofIdentity()).toEqual({
    ...{ at: expect.any(Number), limits: [{ ...monthly, used: 0 }], concurrency: [jobs] },
    credits: { remaining: 500, of: 800, held: 0, sharedBy: 'identity' },
    keys: 1,
  });
  const listed = await fleet.ok('identities.listIdentities', { search: 'metered', allowances: 'true' });
  expect(listed.identities[0]).toMatchObject({ allowances: { limits: [monthly], keys: 1 } });
  for (let i = 0; i < 3; i++) expect(await fleet.verdict(key)).toBe('VALID');
  // Verifiers give back what they took in advance.
  await fleet.until(async () => (await ofIdentity()).limits[0].used >= 3);
  const { credits, limits } = await ofIdentity();
  expect(credits.remaining).toBeLessThanOrEqual(497);
  expect(limits[0].resetsAt).toBeGreaterThan(Date.now());
  const ofKey = await fleet.ok('keys.getAllowances', { keyId });
  expect(ofKey.limits).toMatchObject([
    { name: 'default', limit: 10, per: '1h', from: 'key', sharedBy: 'key' },
    monthly,
  ]);
  expect(ofKey).toMatchObject({ concurrency: [jobs], credits: { sharedBy: 'identity' } });
  const missing = await fleet.admin('identities.getAllowances', { externalId: 'nobody' });
  expect(missing.status).toBe(404);
});
