import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys } from '#shared/redis/redis-keys.ts';
import { generateKey } from '../../../shared/rules/key-format.ts';
import { createClient } from '../../../verifier/library/client.ts';
import { createVerifier } from '../../../verifier/library/create-verifier.ts';
import { envOf, useCommandLine } from '../../control-plane/clients/cli/keyfence.ts';
import { Fleet } from '../../harness/fleet.ts';
import { Upstream } from '../../harness/upstream.ts';
import { FRAMEWORKS } from '../../verifier/library/guards/apps.ts';

let fleet: Fleet;
const commandLine = useCommandLine();
const closing: (() => unknown)[] = [];
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { USAGE_PERIOD_MS: '50' } });
});
afterAll(async () => {
  for (const close of closing) await close();
  await fleet.stop();
});

const SHOP = ['https://*.shop.example', 'https://app.example.com'];
const GOOD = 'https://app.example.com';
const BAD = 'https://evil.example';
const keyFor = (fields: object): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

describe('a key with allowed origins', () => {
  test('is accepted from its web pages only', async () => {
    const { key } = await keyFor({ allowedOrigins: SHOP });
    for (const at of [0, 1]) {
      const codeOf = (question: object) => fleet.verdict(key, { at, ...question });
      for (const origin of [GOOD, `${GOOD}/orders?a`, 'https://eu.shop.example'])
        expect(await codeOf({ origin }), origin).toBe('VALID');
      for (const origin of [BAD, 'https://shop.example', 'null', '', `${BAD}/${GOOD}`])
        expect(await codeOf({ origin }), origin).toBe('FORBIDDEN');
      expect(await codeOf({})).toBe('FORBIDDEN');
    }
    const { body } = await fleet.verify(key, { origin: BAD });
    expect(Object.keys(body).sort()).toEqual(['code', 'requestId', 'valid']);
    const v2 = await fleet.post(`${fleet.verifiers[0]?.address}/v2/keys.verifyKey`, { key, origin: GOOD });
    expect(v2.body.data.code).toBe('VALID');
    expect((await fleet.get(`${fleet.verifiers[0]?.adminAddress}/metrics`)).body).toMatch(
      /^keyfence_origin_refusals_total [1-9]/m,
    );
  });

  test('must also come from an allowed address', async () => {
    const { key } = await keyFor({ allowedOrigins: SHOP, allowedIps: ['192.0.2.1'], remaining: 1 });
    const codeOf = (clientIp: string, origin: string) => fleet.verdict(key, { clientIp, origin });
    expect(await codeOf('192.0.2.2', GOOD)).toBe('FORBIDDEN');
    expect(await codeOf('192.0.2.1', BAD)).toBe('FORBIDDEN');
    expect(await codeOf('192.0.2.1', GOOD)).toBe('VALID');
    expect(await codeOf('192.0.2.1', GOOD)).toBe('USAGE_EXCEEDED');
  });

  test('has them like any field at every verifier', async () => {
    const { key, keyId } = await keyFor({});
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
    const change = (allowedOrigins: readonly string[] | null) =>
      fleet.ok('keys.updateKey', { keyId, allowedOrigins });
    expect((await change(['HTTPS://A.example:443', 'https://a.example'])).propagation.state).toBe('complete');
    for (const at of [0, 1]) {
      expect((await fleet.verifyOnce(key, { at, origin: GOOD })).body.code).toBe('FORBIDDEN');
      expect(await fleet.verdict(key, { at, origin: 'https://a.example' })).toBe('VALID');
    }
    expect((await fleet.ok('keys.getKey', { keyId })).allowedOrigins).toEqual(['https://a.example']);
    await change(SHOP);
    const { events } = await fleet.ok('audit.listEvents', { keyId, operation: 'keys.updateKey', limit: '1' });
    expect([events[0].before, events[0].after]).toEqual([
      { allowedOrigins: ['https://a.example'] },
      { allowedOrigins: SHOP },
    ]);
    for (const none of [[], null]) {
      await change(SHOP);
      await change(none);
      expect(await fleet.verdict(key)).toBe('VALID');
      expect((await fleet.ok('keys.getKey', { keyId })).allowedOrigins).toBeUndefined();
    }
    await fleet.ok('keys.updateKeys', { apiId: 'shop', keyIds: [keyId], allowedOrigins: [GOOD] });
    const { keyId: nextId, key: next } = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await fleet.verdict(next, { origin: GOOD })).toBe('VALID');
    expect(await fleet.verdict(next, { origin: BAD })).toBe('FORBIDDEN');
    expect((await fleet.ok('keys.getKey', { keyId: nextId })).allowedOrigins).toEqual([GOOD]);
    expect((await fleet.ok('apis.getApi', { apiId: 'shop' })).protocol).toBe(2);
  });

  test('needs verifiers that know them', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'old' });
    await fleet.client.zadd(apiKeys('old').members, 0, '1.old');
    for (const [call, fields] of [
      ['keys.createKey', {}],
      ['keys.updateKey', { apiId: undefined, keyId }],
    ] as const) {
      const input = { apiId: 'old', allowedOrigins: SHOP, ...fields };
      const { status, body } = await fleet.admin(call, input);
      expect([status, body.error.code]).toEqual([409, 'VERIFIERS_TOO_OLD']);
    }
    const many = { apiId: 'old', keyIds: [keyId], allowedOrigins: SHOP };
    const { results } = await fleet.ok('keys.updateKeys', many);
    expect(results[0]).toMatchObject({ result: 'refused', code: 'VERIFIERS_TOO_OLD' });
    await fleet.client.zrem(apiKeys('old').members, '1.old');
    await fleet.ok('keys.updateKey', { keyId, allowedOrigins: SHOP });
  });

  test('explains and remembers refusals', async () => {
    const { key, keyId } = await keyFor({ allowedOrigins: [GOOD] });
    const { requestId } = (await fleet.verify(key, { origin: `${BAD}/secret?x=1` })).body;
    const find = async () => {
      const { refusals } = await fleet.ok('keys.listRefusals', { keyId });
      return refusals.find((each: { requestId: string }) => each.requestId === requestId);
    };
    await fleet.until(async () => (await find()) !== undefined);
    const refusal = await find();
    expect(refusal).toMatchObject({
      ...{ code: 'FORBIDDEN', reason: 'origin', origin: BAD, detail: `may not be used from ${BAD}` },
      question: { origin: BAD },
    });
    expect(JSON.stringify(refusal)).not.toContain('secret');
    const explain = async (question: object) => {
      const { code, rules } = await fleet.ok('keys.explain', { keyId, ...question });
      return [code, rules.find(({ rule }: { rule: string }) => rule === 'origin').detail];
    };
    expect(await explain(refusal.question)).toEqual(['FORBIDDEN', `${BAD} is not one of ${GOOD}`]);
    expect(await explain({ origin: `${GOOD}/x` })).toEqual(['VALID', `${GOOD} is one of ${GOOD}`]);
    expect(await explain({})).toEqual(['FORBIDDEN', `origin is unknown, and must be one of ${GOOD}`]);
    expect(await explain({ origin: 'null' })).toEqual(['FORBIDDEN', `no origin is not one of ${GOOD}`]);
  });
});

