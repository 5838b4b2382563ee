import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { keyfence as fetchGuard } from '../../../../verifier/library/guards/fetch.ts';
import type { GuardOptions, RefusalNotice } from '../../../../verifier/library/guards/guard-options.ts';
import { KeyRules } from '../../../../verifier/library/guards/nestjs.ts';
import { credentialFrom } from '../../../../verifier/library/guards/node-http.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { createTestVerifier } from '../../../../verifier/library/test-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { type App, FRAMEWORKS } from './apps.ts';

const names = ['fastify', 'express', 'hono', 'koa', 'http', 'fetch'] as const;
let fleet: Fleet;
let verifier: KeyVerifier;
const apps: App[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  verifier = createVerifier({
    redis: fleet.redisUrl,
    apiIds: ['shop'],
    lookupWaitMs: 5000,
    usagePeriodMs: 200,
  });
  await verifier.ready();
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.close()));
  await verifier.close();
  await fleet.stop();
});

async function open(name: (typeof names)[number], options: GuardOptions): Promise<App> {
  const app = await FRAMEWORKS[name]({ verifier, apiId: 'shop', ...options });
  apps.push(app);
  return app;
}

const get = async (url: string, headers: Record<string, string> = {}) => {
  const response = await fetch(url, { headers });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text };
};
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe.each(names)('%s', (name) => {
  test('an optional guard refuses only wrong keys', async () => {
    const app = await open(name, { optional: true });
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const without = await get(`${app.address}/orders`, { 'x-key-id': 'forged' });
    expect(without.status).toBe(200);
    expect(JSON.parse(without.text).apiKey).toBeUndefined();
    expect(without.text).not.toContain('forged');
    expect(JSON.parse((await get(`${app.address}/orders`, bearer(key))).text).apiKey).toMatchObject({
      keyId,
    });
    for (const headers of [bearer(`${key}x`), { ...bearer(key), 'x-api-key': 'another' }])
      expect((await get(`${app.address}/orders`, headers)).status).toBe(401);
  });

  test('takes the key from a header of the app alone', async () => {
    const app = await open(name, { sources: [{ header: 'X-Shop-Token' }] });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const statusOf = async (headers: Record<string, string>) =>
      (await get(`${app.address}/orders`, headers)).status;
    expect(await statusOf({ 'x-shop-token': key })).toBe(200);
    expect(await statusOf({ 'x-shop-token': `Bearer ${key}` })).toBe(401);
    expect(await statusOf(bearer(key))).toBe(401);
    const both = await open(name, { sources: ['bearer', { header: 'x-shop-token' }] });
    expect((await get(`${both.address}/orders`, bearer(key))).status).toBe(200);
    expect((await get(`${both.address}/orders`, { ...bearer(key), 'x-shop-token': 'a' })).status).toBe(401);
    const browser = await open(name, { sources: ['basic', { cookie: 'key' }] });
    const basic = `Basic ${Buffer.from(`:${key}`).toString('base64')}`;
    for (const [headers, status] of [
      [{ cookie: `a=1; key=${key}` }, 200],
      [{ authorization: basic }, 200],
      [{ authorization: basic, cookie: 'key=a' }, 401],
      [bearer(key), 401],
    ] as const)
      expect((await get(`${browser.address}/orders`, headers)).status).toBe(status);
  });

  test('a passed request tells what its key has left', async () => {
    const app = await open(name, {});
    const ratelimit = { limit: 5, duration: 3_600_000 };
    const limited = await fleet.ok('keys.createKey', { apiId: 'shop', ratelimit, remaining: 9 });
    const { headers } = await get(`${app.address}/orders`, bearer(limited.key));
    expect(headers.get('ratelimit')).toMatch(/^"default";r=4;t=\d+, "credits";r=8$/);
    expect(headers.get('ratelimit-policy')).toBe('"default";q=5;w=3600');
    const plain = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect((await get(`${app.address}/orders`, bearer(plain.key))).headers.has('ratelimit')).toBe(false);
  });

  test('the app may replace the whole refusal', async () => {
    const told: RefusalNotice[] = [];
    const app = await open(name, {
      onRefused: (refusal) => {
        told.push(refusal);
        return { status: 418, headers: { 'X-Own': 'yes' }, body: { error: refusal.code } };
      },
    });
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', enabled: false });
    const answer = await get(`${app.address}/orders`, bearer(key));
    expect(answer.status).toBe(418);
    expect(JSON.parse(answer.text)).toEqual({ error: 'DISABLED' });
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
    expect(answer.headers.get('x-own')).toBe('yes');
    expect(answer.headers.get('www-authenticate')).toContain('invalid_token');
    expect((await get(`${app.address}/orders`)).status).toBe(418);
    expect(told).toEqual([
      { status: 401, code: 'DISABLED', keyId, requestId: answer.headers.get('x-request-id') },
      { status: 401, code: 'KEY_MISSING', requestId: expect.any(String) },
    ]);
    expect(app.handled()).toBe(0);
  });

  test.each<[string, unknown]>([
    [
      'throws',
      () => {
        throw new Error('broken');
      },
    ],
    ['makes a refusal a success', () => ({ status: 200 })],
    ['returns a promise', () => Promise.reject(new Error('late'))],
    ['returns no object', () => 'no'],
    ['has a wrong body', () => ({ body: 1 })],
    ['has a wrong header', () => ({ headers: { 'X-Own': 'a\nb' } })],
  ])('no handler runs where onRefused %s', async (_what, onRefused) => {
    const app = await open(name, { onRefused: onRefused as () => undefined });
    expect((await get(`${app.address}/orders`)).status).toBe(500);
    expect(app.handled()).toBe(0);
  });

  test('several guards take from a limit once', async () => {
    const ratelimits = [{ name: 'tokens', limit: 100, duration: 3_600_000 }];
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', ratelimits });
    const app = await open(name, {
      ratelimits: [{ name: 'tokens', cost: 10 }],
      tags: () => [`door=${name}`],
    });
    const answer = await get(`${app.address}/guarded/same`, bearer(key));
    expect(answer.headers.get('ratelimit')).toMatch(/^"tokens";r=90;t=\d+$/);
    expect((await get(`${app.address}/guarded/same`, bearer(key))).headers.get('ratelimit')).toMatch(/r=80/);
    const succeeded = async (operation: string, query: object) => {
      const { verifications } = await fleet.ok(operation, query);
      return verifications.reduce((sum: number, hour: { success: number }) => sum + hour.success, 0);
    };
    await fleet.until(async () => (await succeeded('keys.getVerifications', { keyId })) === 2);
    const tag = `door=${name}`;
    await fleet.until(async () => (await succeeded('apis.getVerifications', { apiId: 'shop', tag })) === 2);
  });

  test('no handler runs where a function of the application returns a promise that rejects', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', allowedIps: ['127.0.0.1', '::1'] });
    const late = () => Promise.reject(new Error('late'));
    for (const wrong of ['permissions', 'tags', 'ratelimits', 'cost', 'clientIp']) {
      const app = await open(name, { [wrong]: late } as object);
      expect((await get(`${app.address}/orders`, bearer(key))).status, wrong).toBe(500);
      expect(app.handled()).toBe(0);
    }
  });

  test('checks the lists of a request like all others', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    for (const wrong of [{ tags: () => 'a' }, { tags: () => [''] }, { ratelimits: () => [{ cost: 1 }] }]) {
      const app = await open(name, wrong as object);
      expect((await get(`${app.address}/orders`, bearer(key))).status).toBe(500);
      expect(app.handled()).toBe(0);
    }
    const own = await open(name, { ratelimits: () => [{ name: 'x', limit: 1, duration: 3_600_000 }] });
    expect((await get(`${own.address}/orders`, bearer(key))).status).toBe(200);
    expect((await get(`${own.address}/orders`, bearer(key))).status).toBe(429);
  });

  test.each<[object, RegExp]>([
    [{ optional: 'yes' }, /optional: must be true or false/],
    [{ tags: 'a' }, /tags: must be an array of texts, or a function/],
    [{ tags: [1] }, /tags: must be strings/],
    [{ ratelimits: { name: 'a' } }, /ratelimits: must be an array of rate limits, or a function/],
    [{ ratelimits: [{ name: 'a', limit: 1 }] }, /limit and duration must be set together/],
    [{ onRefused: {} }, /onRefused: must be a function/],
    [{ sources: [{ header: 'Authorization' }] }, /sources: must be an array of/],
    [{ sources: [{ header: 'a b' }] }, /sources: must be an array of/],
    [{ sources: [{ header: 'X-Request-Id' }] }, /sources: must be an array of/],
    [{ sources: [{ header: 'x-key-id' }] }, /sources: must be an array of/],
    [{ sources: [{ header: 'X-Forwarded-For' }] }, /sources: must be an array of/],
    [{ sources: [{ cookie: 'a=b' }] }, /sources: must be an array of/],
  ])('wrong options stop the start: %j', async (options, message) => {
    await expect(open(name, options)).rejects.toThrow(message);
  });
});

