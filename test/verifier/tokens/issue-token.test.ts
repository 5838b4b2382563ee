import { createHash } from 'node:crypto';
import { createRemoteJWKSet, jwtVerify } from 'jose';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { describe } from '../../../control-plane/clients/cli/terminal/print-change.ts';
import { apiKeys } from '../../../shared/redis/redis-keys.ts';
import { configFaults } from '../../../verifier/config.ts';
import { verifierConfig } from '../../harness/config.ts';
import { Fleet } from '../../harness/fleet.ts';
import { Upstream } from '../../harness/upstream.ts';

const SECRET = 'a secret of tokens, long enough for all';
let fleet: Fleet;
let upstream: Upstream;
beforeAll(async () => {
  upstream = await Upstream.start();
  const proxy = { UPSTREAM_URL: upstream.address, PROXY_PORT: '0', PROXY_API_ID: '*' };
  const tokens = { TOKEN_KEY: SECRET, TOKEN_ISSUER: 'https://keys', AUTHZ_TOKEN: 'true' };
  fleet = await Fleet.start({ env: { ...tokens, ...proxy, LEASE_MS: '5000' } });
  for (const apiId of ['shop', 'plain']) await fleet.ok('apis.createApi', { apiId, name: 'Shop' });
  await fleet.ok('apis.updateApi', { apiId: 'shop', tokens: true, tokenLeewayMs: 0 });
});
afterAll(async () => {
  await fleet.stop();
  await upstream.close();
});

test('a verifier that has no secret of tokens does not start for gateways', () => {
  const AUTHZ_TOKEN = 'true';
  expect(configFaults(verifierConfig({ AUTHZ_TOKEN, TOKEN_KEY: SECRET }))).toEqual([]);
  expect(configFaults(verifierConfig({ AUTHZ_TOKEN }))).toEqual([
    'AUTHZ_TOKEN: needs TOKEN_KEY_FILE with the secret that signs tokens',
  ]);
});

const create = (fields: object = {}): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const issueOnce = (key: string, fields: object = {}) =>
  fleet.post(`${fleet.verifiers[0]?.address}/v1/keys.issueToken`, { key, ...fields });
const issue = (key: string, fields: object = {}) => fleet.decided(() => issueOnce(key, fields));
const jwks = (base = '') => createRemoteJWKSet(new URL(`${base}/.well-known/jwks.json`));
const isValid = (token: string) =>
  jwtVerify(token, jwks(fleet.verifiers[0]?.address), { clockTolerance: 0 }).then(
    () => true,
    () => false,
  );

test('jose verifies a token by the JWKS of either process', async () => {
  await fleet.ok('permissions.createRole', { name: 'pro', permissions: ['files.read'] });
  const fields = { externalId: 'ada', permissions: ['files.write'], roles: ['pro'] };
  const { key, keyId } = await create(fields);
  const { status, body } = await issue(key);
  expect(status).toBe(200);
  for (const base of [fleet.verifiers[0]?.address, fleet.controlPlanes[0]?.address]) {
    const options = { issuer: 'https://keys', audience: 'shop', algorithms: ['EdDSA'] };
    const { payload } = await jwtVerify(body.token, jwks(base), options);
    expect(payload).toEqual({
      ...{
        iss: 'https://keys',
        aud: 'shop',
        api: 'shop',
        sub: keyId,
        exp: body.expiresAt / 1000,
        externalId: 'ada',
      },
      permissions: ['files.read', 'files.write'],
      ...{ iat: expect.any(Number), jti: expect.any(String) },
    });
    const found = await fetch(`${base}/.well-known/openid-configuration`);
    expect([found.status, found.headers.get('cache-control')]).toEqual([200, 'public, max-age=300']);
    expect(await found.json()).toMatchObject({ jwks_uri: 'https://keys/.well-known/jwks.json' });
  }
  expect(body.expiresAt - Date.now()).toBeGreaterThan(0);
  expect(body.expiresAt - Date.now()).toBeLessThanOrEqual(3000);
});