test('refuses wrong lists, with rule and fix', async () => {
  const refusalOf = async (allowedOrigins: unknown) => {
    const { status, body } = await fleet.admin('keys.createKey', { apiId: 'shop', allowedOrigins });
    expect(status).toBe(400);
    return body.error.message;
  };
  expect(await refusalOf([GOOD, `${GOOD}/`])).toMatch(/^allowedOrigins\.1: must be an origin such as/);
  expect(await refusalOf(['https://*.com'])).toMatch(/^allowedOrigins\.0: must have two labels/);
  expect(await refusalOf(Array.from({ length: 51 }, (_, i) => `https://a${i}.example`))).toMatch(
    /^allowedOrigins: .*50/,
  );
  expect(await refusalOf(GOOD)).toMatch(/^allowedOrigins: /);
  const keys = [
    { sha256: 'ef'.repeat(32), allowedOrigins: SHOP },
    { sha256: '01'.repeat(32), allowedOrigins: ['*'] },
  ];
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys });
  expect((await fleet.ok('keys.getKey', { keyId: results[0].keyId })).allowedOrigins).toEqual(SHOP);
  expect(JSON.stringify(results[1])).toMatch(/allowedOrigins\.0: must be an origin/);
  const { key } = await keyFor({ allowedOrigins: SHOP });
  for (const origin of [7, null, 'x'.repeat(4097)]) {
    const { status, body } = await fleet.verifyOnce(key, { origin });
    expect([status, body.error.message]).toEqual([
      400,
      'origin: must be a string of at most 4096 characters',
    ]);
  }
});

test('the command line and our client know them', async () => {
  const made = await commandLine.run(
    `keys create shop --allowed-origins ${SHOP} --json`.split(' '),
    envOf(fleet),
  );
  const { key, keyId } = JSON.parse(made.stdout);
  const shown = (await commandLine.run(['keys', 'get', keyId], envOf(fleet))).stdout;
  expect(shown).toContain(`allowedOrigins  ${SHOP.join(' ')}`);
  const verify = (more: string) =>
    commandLine.run(`keys verify${more}`.split(' '), envOf(fleet, { KEYFENCE_KEY: key }));
  expect((await verify(` --origin ${GOOD}`)).status).toBe(0);
  expect(await verify('')).toMatchObject({ status: 1, stdout: expect.stringContaining('FORBIDDEN') });
  const client = createClient({ url: fleet.verifiers[0]?.address ?? '' });
  closing.push(() => client.close());
  expect(await client.verify(key, { origin: GOOD })).toMatchObject({ code: 'VALID' });
  expect(await client.verify(key)).toEqual({ valid: false, code: 'FORBIDDEN' });
  await expect(client.verify(key, { origin: 7 as never })).rejects.toThrow('origin: must be a string');
});