describe.each(['fastify', 'express', 'hono', 'koa'] as const)('%s', (name) => {
  test('makes refusals errors of the framework', async () => {
    const app = await open(name, { throwRefusals: true });
    const answer = await get(`${app.address}/orders`);
    if (name === 'express' || name === 'hono') {
      // The application's own handler, which answers every error with 500.
      expect([answer.status, answer.headers.get('x-error')]).toEqual([500, 'refused%3A%20KEY_MISSING']);
    } else {
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toBe('Bearer realm="api"');
    }
    if (name === 'fastify') expect(JSON.parse(answer.text)).toMatchObject({ code: 'KEY_MISSING' });
    expect(app.handled()).toBe(0);
  });
});

test('reads the key of a request as a guard does', () => {
  const from = (rawHeaders: string[], url = '/', sources?: GuardOptions['sources']) =>
    credentialFrom({ rawHeaders, url }, sources);
  expect(from(['Authorization', 'Bearer k'])).toEqual({ key: 'k' });
  expect(from(['X-API-KEY', 'k', 'authorization', 'bearer k'])).toEqual({ key: 'k' });
  expect(from(['X-Api-Key', 'k', 'x-api-key', 'k'])).toEqual({ fault: 'KEY_AMBIGUOUS' });
  expect(from([], '/?api_key=k')).toEqual({ fault: 'KEY_MISSING' });
  expect(from([], '/?api_key=k', ['query'])).toEqual({ key: 'k' });
  expect(from(['x-mine', 'k'], '/', [{ header: 'X-Mine' }])).toEqual({ key: 'k' });
  const basic = ['Authorization', `Basic ${Buffer.from('k:').toString('base64')}`];
  expect(from(basic, '/', ['bearer', 'basic'])).toEqual({ key: 'k' });
  const cookie = ['Cookie', 'a=1; K=k'];
  expect(from(cookie, '/', [{ cookie: 'K' }])).toEqual({ key: 'k' });
  expect(from([...cookie, ...cookie], '/', [{ cookie: 'K' }])).toEqual({ fault: 'KEY_AMBIGUOUS' });
  expect(from(['Authorization', 'Bearer b', ...cookie], '/', ['bearer', { cookie: 'K' }])).toEqual({
    fault: 'KEY_AMBIGUOUS',
  });
});

