import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { afterEach, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { metric } from '../harness/metrics.ts';
import { Process } from '../harness/processes.ts';
import { scratch } from '../harness/scratch.ts';
import { eventually } from '../harness/waiting.ts';

const ROOT_KEY = 'crash-root-key-0123456789abcdef0123456789';
const LEASE_MS = 4000;
const directory = scratch('crash');
const processes: Process[] = [];
let redis: RedisServer | undefined;

afterEach(async () => {
  for (const process of processes.splice(0)) await process.stop('SIGKILL');
  await redis?.stop();
  rmSync(directory, { recursive: true, force: true });
});

async function start(file: 'control-plane/main.ts' | 'verifier/main.ts', env: Record<string, string>) {
  const process = new Process(file, { REDIS_URL: redis?.url ?? '', ...env });
  processes.push(process);
  await process.start();
  return process;
}

test('a crash makes one change wait for the fence', async () => {
  redis = await startRedis(join(directory, 'redis'));
  const controlPlane = await start('control-plane/main.ts', { ROOT_KEY, LEASE_MS: String(LEASE_MS) });
  // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
  const call = async (operation: string, body: object): Promise<any> => {
    const answer = await request(`${controlPlane.address}/v1/${operation}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (answer.statusCode !== 200) throw new Error(`${operation}: ${await answer.body.text()}`);
    return answer.body.json();
  };
  const { keyId } = await call('keys.createKey', { apiId: 'shop' });
  const update = async () => (await call('keys.updateKey', { keyId, name: 'x' })).propagation;
  const crashing = await start('verifier/main.ts', { API_IDS: 'shop' });
  const surviving = await start('verifier/main.ts', { API_IDS: 'shop' });
  for (const { adminAddress } of [crashing, surviving])
    await eventually(async () => (await metric(adminAddress, 'keyfence_followers')) >= 1);
  expect(await update()).toMatchObject({ state: 'complete', by: 'acks', verifiers: 2 });

  await crashing.stop('SIGKILL');
  const first = await update();
  expect(first).toMatchObject({ state: 'complete', by: 'fence', verifiers: 2 });
  expect(first.waitedMs).toBeGreaterThanOrEqual(LEASE_MS);
  for (let i = 0; i < 3; i++) {
    const later = await update();
    expect(later).toMatchObject({ state: 'complete', by: 'acks', verifiers: 1 });
    expect(later.waitedMs).toBeLessThan(LEASE_MS / 4);
  }
});
