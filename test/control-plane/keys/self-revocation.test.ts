import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import * as client from 'openid-client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../harness/fleet.ts';

const run = promisify(execFile);
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2 });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop', selfRevocation: true });
});
afterAll(() => fleet.stop());

const place = () => `${fleet.controlPlanes[0]?.address}/oauth2/revoke`;
const send = (body: string, headers: Record<string, string> = {}) =>
  fleet.send(place(), {
    ...{ method: 'POST', body },
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
  });
const revoke = (token: string) => send(new URLSearchParams({ token }).toString());
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
  const page = readFileSync(new URL('../../../control-plane/keys/revocation.md', import.meta.url), 'utf8');
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
  expect((await send('{}', { 'content-type': 'application/json' })).status).toBe(415);
  expect((await send(`token=${'x'.repeat(9000)}`)).status).toBe(413);
});

test('unknown keys get 200, and who guesses is stopped', async () => {
  const guesses = await Promise.all(Array.from({ length: 120 }, (_, i) => revoke(`guess_${i}`)));
  const statuses = new Set(guesses.map(({ status }) => status));
  expect([...statuses].sort()).toEqual([200, 429]);
});
