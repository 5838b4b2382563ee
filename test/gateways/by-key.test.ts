import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { lacking } from '../harness/programs.ts';
import { BY_KEY, Gateway, gatewayNames } from './gateways.ts';
import { API_ID, OTHER_API_ID, showing, World } from './world.ts';

const isMissing = !gatewayNames.includes('envoy');
const TEMPLATES = join(import.meta.dirname, '..', '..', 'deploy', 'gateways', 'envoy');

let world: World;
let gateway: Gateway;
let roleId: string;
beforeAll(async () => {
  if (isMissing) return;
  world = await World.start({ METADATA_FIELDS: 'plan', CREDENTIAL_SOURCES: 'bearer,x-api-key,query' });
  gateway = await Gateway.start(BY_KEY, world.fleet.directory, world.around);
  ({ roleId } = await world.fleet.ok('permissions.createRole', {
    ...{ name: 'admin', permissions: ['reports.read'] },
  }));
  await world.fleet.ok('permissions.createRole', { name: 'administrator' });
});
afterAll(async () => {
  await gateway?.stop();
  await world?.stop();
});

const created = (fields: object): Promise<{ key: string; keyId: string }> =>
  world.fleet.ok('keys.createKey', { apiId: API_ID, ...fields });

/** The status of a request through the gateway, sent again while there is no verdict. */
async function statusOf(key: string, path = '/'): Promise<number> {
  let { status } = await gateway.ask({ path, ...showing(key) });
  await world.fleet.until(async () => {
    if (status !== 503) return true;
    ({ status } = await gateway.ask({ path, ...showing(key) }));
    return false;
  });
  return status;
}

const linesOf = (output: string): Record<string, unknown>[] =>
  output
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

/** The line of the access log about a path. */
async function logged(path: string, output = () => gateway.output) {
  const lines = () => linesOf(output()).filter((each) => each['path'] === path && each['status'] !== 503);
  await world.fleet.until(() => lines().length > 0, `${path} is not in the access log`);
  return lines()[0];
}

describe.skipIf(isMissing)(`Envoy that knows whose key it was${lacking(isMissing ? ['envoy'] : [])}`, () => {
  test('limits each customer over all keys', async () => {
    const [first, second, other] = [
      await created({ externalId: 'busy' }),
      await created({ externalId: 'busy' }),
      await created({ externalId: 'quiet' }),
    ];
    const statuses: number[] = [];
    // More than the minute allows, however slow this machine is.
    for (let i = 0; i < 200 && !statuses.includes(429); i++)
      statuses.push(await statusOf(i % 2 ? first.key : second.key));
    expect(statuses.at(-1)).toBe(429);
    expect(statuses.slice(0, -1)).not.toContain(429);
    expect(statuses.length).toBeGreaterThan(20);
    expect(await statusOf(first.key)).toBe(429);
    expect(await statusOf(other.key)).toBe(200);
  });

  test('lets only keys with the role use the route', async () => {
    const [admin, almost, plain] = [
      await created({ externalId: 'r1', roles: ['admin'] }),
      await created({ externalId: 'r2', roles: ['administrator'], permissions: ['admin'] }),
      await created({ externalId: 'r3' }),
    ];
    for (const path of ['/admin', '/Admin/x', '/%61dmin', '/x/..%2Fadmin'])
      for (const [{ key }, status] of [
        [admin, 200],
        [almost, 403],
        [plain, 403],
      ] as const)
        expect([path, await statusOf(key, path)]).toEqual([path, status]);
    for (const { key } of [almost, plain]) expect(await statusOf(key, '/orders')).toBe(200);
    await world.fleet.ok('keys.setRoles', { keyId: admin.keyId, roles: [] });
    expect(await statusOf(admin.key, '/admin')).toBe(403);
  });

  test('still asks for the permission of a route', async () => {
    const [reader, plain] = [await created({ permissions: ['reports.read'] }), await created({})];
    expect(await statusOf(reader.key, '/reports')).toBe(200);
    expect(await statusOf(plain.key, '/reports')).toBe(403);
    // Only an admin may spell it in another way, and needs the permission all the same.
    const stripped = await created({ roles: ['admin'] });
    expect(await statusOf(stripped.key, '/%72eports')).toBe(200);
    await world.fleet.ok('permissions.setRolePermissions', { roleId, permissions: [] });
    expect(await statusOf(stripped.key, '/%72eports')).toBe(403);
  });

  test('logs the key of each access, and no secret', async () => {
    const meta = { plan: 'größer', secret: 'not named' };
    const { key, keyId } = await created({ externalId: 'Zoë', meta });
    expect(await statusOf(key, `/logged?api_key=${key}`)).toBe(200);
    expect(await logged('/logged')).toMatchObject({
      ...{ method: 'GET', status: 200, code: 'VALID', keyId },
      ...{ externalId: 'Zoë', plan: 'größer' },
    });
    const disabled = await created({ enabled: false });
    expect(await statusOf(disabled.key, '/logged-disabled')).toBe(401);
    expect(await logged('/logged-disabled')).toMatchObject({ code: 'DISABLED', keyId: disabled.keyId });
    const foreign = await created({ apiId: OTHER_API_ID });
    expect(await statusOf(foreign.key, '/logged-foreign')).toBe(403);
    expect(await logged('/logged-foreign')).toMatchObject({ code: 'FORBIDDEN', keyId: null });
    for (const secret of [key, disabled.key, foreign.key, 'not named'])
      expect(gateway.output).not.toContain(secret);
  });

  test('over HTTP writes the same of the headers', async () => {
    const { key, keyId } = await created({ externalId: 'user 1' });
    expect((await world.decided('envoy', { path: '/over-http', ...showing(key) })).status).toBe(200);
    expect(await logged('/over-http', () => world.outputOf('envoy'))).toMatchObject({
      ...{ status: 200, keyId, externalId: 'user%201' },
    });
  });
});

test('is configured as over gRPC, plus filters', () => {
  const managerOf = (file: string) => {
    const whole = parse(readFileSync(join(TEMPLATES, file), 'utf8').replace(/\$\{(\w+)\}/g, '$1'));
    return { whole, manager: whole.static_resources.listeners[0].filter_chains[0].filters[0].typed_config };
  };
  const { whole, manager } = managerOf('envoy-by-key.yaml.template');
  delete manager.access_log;
  const names = manager.http_filters.map(({ name }: { name: string }) => name);
  expect(names).toEqual(
    ['ext_authz', 'rbac', 'local_ratelimit', 'router'].map((name) => `envoy.filters.http.${name}`),
  );
  manager.http_filters.splice(1, 2);
  expect(whole).toEqual(managerOf('envoy-grpc.yaml.template').whole);
});