test('wrong rules of NestJS stop the start', () => {
  expect(() => KeyRules({ roles: ['a'] } as object)).toThrow('roles: unknown option');
  expect(() => KeyRules('open' as never)).toThrow('options: must be an object');
  expect(KeyRules(false)).toBeTypeOf('function');
});

test('a key that nobody understands is never nobody', async () => {
  const verifier = createTestVerifier({ k1: 'valid' });
  const check = async (headers: Record<string, string>, more: GuardOptions<Request> = {}) => {
    const guard = fetchGuard({ verifier, optional: true, ...more });
    const { apiKey, refusal } = await guard.check(new Request('http://api/', { headers }));
    return [refusal?.status, refusal?.headers.get('www-authenticate') ?? apiKey?.code];
  };
  const invalid = [401, 'Bearer realm="api", error="invalid_token"'];
  for (const authorization of ['Bearer\tk1', 'Bearer:k1', 'k1'])
    expect([authorization, await check({ authorization })]).toEqual([authorization, invalid]);
  for (const headers of [{}, { authorization: 'Digest k1' }])
    expect(await check(headers)).toEqual([undefined, undefined]);
  expect(await check({ authorization: 'Bearer k1' })).toEqual([undefined, 'VALID']);
  // A comma is a part of the value of a cookie.
  const sources = [{ cookie: 'k' }];
  expect(await check({ cookie: 'a=1; k=k1' }, { sources })).toEqual([undefined, 'VALID']);
  expect(await check({ cookie: 'a=1, k=k1' }, { sources })).toEqual([undefined, undefined]);
  expect(await check({ cookie: 'k=k2' }, { sources })).toEqual([401, 'ApiKey realm="api"']);
});