test('a gateway and the API in proxy mode get a token of the present', async () => {
  const [verifier] = fleet.verifiers;
  const { key, keyId } = await create({ permissions: ['a'] });
  const authorization = `Bearer ${key}`;
  const urls = ['/authz/api/*/forward-auth', '/authz/api/*/optional/ext-authz/orders'].map(
    (path) => `${verifier?.address}${path}`,
  );
  const tokens = async () => {
    const answers = urls.map(async (url) => (await fleet.get(url, { authorization })).headers['x-key-token']);
    await fleet.get(`${verifier?.proxyAddress}/orders`, { authorization, 'x-key-token': 'mine' });
    return [...(await Promise.all(answers)), upstream.seen.at(-1)?.headers['x-key-token']];
  };
  const first = await fleet.decided(() => fleet.get(urls[0] ?? '', { authorization }));
  expect(first.headers['x-key-token']).toMatch(/^ey/);
  const said = async (token: unknown) => (await jwtVerify(`${token}`, jwks(verifier?.address))).payload;
  for (const token of await tokens())
    expect(await said(token)).toMatchObject({ aud: 'shop', sub: keyId, permissions: ['a'] });
  await fleet.ok('keys.updateKey', { keyId, permissions: ['b'], waitMs: 0 });
  await fleet.until(async () => `${(await said((await tokens())[0])).permissions}` === 'b');
  for (const token of await tokens()) expect(await said(token)).toMatchObject({ permissions: ['b'] });
  await fleet.ok('keys.updateKey', { keyId, enabled: false, waitMs: 0 });
  await fleet.until(async () => (await fleet.get(urls[0] ?? '', { authorization })).status === 401);
  expect((await tokens()).slice(0, 2)).toEqual([undefined, undefined]);
});

test('a token has no more permissions than were asked for', async () => {
  const { key } = await create({ permissions: ['a', 'b'] });
  const { body } = await issue(key, { permissions: ['a'] });
  const { payload } = await jwtVerify(body.token, jwks(fleet.verifiers[0]?.address));
  expect(payload).toMatchObject({ aud: 'shop', permissions: ['a'] });
  const refused = await issue(key, { permissions: ['a', 'c'] });
  expect(refused).toMatchObject({ status: 403, body: { error: { code: 'INSUFFICIENT_PERMISSIONS' } } });
});

test('when a disable is complete, every token of the key has ended', async () => {
  const { key, keyId } = await create();
  const { token } = (await issue(key)).body;
  expect(await isValid(token)).toBe(true);
  const pending = await fleet.ok('keys.updateKey', { keyId, enabled: false, waitMs: 1000 });
  expect(pending.propagation).toMatchObject({ state: 'pending', tokens: 'pending', by: 'acks' });
  expect(await fleet.verdict(key)).toBe('DISABLED');
  expect((await issue(key)).status).toBe(401);
  const sequence = String(pending.propagation.sequence);
  const look = () => fleet.ok('keys.getPropagation', { keyId, sequence });
  const looked = (await look()).propagation;
  expect(looked).toMatchObject({ state: 'pending', tokens: 'pending', by: 'acks' });
  expect(describe(looked)).toContain(
    'verifiers are complete, but a token from before may be valid. Complete by',
  );
  const again = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(again.propagation).toMatchObject({ state: 'complete', tokens: 'complete', by: 'acks' });
  expect(await isValid(token)).toBe(false);
  expect((await look()).propagation).toMatchObject({ state: 'complete', tokens: 'complete' });
  const named = await fleet.ok('keys.updateKey', { keyId, name: 'Ada' });
  expect(named.propagation.waitedMs).toBeLessThan(5000);
});

test('a role that a key loses ends its tokens too', async () => {
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'boss', permissions: ['all'] });
  const { key } = await create({ roles: ['boss'] });
  const { token } = (await issue(key)).body;
  const { propagation } = await fleet.ok('permissions.deleteRole', { roleId });
  expect(propagation).toMatchObject({ state: 'complete', tokens: 'complete' });
  expect(await isValid(token)).toBe(false);
});

test('an API without tokens issues none, and waits for none', async () => {
  const { key, keyId } = await create({ apiId: 'plain' });
  expect((await fleet.verify(key)).status).toBe(200);
  expect((await issueOnce(key)).status).toBe(400);
  const url = `${fleet.verifiers[0]?.address}/authz/api/plain/forward-auth`;
  expect((await fleet.get(url, { authorization: `Bearer ${key}` })).headers['x-key-token']).toBe('');
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation.tokens).toBeUndefined();
  expect((await issue('shop_unknown')).status).toBe(401);
  expect((await issueOnce('')).status).toBe(400);
  expect((await issueOnce(key, { permissions: 'a' })).status).toBe(400);
  expect((await issueOnce(key, { audiences: 'a' })).status).toBe(400);
});

