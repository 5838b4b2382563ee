import { readFileSync } from 'node:fs';
import { OAuth2Client } from '@badgateway/oauth2-client';
import * as openid from 'openid-client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

const PATH = '/oauth2/introspect';

let fleet: Fleet;
/** A verifier that anybody may ask, and one that requires root keys. */
let [open, closed] = ['', ''];
/** Root keys: one that may ask about keys of `shop`, and one that may not. */
let [rootKey, other] = ['', ''];
beforeAll(async () => {
  fleet = await Fleet.start();
  open = fleet.verifiers[0]?.address ?? '';
  closed = (await fleet.addVerifier({ VERIFY_ROOT_KEYS: 'required' })).address;
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
  const make = async (permission: string) =>
    (await fleet.ok('rootKeys.createRootKey', { name: 'gateway', permissions: [permission] })).key;
  rootKey = await make('api.shop.verify_key');
  other = await make('root.*.read_audit');
});
afterAll(() => fleet.stop());

const newKey = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
/** Asks with a form, and again while the verifier cannot decide. */
const ask = (base: string, body: string, headers: Record<string, string> = {}) =>
  fleet.decided(() =>
    fleet.send(`${base}${PATH}`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body,
    }),
  );
const basic = (id: string, secret: string) => ({
  authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
});

describe('a good key', () => {
  test('is active, with what the key may do', async () => {
    await fleet.ok('permissions.createRole', { name: 'reader', permissions: ['files.list'] });
    const expires = Date.now() + 3_600_000;
    const about = { externalId: 'ada', permissions: ['files.read'], roles: ['reader'], expires };
    const { key, keyId } = await newKey(about);
    const { status, headers, body } = await ask(open, `token=${key}&token_type_hint=access_token&unknown=1`);
    expect(status).toBe(200);
    expect(headers['cache-control']).toBe('no-store');
    expect(body).toEqual({
      ...{ active: true, scope: 'files.list files.read', client_id: keyId, sub: 'ada', aud: 'shop' },
      ...{ exp: Math.floor(expires / 1000), token_type: 'Bearer' },
    });
    const page = readFileSync('verifier/doors/http/other-languages.md', 'utf8');
    const [, fields = ''] = /The answer has ([\s\S]*?)\. Check/.exec(page) ?? [];
    expect(Object.keys(body).filter((field) => !fields.includes(`\`${field}\``))).toEqual([]);
  });

  test('without an owner is its own subject', async () => {
    const { key, keyId } = await newKey();
    const expected = { active: true, client_id: keyId, sub: keyId, aud: 'shop', token_type: 'Bearer' };
    expect((await ask(open, `token=${key}`)).body).toEqual(expected);
  });

  test('is inactive once its disable has returned', async () => {
    const { key, keyId } = await newKey({ meta: { secret: 'plan' } });
    expect((await ask(open, `token=${key}`)).body).toMatchObject({ active: true });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect((await ask(open, `token=${key}`)).body).toEqual({ active: false });
  });

  test('spends credits, and is inactive without any', async () => {
    const { key } = await newKey({ remaining: 2 });
    for (const active of [true, true, false])
      expect((await ask(open, `token=${key}`)).body).toMatchObject({ active });
  });
});

test.each(['nobody', 'x'.repeat(3000), '%00', '%E2%98%83', '%', 'é'])('%j is inactive', async (token) => {
  expect(await ask(open, `token=${token}`)).toMatchObject({ status: 200, body: { active: false } });
});

test.each([
  ['', {}, 400, 'body: required, a form'],
  ['token=', {}, 400, 'token: required, the key to ask about'],
  ['key=a', {}, 400, 'token: required, the key to ask about'],
  ['token=a&token=b', {}, 400, 'token: must be given once'],
  [
    '{"token":"a"}',
    { 'content-type': 'application/json' },
    415,
    'Content-Type: must be application/x-www-form-urlencoded',
  ],
  [`token=${'a'.repeat(70_000)}`, {}, 413, 'body: at most 65536 bytes'],
])('%.20j with %j is refused', async (body, headers, status, error_description) => {
  const answer = await ask(open, body, headers);
  expect(answer).toMatchObject({ status, body: { error: 'invalid_request', error_description } });
});

