import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import * as client from 'openid-client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

const run = promisify(execFile);
let fleet: Fleet;
/** Its calls wait for a tenth of a second. */
let hasty: Fleet;
beforeAll(async () => {
  hasty = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '2000', FENCE_WAIT_MS: '100' } });
  fleet = await Fleet.start({ verifiers: 2 });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop', selfRevocation: true });
});
afterAll(() => Promise.all([fleet.stop(), hasty.stop()]));

const place = (of = fleet) => `${of.controlPlanes[0]?.address}/oauth2/revoke`;
const send = (body: string, headers: Record<string, string> = {}, to = fleet) =>
  to.send(place(to), {
    ...{ method: 'POST', body },
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
  });
const revoke = (token: string, at = fleet) => send(new URLSearchParams({ token }).toString(), {}, at);
const createKey = (apiId = 'shop'): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId });

test('an OAuth client revokes its own key, everywhere', async () => {
  const { key, keyId } = await createKey();
  for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  const server = { issuer: fleet.controlPlanes[0]?.address ?? '', revocation_endpoint: place() };
  const oauth = new client.Configuration(server, 'a-customer', undefined, client.None());
  client.allowInsecureRequests(oauth);
  await client.tokenRevocation(oauth, key);
  for (const at of [0, 1]) expect((await fleet.verifyOnce(key, { at })).body.code).toBe('DISABLED');
  await client.tokenRevocation(oauth, key);
  const { events } = await fleet.ok('audit.listEvents', { keyId });
  expect(
    events.filter(({ operation }: { operation: string }) => operation === 'oauth2.revoke'),
  ).toMatchObject([
    { outcome: 'OK', on: { apiId: 'shop', keyId }, before: { enabled: true }, after: { enabled: false } },
  ]);
  const { body } = await fleet.get(`${fleet.controlPlanes[0]?.adminAddress}/metrics`);
  expect(body).toContain('keyfence_keys_self_revoked_total 1');
});

test('the command of the page revokes a key', async () => {
  const { key } = await createKey();
  const page = readFileSync(
    new URL('../../../../control-plane/core/keys/revocation.md', import.meta.url),
    'utf8',
  );
  const [, command = ''] = /```sh\n(.*?)```/s.exec(page) ?? [];
  const script = command.replace(/http:\S+(?=\/oauth2)/, fleet.controlPlanes[0]?.address ?? '');
  const { stdout } = await run('bash', ['-c', script], { env: { ...process.env, KEY: key } });
  expect(stdout).toContain('200 OK');
  expect((await fleet.verifyOnce(key)).body.code).toBe('DISABLED');
});

test('no key of an API without selfRevocation is revoked', async () => {
  const { key } = await createKey('billing');
  expect(await revoke(key)).toMatchObject({ status: 400, body: { error: 'unsupported_token_type' } });
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.ok('apis.updateApi', { apiId: 'billing', selfRevocation: true });
  expect(await fleet.ok('apis.getApi', { apiId: 'billing' })).toMatchObject({ selfRevocation: true });
  await fleet.ok('apis.updateApi', { apiId: 'billing', selfRevocation: null });
  expect(await fleet.ok('apis.getApi', { apiId: 'billing' })).not.toHaveProperty('selfRevocation');
  expect((await revoke(key)).status).toBe(400);
  const patch = { apiId: 'billing', selfRevocation: true, name: 'Billing' };
  await fleet.ok('apis.updateApi', patch);
  await fleet.ok('apis.updateApi', { apiId: 'billing', selfRevocation: false });
  expect((await revoke(key)).status).toBe(400);
  expect(await fleet.verdict(key)).toBe('VALID');
});

test('a root key is not revoked, and says so', async () => {
  const made = await fleet.ok('rootKeys.createRootKey', { name: 'x', permissions: ['api.*.read_key'] });
  for (const token of [ROOT_KEY, made.key])
    expect(await revoke(token)).toMatchObject({ status: 400, body: { error: 'unsupported_token_type' } });
});

test('what is no form with one token is refused', async () => {
  for (const body of ['', 'token=', 'token=a&token=b', 'tokens=a', 'token=a%20b'])
    expect(await send(body)).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  for (const type of ['application/json', 'text/plain', 'multipart/form-data; boundary=x'])
    expect(await send('{}', { 'content-type': type })).toMatchObject({
      ...{ status: 415, body: { error: { message: expect.stringContaining('x-www-form-urlencoded') } } },
    });
  expect((await send(`token=${'x'.repeat(9000)}`)).status).toBe(413);
});