/** Headers of a request, and whether the key may be used with them. */
const ASKED: readonly (readonly [headers: Readonly<Record<string, string>>, passes: boolean])[] = [
  [{ origin: GOOD }, true],
  [{ referer: `${GOOD}/orders` }, true],
  [{ origin: GOOD, referer: `${BAD}/` }, true],
  [{}, false],
  [{ origin: 'null', referer: `${GOOD}/` }, false],
  [{ origin: BAD, referer: `${GOOD}/` }, false],
  [{ origin: `https://${'a'.repeat(400)}.shop.example` }, false],
  [{ referer: `${BAD}/${'a'.repeat(5000)}` }, false],
  [{ referer: `${GOOD}/${'a'.repeat(5000)}` }, true],
];

async function statusesAt(url: string, key: string): Promise<void> {
  for (const [headers, passes] of ASKED) {
    const ask = () => fleet.get(url, { authorization: `Bearer ${key}`, ...headers });
    const { status } = await fleet.decided(ask);
    expect([headers, status]).toEqual([headers, passes ? 200 : 403]);
  }
}

test.each(['true', 'false'])('proxy mode reads headers, with the lane: %s', async (FAST_LANE) => {
  const upstream = await Upstream.start();
  closing.push(() => upstream.close());
  const env = { UPSTREAM_URL: upstream.address, PROXY_PORT: '0', FAST_LANE };
  const verifier = await fleet.addVerifier(env);
  const { key } = await keyFor({ allowedOrigins: SHOP });
  await statusesAt(`${verifier.proxyAddress}/orders`, key);
  await statusesAt(`${verifier.address}/authz/api/*/forward-auth`, key);
});

/** Which origin may read which refusal, by the header in the answer: by default, and where web pages are meant. */
const READABLE: readonly (readonly [
  kind: 'unknown' | 'missing' | 'disabled' | 'spent' | 'listless' | 'good',
  origin: string | undefined,
  byDefault: string | undefined,
  forPages: string | undefined,
])[] = [
  ['disabled', GOOD, GOOD, GOOD],
  ['spent', 'https://a.shop.example', 'https://a.shop.example', 'https://a.shop.example'],
  ['spent', BAD, undefined, undefined],
  ['disabled', BAD, undefined, undefined],
  ['disabled', 'null', undefined, undefined],
  ['spent', undefined, undefined, undefined],
  ['good', GOOD, undefined, undefined],
  ['listless', BAD, undefined, '*'],
  ['listless', undefined, undefined, undefined],
  ['unknown', BAD, undefined, '*'],
  ['missing', BAD, undefined, '*'],
  ['missing', undefined, undefined, undefined],
];

test.each([
  ['deny', 'true'],
  ['deny', 'false'],
  ['allow', 'true'],
  ['allow', 'false'],
])('only these pages read refusals: %s, lane %s', async (CORS_PREFLIGHT, FAST_LANE) => {
  const upstream = await Upstream.start();
  closing.push(() => upstream.close());
  const env = {
    UPSTREAM_URL: upstream.address,
    PROXY_API_ID: 'shop',
    PROXY_PORT: '0',
    LOOKUP_WAIT_MS: '5000',
  };
  const verifier = await fleet.addVerifier({ ...env, FAST_LANE, CORS_PREFLIGHT });
  const keys = {
    good: (await keyFor({ allowedOrigins: SHOP })).key,
    disabled: (await keyFor({ allowedOrigins: SHOP, enabled: false })).key,
    spent: (await keyFor({ allowedOrigins: SHOP, remaining: 0 })).key,
    listless: (await keyFor({ enabled: false })).key,
    unknown: generateKey(16),
    missing: undefined,
  };
  const dialects = ['auth-request', 'forward-auth', 'ext-authz/a'].map(
    (name) => `${verifier.address}/authz/api/shop/${name}`,
  );
  for (const url of [`${verifier.proxyAddress}/orders`, ...dialects])
    for (const [kind, origin, byDefault, forPages] of READABLE) {
      const key = keys[kind];
      const asked = {
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...(origin === undefined ? {} : { origin }),
      };
      const { headers } = await fleet.decided(() => fleet.get(url, asked));
      const allowed = CORS_PREFLIGHT === 'allow' ? forPages : byDefault;
      expect([
        ...[url, kind, origin, headers['access-control-allow-origin']],
        headers['access-control-allow-credentials'],
        headers['access-control-expose-headers']?.includes('Retry-After'),
      ]).toEqual([
        ...[url, kind, origin, allowed],
        allowed === undefined || allowed === '*' ? undefined : 'true',
        allowed && true,
      ]);
    }
});

test.each(Object.keys(FRAMEWORKS) as (keyof typeof FRAMEWORKS)[])(
  'guards of %s read headers',
  async (name) => {
    const verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
    closing.push(() => verifier.close());
    await verifier.ready();
    const { key } = await keyFor({ allowedOrigins: SHOP });
    for (const way of [{ verifier }, { url: fleet.verifiers[0]?.address ?? '' }]) {
      const app = await FRAMEWORKS[name]({ ...way, apiId: '*' });
      closing.push(() => app.close());
      await statusesAt(`${app.address}/orders`, key);
    }
  },
);
