import { execFileSync } from 'node:child_process';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { configFaults } from '../../../verifier/config.ts';
import { createControlPlaneProxy } from '../../../verifier/proxy/control-plane-proxy.ts';
import { createVerifierServer } from '../../../verifier/verifier-server.ts';
import { verifierConfig } from '../../harness/config.ts';
import { Fleet, ROOT_KEY } from '../../harness/fleet.ts';
import { limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { Wire } from '../../harness/wire.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

describe('one address for the whole interface', () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    await fleet.addVerifier({ CONTROL_PLANE_URL: fleet.controlPlanes[0]?.address ?? '' });
  });
  afterAll(() => fleet.stop());

  test('every operation answers as the control plane', async () => {
    const base = `${fleet.verifiers[0]?.address}/v1`;
    const root = { authorization: `Bearer ${ROOT_KEY}` };
    const created = await fleet.post(`${base}/keys.createKey`, { apiId: 'shop', name: 'Zoë' }, root);
    expect(created).toMatchObject({ status: 200, body: { keyId: expect.any(String) } });
    const { key, keyId } = created.body;
    expect(await fleet.verdict(key)).toBe('VALID');
    const updated = await fleet.post(`${base}/keys.updateKey`, { keyId, enabled: false }, root);
    expect(updated.body.propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: 1 });
    expect((await fleet.verify(key)).body).toMatchObject({ valid: false, code: 'DISABLED', name: 'Zoë' });
    const read = await fleet.get(`${base}/keys.getKey?keyId=${keyId}`, root);
    expect(read.body).toEqual((await fleet.admin('keys.getKey', { keyId })).body);
    expect((await fleet.get(`${base}/apis.listKeys?apiId=shop`, root)).body).toMatchObject({ total: 1 });
  });

  test('passes on refusals as they are', async () => {
    const base = `${fleet.verifiers[0]?.address}/v1`;
    const refused = await fleet.post(`${base}/keys.createKey`, {}, { 'x-request-id': 'mine-1' });
    expect(refused).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': 'Bearer', 'x-request-id': 'mine-1', 'cache-control': 'no-store' },
      body: { error: { code: 'UNAUTHORIZED', requestId: 'mine-1' } },
    });
    expect(await fleet.post(`${base}/keys.getKey`, {})).toMatchObject({
      status: 405,
      headers: { allow: 'GET' },
    });
    expect((await fleet.get(`${base}/keys.noSuch`)).status).toBe(404);
  });

  test('without a control plane says whose a call is', async () => {
    const { address } = await fleet.addVerifier();
    const message =
      'no such path: this is a verifier, which answers keys.verifyKey, keys.release, keys.getSelf, keys.issueToken, ratelimit.limit, ratelimit.multiLimit; ask the control plane';
    expect(await fleet.get(`${address}/v1/keys.getKey?keyId=k`)).toMatchObject({
      status: 404,
      body: { error: { code: 'NOT_FOUND', message: expect.stringContaining(message) } },
    });
    for (const path of ['/v1/keys.verifyKey/', '/v1/', '/v3/keys.getKey'])
      expect((await fleet.get(`${address}${path}`)).body.error.message, path).toBe('no such path');
  });

  test('verifyKey goes on without the control plane', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.controlPlanes.pop()?.stop();
    expect(await fleet.verdict(key)).toBe('VALID');
    expect(await fleet.get(`${fleet.verifiers[0]?.address}/v1/apis.listApis`)).toMatchObject({
      status: 503,
      headers: { 'retry-after': '1' },
      body: { error: { code: 'SERVICE_UNAVAILABLE', message: expect.stringContaining('nothing was done') } },
    });
  });
});

test('a silent control plane is 503 and bounded', async () => {
  const sockets = new Set<object>();
  const silent: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as { port: number };
  const forward = await createControlPlaneProxy(new URL(`http://127.0.0.1:${port}`), {
    id: 'v-here',
    config: {
      ...limits,
      CONTROL_PLANE_TIMEOUT_MS: 100,
      CONTROL_PLANE_CONNECTIONS_MAX: 4,
    },
    clock: systemClock,
    log: { warn: () => undefined },
  });
  const log = { error: (fields: unknown) => expect.fail(JSON.stringify(fields)) };
  const routes = { below: forward.below };
  const server = createVerifierServer({ verifier: new ScriptedAnswers(), limits, log, routes });
  const { port: own } = new URL(await server.listen('127.0.0.1', 0));
  const statuses = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const one = new Wire(`http://127.0.0.1:${own}`);
      const { status } = await one
        .send('GET /v1/apis.listApis HTTP/1.1\r\nHost: v\r\n\r\n')
        .response()
        .finally(() => one.close());
      expect(sockets.size).toBeLessThanOrEqual(4);
      return status;
    }),
  );
  expect(statuses).toEqual(Array.from({ length: 10 }, () => 503));
  await server.close(0);
  await forward.close();
  silent.close();
});

test('loads no client where nothing is passed on', () => {
  const program = `
    import { createRequire } from 'node:module';
    await import('./verifier/app.ts');
    const loaded = () => Object.keys(createRequire(import.meta.url).cache).filter((p) => p.includes('/undici/')).length;
    const before = loaded();
    const { UpstreamPool } = await import('./verifier/proxy/upstream.ts');
    await UpstreamPool.to(new URL('http://127.0.0.1:1'), { connectionsMax: 1, timeoutMs: 1000 });
    process.stdout.write(JSON.stringify([before, loaded() > 0]));`;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], { cwd: ROOT });
  expect(JSON.parse(output.toString())).toEqual([0, true]);
});

test('checks the address and hides its password', () => {
  for (const url of ['ftp://x', 'nonsense', 'http://user:hunter2@x', 'http://x/?a=1']) {
    const load = () => verifierConfig({ CONTROL_PLANE_URL: url });
    expect(load).toThrow(/CONTROL_PLANE_URL: is not a valid URL/);
    expect(load).not.toThrow(/hunter2/);
  }
  expect(configFaults(verifierConfig({}))).toEqual([]);
});
