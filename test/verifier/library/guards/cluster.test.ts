import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { spawnBound } from '../../../../deploy/dev/redis-server.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
const WORKERS = 3;

/** An application in several processes: each a member of the fence, all at one port, each says which it is. */
const APPLICATION = `
import cluster from 'node:cluster';
import { createServer } from 'node:http';
import { createVerifier } from '${ROOT}/verifier/library/create-verifier.ts';
import { keyfence } from '${ROOT}/verifier/library/guards/express.ts';
if (cluster.isPrimary) {
  for (let i = 0; i < ${WORKERS}; i++) cluster.fork();
  cluster.on('listening', (_worker, { port }) => console.log(port));
  process.once('SIGTERM', () => Object.values(cluster.workers).forEach((worker) => worker.disconnect()));
} else {
  const verifier = createVerifier({ redis: process.env.REDIS_URL, apiIds: ['shop'], lookupWaitMs: 5000 });
  const guard = keyfence({ verifier });
  const server = createServer((request, response) => {
    response.setHeader('x-worker', process.pid);
    response.setHeader('connection', 'close');
    guard(request, response, () => response.end('passed'));
  });
  await verifier.ready();
  server.listen(0, '127.0.0.1');
  cluster.worker.on('disconnect', () => verifier.close());
}
`;

let fleet: Fleet;
let child: ChildProcess | undefined;
let folder = '';
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  folder = scratch('cluster');
});
afterAll(async () => {
  child?.kill('SIGKILL');
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('no worker of a cluster passes a disabled key', async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const file = join(folder, 'application.mjs');
  writeFileSync(file, APPLICATION);
  child = spawnBound(process.execPath, [file], { ...process.env, REDIS_URL: fleet.redisUrl });
  const ports: string[] = [];
  const { stdout } = child;
  if (!stdout) throw new Error('nothing to read from');
  for await (const line of createInterface({ input: stdout })) if (ports.push(line) === WORKERS) break;
  const ask = async () => {
    const response = await fetch(`http://127.0.0.1:${ports[0]}/`, {
      headers: { authorization: `Bearer ${key}` },
    });
    await response.text();
    return [response.headers.get('x-worker') ?? '', response.status] as const;
  };
  const passedAt = new Set<string>();
  await fleet.until(async () => {
    const [worker, status] = await ask();
    if (status === 200) passedAt.add(worker);
    return passedAt.size === WORKERS;
  });
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: WORKERS });
  const refusedAt = new Set<string>();
  await fleet.until(async () => {
    const [worker, status] = await ask();
    expect(status).toBe(401);
    refusedAt.add(worker);
    return refusedAt.size === WORKERS;
  });
  // Those that end leave the fence: no change waits for them.
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
  const after = await fleet.ok('keys.updateKey', { keyId, enabled: true });
  expect(after.propagation).toMatchObject({ state: 'complete', verifiers: 0 });
});