test('tokens are switched off, and one lease later on no more', async () => {
  await fleet.ok('apis.createApi', { apiId: 'brief', name: 'Brief' });
  await fleet.ok('apis.updateApi', { apiId: 'brief', tokens: true, tokenLeewayMs: 0 });
  expect((await fleet.ok('apis.getApi', { apiId: 'brief' })).tokens).toBe(true);
  const { key, keyId } = await create({ apiId: 'brief' });
  expect((await issue(key)).status).toBe(200);
  await fleet.ok('apis.updateApi', { apiId: 'brief', tokens: false, waitMs: 0 });
  const at = await fleet.ok('keys.updateKey', { keyId, enabled: true, waitMs: 500 });
  expect(at.propagation).toMatchObject({ tokens: 'pending' });
  await fleet.until(async () => (await issueOnce(key)).status === 400);
  await fleet.until(async () => {
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: true, waitMs: 500 });
    return propagation.tokens === undefined;
  });
});

const FILES = 'https://files.example.com';

test('a token is for nobody whom its API does not list, and a refusal takes no credit', async () => {
  for (const apiId of ['free', 'billing']) {
    await fleet.ok('apis.createApi', { apiId, name: apiId });
    await fleet.ok('apis.updateApi', { apiId, tokens: true, tokenLeewayMs: 0 });
  }
  const { key, keyId } = await create({ apiId: 'free', remaining: 2 });
  expect((await issue(key)).status).toBe(200);
  for (const audience of ['billing', FILES, 'Free', 'free '])
    expect(await issueOnce(key, { audience })).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringMatching(/^audience: must be one .* `tokenAudiences`/) } },
    });
  const plain = await create({ apiId: 'plain', remaining: 1 });
  expect((await issueOnce(plain.key)).status).toBe(400);
  const left = async (id: string) => (await fleet.ok('keys.getKey', { keyId: id })).remaining;
  await fleet.until(async () => (await left(keyId)) === 1 && (await left(plain.keyId)) === 1);
  expect((await issue(key, { audience: 'free' })).status).toBe(200);
  expect((await issueOnce(key)).status).toBe(429);
});

test('an audience is the id of the API, or what no id can be', async () => {
  const update = (tokenAudiences: unknown) =>
    fleet.admin('apis.updateApi', { apiId: 'plain', tokenAudiences });
  expect(await update(['plain', 'shop'])).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringMatching(/^tokenAudiences: "shop" must be plain, .* colon/) } },
  });
  for (const bad of [[], ['a b.c'], [''], Array.from({ length: 11 }, (_, i) => `a:${i}`), ['a:1', 'a:1']])
    expect((await update(bad)).status).toBe(400);
  expect((await update(['urn:a', 'a.b', '/a', 'plain'])).status).toBe(200);
  expect((await update(null)).status).toBe(200);
});

test('taking an audience away is complete when tokens for it have ended', async () => {
  await fleet.ok('apis.createApi', { apiId: 'files', name: 'Files' });
  const update = (fields: object) => fleet.ok('apis.updateApi', { apiId: 'files', ...fields });
  await update({ tokens: true, tokenLeewayMs: 0, tokenAudiences: [FILES, 'files'] });
  const { key } = await create({ apiId: 'files' });
  const token = async (fields: object = {}) => (await issue(key, fields)).body.token;
  const audience = async (of: string) => (await jwtVerify(of, jwks(fleet.verifiers[0]?.address))).payload.aud;
  expect(await audience(await token())).toBe(FILES);
  expect(await audience(await token({ audience: 'files' }))).toBe('files');
  const url = `${fleet.verifiers[0]?.address}/authz/api/files/forward-auth`;
  const handedOut = async () =>
    (await fleet.get(url, { authorization: `Bearer ${key}` })).headers['x-key-token'];
  expect(await audience(`${await handedOut()}`)).toBe(FILES);
  const last = await token({ audience: FILES });
  const { propagation } = await update({ tokenAudiences: null, waitMs: 0 });
  expect(propagation).toMatchObject({ state: 'pending', tokens: 'pending' });
  const sequence = String(propagation.sequence);
  const look = async () =>
    (await fleet.ok('apis.getApiPropagation', { apiId: 'files', sequence })).propagation;
  await fleet.until(async () => (await look()).state === 'complete');
  expect(await isValid(last)).toBe(false);
  expect((await issueOnce(key, { audience: FILES })).status).toBe(400);
  expect(await audience(await token())).toBe('files');
  expect(await audience(`${await handedOut()}`)).toBe('files');
});

