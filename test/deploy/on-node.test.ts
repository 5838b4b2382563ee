import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';

const API = join(import.meta.dirname, '../../deploy/kubernetes/example/api/api.mjs');
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

it('the sample API asks its node or says no', async () => {
  const socket = join(fleet.directory, 'verifier.sock');
  const port = await freePort();
  const env = { ...process.env, VERIFIER_SOCKET: socket, PORT: String(port) };
  const api = spawnBound(process.execPath, [API], env);
  try {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'sample' });
    const status = async (authorization?: string) => {
      const headers = authorization ? { authorization } : {};
      return (await fleet.get(`http://127.0.0.1:${port}`, headers).catch(() => undefined))?.status;
    };
    await fleet.until(async () => (await status()) === 401);
    expect(await status(`Bearer ${key}`)).toBe(503);

    await fleet.addVerifier({ LISTEN_UNIX: socket });
    await fleet.until(async () => (await status(`Bearer ${key}`)) === 200);
    expect(await status('Bearer made-up')).toBe(401);
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await status(`Bearer ${key}`)).toBe(401);
    await fleet.ok('keys.updateKey', { keyId, enabled: true });

    await fleet.verifiers.pop()?.stop();
    expect(await status(`Bearer ${key}`)).toBe(503);
    await fleet.addVerifier({ LISTEN_UNIX: socket });
    await fleet.until(async () => (await status(`Bearer ${key}`)) === 200);
  } finally {
    api.kill('SIGTERM');
  }
});
