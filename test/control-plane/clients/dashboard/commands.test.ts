import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type Call,
  commandOf,
  curlOf,
  scriptOf,
} from '../../../../control-plane/clients/dashboard/changes/commands.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';

let fleet: Fleet;
let base: string;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  base = `${fleet.controlPlanes[0]?.address}/`;
});
afterAll(() => fleet.stop());

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');

/** Runs a line in a shell as somebody who copied it; returns what it prints. */
function run(line: string): Promise<string> {
  const env = { ...process.env, KEYFENCE_URL: base, KEYFENCE_ROOT_KEY: ROOT_KEY };
  const child = spawn('sh', ['-c', line], { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
  });
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  child.on('close', (code) => (code === 0 ? resolve(text) : reject(new Error(`${line}: status ${code}`))));
  return promise;
}

const FIELDS = {
  name: "Ada's till",
  externalId: 'ada & sons',
  meta: { plan: "pro's" },
  permissions: ['a.read', 'a.write'],
  ratelimit: { limit: 100, duration: 10_000, async: true },
  ratelimits: [{ name: 'tokens', limit: 5000, duration: 86_400_000, async: true }],
  concurrency: [{ name: 'jobs', limit: 3 }],
  allowedIps: ['192.0.2.0/24'],
  expires: 4_000_000_000_000,
};

test('a call is the same as a command or a script', async () => {
  const { keyId: asked } = await fleet.ok('keys.createKey', { apiId: 'code', ...FIELDS });
  const {
    keyId: _,
    id: __,
    createdAt: ___,
    start: ____,
    ...wanted
  } = await fleet.ok('keys.getKey', { keyId: asked });
  const call: Call = { operation: 'keys.createKey', input: { apiId: 'code', ...FIELDS } };
  const script = join(scratch('commands'), 'call.mjs');
  writeFileSync(script, scriptOf(call, base));
  for (const line of [commandOf(call) ?? '', curlOf(call, base), `node ${script}`]) {
    const [keyId = ''] = /key_[0-9A-Za-z]{20}/.exec(await run(line)) ?? [];
    expect(await fleet.ok('keys.getKey', { keyId }), line).toMatchObject(wanted);
  }
});

test('every shown command does what its call does', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'lines', name: 'x', remaining: 5 });
  // The same program without the second that npx takes to find it.
  const does = (operation: string, input: Call['input']) =>
    run(
      commandOf({ operation, input })?.replace(
        /^npx keyfence/,
        'node control-plane/clients/cli/keyfence.js',
      ) ?? 'false',
    );
  const keyNow = () => fleet.ok('keys.getKey', { keyId });
  await does('keys.updateKey', { keyId, enabled: false });
  expect(await keyNow()).toMatchObject({ enabled: false });
  await does('keys.updateKey', { keyId, enabled: true });
  await does('keys.updateKey', {
    ...{ keyId, name: null, remaining: 9, refill: { interval: 'monthly', amount: 20, refillDay: 3 } },
  });
  expect(await keyNow()).toMatchObject({
    ...{ enabled: true, remaining: 9, refill: { interval: 'monthly', amount: 20, refillDay: 3 } },
  });
  expect(await keyNow()).not.toHaveProperty('name');
  await does('keys.rerollKey', { keyId, expiration: 3_600_000 });
  expect(await keyNow()).toHaveProperty('rerolledTo');
  await does('keys.deleteKey', { keyId });
  expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(404);

  await does('apis.createApi', { apiId: 'made', name: 'Made here', defaultPrefix: 'm', defaultBytes: 20 });
  const rules = { defaultLifetimeMs: 5_400_000, maxLifetimeMs: 7_776_000_000 };
  await does('apis.updateApi', { apiId: 'made', defaultPrefix: null, defaultBytes: 24, ...rules });
  const api = await fleet.ok('apis.getApi', { apiId: 'made' });
  expect(api).toMatchObject({ name: 'Made here', defaultBytes: 24, ...rules });
  expect(api).not.toHaveProperty('defaultPrefix');
  await does('apis.deleteApi', { apiId: 'made' });
  expect((await fleet.admin('apis.getApi', { apiId: 'made' })).status).toBe(404);

  await does('identities.createIdentity', { externalId: 'bo', meta: { a: 1 }, enabled: false });
  expect(await fleet.ok('identities.getIdentity', { externalId: 'bo' })).toMatchObject({
    ...{ enabled: false, meta: { a: 1 } },
  });
  await does('permissions.createRole', { name: 'The editor', permissions: ['x.y'] });
  const [role] = await fleet.ok('permissions.listRoles');
  await does('permissions.setRolePermissions', { roleId: role.id, permissions: ['x.z', 'x.a'] });
  const [changed] = await fleet.ok('permissions.listRoles');
  expect(changed.permissions.map(({ name }: { name: string }) => name).sort()).toEqual(['x.a', 'x.z']);
  await does('permissions.deleteRole', { roleId: role.id });
  expect(await fleet.ok('permissions.listRoles')).toEqual([]);

  await does('rootKeys.createRootKey', { name: 'CI', permissions: ['api.*.read_key', 'root.*.read_audit'] });
  const [made] = (await fleet.ok('rootKeys.listRootKeys')).rootKeys;
  expect(made).toMatchObject({ name: 'CI', permissions: ['api.*.read_key', 'root.*.read_audit'] });
  await does('rootKeys.updateRootKey', { rootKeyId: made.rootKeyId, enabled: false });
  expect((await fleet.ok('rootKeys.listRootKeys')).rootKeys[0].enabled).toBe(false);

  const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url: 'https://example.com/' });
  await does('webhooks.updateEndpoint', { endpointId, enabled: false });
  expect((await fleet.ok('webhooks.getEndpoint', { endpointId })).enabled).toBe(false);
  await does('webhooks.deleteEndpoint', { endpointId });
  expect((await fleet.ok('webhooks.listEndpoints')).endpoints).toEqual([]);
  expect(commandOf({ operation: 'keys.updateKeys', input: {} })).toBeUndefined();
});