test('GET is not allowed', async () => {
  expect(await fleet.get(`${open}${PATH}?token=a`)).toMatchObject({
    status: 405,
    headers: { allow: 'POST' },
  });
});

describe('with VERIFY_ROOT_KEYS=required', () => {
  test('a root key comes as bearer or as password', async () => {
    const { key } = await newKey();
    const ways = [{ authorization: `Bearer ${rootKey}` }, basic('gateway', rootKey), basic('', rootKey)];
    for (const headers of ways)
      expect(await ask(closed, `token=${key}`, headers)).toMatchObject({
        status: 200,
        body: { active: true },
      });
  });

  test.each([
    ['none', () => ({})],
    ['an unknown one', () => basic('gateway', 'unknown')],
    ['an unknown bearer', () => ({ authorization: 'Bearer unknown' })],
    ['no password', () => ({ authorization: `Basic ${btoa('gateway')}` })],
    ['broken Basic', () => ({ authorization: 'Basic ~~~' })],
    ['a user alone', () => basic(rootKey, '')],
  ])('%s is invalid_client', async (_name, headers) => {
    const answer = await ask(closed, 'token=a', headers());
    expect(answer).toMatchObject({ status: 401, body: { error: 'invalid_client' } });
    expect(answer.headers['www-authenticate']).toMatch(/^Basic /);
  });

  test('one without the permission gets 403', async () => {
    const answer = await ask(closed, 'token=a', basic('x', other));
    expect(answer).toMatchObject({ status: 403, body: { error: 'insufficient_scope' } });
  });

  test('keys of other APIs are inactive', async () => {
    await fleet.ok('apis.createApi', { apiId: 'else', name: 'Else' });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'else' });
    expect((await ask(closed, `token=${key}`, basic('x', rootKey))).body).toEqual({ active: false });
  });

  test('openid-client introspects', async () => {
    const { key, keyId } = await newKey({ permissions: ['files.read'] });
    const server = { issuer: closed, introspection_endpoint: `${closed}${PATH}` };
    const config = new openid.Configuration(server, 'gateway', undefined, openid.ClientSecretBasic(rootKey));
    openid.allowInsecureRequests(config);
    expect(await openid.tokenIntrospection(config, key)).toMatchObject({
      ...{ active: true, scope: 'files.read', client_id: keyId, aud: 'shop' },
    });
    expect(await openid.tokenIntrospection(config, 'nobody')).toEqual({ active: false });
  });

  test('@badgateway/oauth2-client introspects', async () => {
    const { key, keyId } = await newKey({ permissions: ['files.read'] });
    const client = new OAuth2Client({
      ...{ server: closed, introspectionEndpoint: PATH, clientId: 'gateway', clientSecret: rootKey },
      authenticationMethod: 'client_secret_basic',
    });
    const token = (accessToken: string) => ({ accessToken, expiresAt: null, refreshToken: null });
    expect(await client.introspect(token(key))).toMatchObject({ active: true, client_id: keyId });
    expect(await client.introspect(token('nobody'))).toEqual({ active: false });
  });
});

test('is 503 while nothing can be decided', async () => {
  const broken = await Fleet.start();
  try {
    const address = broken.verifiers[0]?.address ?? '';
    await broken.redis.stop();
    const body = `token=${(await newKey()).key}`;
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const answer = await broken.send(`${address}${PATH}`, { method: 'POST', headers, body });
    expect(answer).toMatchObject({ status: 503, body: { error: 'temporarily_unavailable' } });
    expect(answer.headers['retry-after']).toBe('1');
  } finally {
    await broken.stop();
  }
});