test('unknown keys get 200, and who guesses is stopped', async () => {
  const guesses = await Promise.all(Array.from({ length: 120 }, (_, i) => revoke(`guess_${i}`)));
  const statuses = new Set(guesses.map(({ status }) => status));
  expect([...statuses].sort()).toEqual([200, 429]);
});

describe('while a verifier has not confirmed the end of a key', () => {
  const ends: readonly [name: string, end: (keyId: string, apiId: string) => Promise<unknown>][] = [
    ['disable', (keyId) => hasty.ok('keys.updateKey', { keyId, enabled: false, waitMs: 0 })],
    ['deletion', (keyId) => hasty.ok('keys.deleteKey', { keyId, waitMs: 0 })],
    ['deletion with its API', (_, apiId) => hasty.ok('apis.deleteApi', { apiId, waitMs: 0 })],
  ];
  test.each(ends)('a revocation waits, and is answered 503 rather than 200: %s', async (name, end) => {
    const apiId = `late-${name.replaceAll(' ', '-')}`;
    await hasty.ok('apis.createApi', { apiId, name: apiId, selfRevocation: true });
    const { key, keyId } = await hasty.ok('keys.createKey', { apiId });
    // Registered, and confirms nothing.
    const { members } = apiKeys(apiId);
    await hasty.client.zadd(members, 0, '9.stuck');
    const isStuck = async () => Number((await hasty.client.zscore(members, '9.stuck')) ?? -1) >= 0;
    await end(keyId, apiId);
    const send = () => revoke(key, hasty);
    expect((await send()).status).toBe(503);
    await hasty.until(async () => {
      const wasStuck = await isStuck();
      const { status } = await send();
      if (status === 503) return false;
      expect(status).toBe(200);
      expect(wasStuck && (await isStuck())).toBe(false);
      return true;
    });
  });
});

test('a revocation is answered 503 until services behind accept no token of the key', async () => {
  const env = {
    TOKEN_KEY: 'a secret of tokens, long enough for all',
    LEASE_MS: '5000',
    FENCE_WAIT_MS: '500',
  };
  const tokens = await Fleet.start({ env });
  try {
    await tokens.ok('apis.createApi', { apiId: 'shop', name: 'Shop', selfRevocation: true });
    await tokens.ok('apis.updateApi', { apiId: 'shop', tokens: true, tokenLeewayMs: 0 });
    const { key } = await tokens.ok('keys.createKey', { apiId: 'shop' });
    const base = tokens.verifiers[0]?.address;
    const { body } = await tokens.decided(() => tokens.post(`${base}/v1/keys.issueToken`, { key }));
    const keys = createRemoteJWKSet(new URL(`${base}/.well-known/jwks.json`));
    const isAccepted = () =>
      jwtVerify(body.token, keys, { audience: 'shop' }).then(
        () => true,
        () => false,
      );
    expect(await isAccepted()).toBe(true);
    const { status, headers, body: refused } = await revoke(key, tokens);
    expect([status, headers['retry-after']]).toEqual([503, '1']);
    expect(refused.error.message).toContain('services behind may still accept its tokens');
    expect((await tokens.verifyOnce(key)).body.code).toBe('DISABLED');
    await tokens.until(async () => {
      const { status } = await revoke(key, tokens);
      if (status === 503) return false;
      expect(status).toBe(200);
      return true;
    });
    expect(await isAccepted()).toBe(false);
  } finally {
    await tokens.stop();
  }
});

test("slow senders take nobody's turn", async () => {
  const { hostname, port } = new URL(place());
  const head =
    'POST /oauth2/revoke HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n';
  const slow = Array.from({ length: 20 }, () => connect(Number(port), hostname));
  try {
    await Promise.all(slow.map((socket) => once(socket, 'connect')));
    for (const socket of slow) socket.write(`${head}content-length: 100\r\n\r\ntoken=`);
    const { key } = await createKey();
    expect((await revoke(key)).status).toBe(200);
  } finally {
    for (const socket of slow) socket.destroy();
  }
});