test('a call does not wait for tokens that others accept for longer than it may wait', async () => {
  await fleet.ok('apis.createApi', { apiId: 'late', name: 'Late' });
  await fleet.ok('apis.updateApi', { apiId: 'late', tokens: true });
  const { key, keyId } = await create({ apiId: 'late' });
  expect((await issue(key)).status).toBe(200);
  const startedAtMs = Date.now();
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'pending', by: 'acks', tokens: 'pending' });
  expect(propagation.completeBy - startedAtMs).toBeGreaterThan(60_000 + 5000);
  expect(propagation.waitedMs).toBeLessThan(4000);
  expect((await issueOnce(key)).status).toBe(401);
});

test('a raised leeway is waited for at once, a lowered one when the old one is over', async () => {
  await fleet.ok('apis.createApi', { apiId: 'slow', name: 'Slow' });
  const update = async (fields: object) =>
    (await fleet.ok('apis.updateApi', { apiId: 'slow', waitMs: 0, ...fields })).propagation;
  await update({ tokens: true, tokenLeewayMs: 0 });
  const { keyId } = await create({ apiId: 'slow' });
  /** For how long a change waits, without the lease. */
  const leeway = async () => {
    const at = Date.now();
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: true, waitMs: 0 });
    return Math.floor((propagation.completeBy - at) / 1000) - 5;
  };
  expect(await leeway()).toBeLessThan(2);
  await update({ tokenLeewayMs: 3000 });
  expect(await leeway()).toBeGreaterThanOrEqual(3);
  await update({ tokenLeewayMs: 0 });
  expect(await leeway()).toBeGreaterThanOrEqual(3);
  await fleet.until(async () => (await leeway()) < 2);
  expect((await fleet.ok('apis.getApi', { apiId: 'slow' })).tokenLeewayMs).toBe(0);
});

test('a verifier issues no tokens for a fence after a change by a control plane that does not wait for them', async () => {
  await fleet.ok('apis.createApi', { apiId: 'mixed', name: 'Mixed' });
  await fleet.ok('apis.updateApi', { apiId: 'mixed', tokens: true, tokenLeewayMs: 0 });
  const { key, keyId } = await create({ apiId: 'mixed' });
  await fleet.ok('keys.updateKey', { keyId, name: 'Ada', waitMs: 0 });
  expect((await issue(key)).status).toBe(200);
  const { head, log } = apiKeys('mixed');
  const [s = '', h = ''] = (await fleet.client.hmget(head, 's', 'h')) as string[];
  const sequence = String(Number(s) + 1);
  const hash = createHash('sha1').update(`${h}|${sequence}||`).digest('hex');
  // As releases before tokens wrote an entry.
  await fleet.client
    .multi()
    .xadd(log, `${sequence}-0`, 'h', hash, 'k', '', 'd', '')
    .hset(head, 's', sequence, 'h', hash)
    .exec();
  await fleet.until(async () => (await issueOnce(key)).status === 503);
  expect(await fleet.verdict(key)).toBe('VALID');
  const refused = async () => `${(await fleet.get(`${fleet.verifiers[0]?.adminAddress}/metrics`)).body}`;
  expect(await refused()).toMatch(/keyfence_tokens_refused_total{reason="older"} [1-9]/);
  const found = async () => JSON.stringify(await fleet.ok('fleet.listFindings'));
  await fleet.until(async () =>
    (await found()).includes('a control plane of an older release changed mixed'),
  );
  await fleet.until(async () => (await issueOnce(key)).status === 200);
});

test('a service that accepts tokens for the leeway accepts none once a disable is complete', async () => {
  await fleet.ok('apis.createApi', { apiId: 'lenient', name: 'Lenient' });
  await fleet.ok('apis.updateApi', { apiId: 'lenient', tokens: true, tokenLeewayMs: 3000 });
  const { key, keyId } = await create({ apiId: 'lenient' });
  const { token, expiresAt } = (await issue(key)).body;
  const keys = jwks(fleet.verifiers[0]?.address);
  let acceptedAtMs = 0;
  const accepts = async () => {
    const nowMs = Date.now();
    const isAccepted = await jwtVerify(token, keys, { clockTolerance: 3 }).then(
      () => true,
      () => false,
    );
    if (isAccepted) acceptedAtMs = nowMs;
    return isAccepted;
  };
  const disable = fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.until(async () => !(await accepts()));
  expect(acceptedAtMs).toBeGreaterThan(expiresAt);
  const { propagation } = await disable;
  expect(propagation).toMatchObject({ state: 'complete', tokens: 'complete' });
  expect(propagation.waitedMs).toBeGreaterThan(8000);
  expect(await accepts()).toBe(false);
});
