// `npm run regions`: two regions on this machine, 80 ms apart, for a first look.
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from './arguments.ts';
import { FaultProxy } from './fault-proxy.ts';
import { ensureRedis } from './install-redis.ts';
import { printPlainly } from './plain-log.ts';
import { type RedisServer, spawnBound, startRedis } from './redis-server.ts';

const ROOT = join(import.meta.dirname, '..', '..');
/** Time of a packet from one region to the other, in milliseconds. */
const WAY_MS = 40;
const READY_MS_MAX = 60_000;
const POLL_MS = 100;

scriptArguments(
  `npm run regions: two regions on this machine, ${2 * WAY_MS} ms apart, until Ctrl-C. In one are Redis, a control plane and a verifier,
in the other a replica of Redis and a verifier that looks keys up there. Nothing is kept. It takes no options; PORT is the first of
the seven ports that it uses (default 3100).`,
  {},
);
const first = Number(process.env['PORT'] || 3100);
const ports = {
  ...{ redis: first, controlPlane: first + 1, home: first + 2, far: first + 3 },
  ...{ controlPlaneAdmin: first + 4, homeAdmin: first + 5, farAdmin: first + 6 },
};
const directory = mkdtempSync(join(tmpdir(), 'keyfence-regions-'));
const rootKey = randomBytes(32).toString('base64url');
const servers: RedisServer[] = [];
const children: ChildProcess[] = [];
const proxies: FaultProxy[] = [];
let isStopping = false;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void stop(0));
try {
  await start();
} catch (error) {
  console.error(`keyfence: ${(error as Error).message}`);
  await stop(1);
}

async function start(): Promise<void> {
  ensureRedis();
  const listen = ['--port', String(ports.redis), '--bind', '127.0.0.1', '--repl-diskless-sync-delay', '0'];
  const primary = await startRedis(join(directory, 'home'), listen);
  servers.push(primary);
  const replicaof = ['--replicaof', '127.0.0.1', String(await farFromRedis())];
  const replica = await startRedis(join(directory, 'far'), replicaof);
  servers.push(replica);
  run('control plane', 'control-plane/main.ts', ports.controlPlane, ports.controlPlaneAdmin, {
    ...{ REDIS_URL: primary.url, ROOT_KEY: rootKey },
  });
  run('verifier at home', 'verifier/main.ts', ports.home, ports.homeAdmin, {
    ...{ REDIS_URL: primary.url, REGION: 'home' },
  });
  run('verifier far away', 'verifier/main.ts', ports.far, ports.farAdmin, {
    ...{ REDIS_URL: `redis://127.0.0.1:${await farFromRedis()}`, REDIS_READ_URL: replica.url, REGION: 'far' },
  });
  await Promise.all([ports.controlPlaneAdmin, ports.homeAdmin, ports.farAdmin].map(untilReady));
  if (!isStopping) console.log(walk());
}

/** Opens a way to Redis that is as long as from the other region; returns its port. */
async function farFromRedis(): Promise<number> {
  const proxy = new FaultProxy(() => ports.redis, undefined, WAY_MS);
  proxies.push(proxy);
  return proxy.listen();
}

function run(name: string, file: string, port: number, adminPort: number, settings: NodeJS.ProcessEnv): void {
  const own = {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    REDIS_REPLICAS: '1',
    DRAIN_MS: '0',
    LOG_LEVEL: 'warn',
  };
  const child = spawnBound(process.execPath, [join(ROOT, file)], { ...process.env, ...own, ...settings });
  if (child.stdout) printPlainly(child.stdout, name, console.log);
  children.push(child);
  child.once('exit', (code) => {
    if (isStopping) return;
    console.error(`keyfence: the ${name} ended with status ${code}`);
    void stop(1);
  });
}

async function untilReady(adminPort: number): Promise<void> {
  const giveUpAtMs = performance.now() + READY_MS_MAX;
  while (!isStopping) {
    const response = await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined);
    if (response?.ok) return;
    if (performance.now() > giveUpAtMs) throw new Error(`nothing is ready at port ${adminPort}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function walk(): string {
  const controlPlane = `http://127.0.0.1:${ports.controlPlane}`;
  const json = `-H 'content-type: application/json'`;
  const admin = `-H "authorization: Bearer $ROOT_KEY" ${json}`;
  const field = (name: string) => `sed -n 's/.*"${name}":"\\([^"]*\\)".*/\\1/p'`;
  const verify = (port: number) =>
    `curl -s -w ' %{time_total} s' http://127.0.0.1:${port}/v1/keys.verifyKey ${json} -d "{\\"key\\":\\"$KEY\\"}"; echo`;
  return `
Two regions are ready, ${2 * WAY_MS} ms apart. Copy this into another terminal.

  ROOT_KEY='${rootKey}'
  CREATED=$(curl -s ${controlPlane}/v1/keys.createKey ${admin} -d '{"apiId":"demo"}'); echo "$CREATED"
  KEY=$(echo "$CREATED" | ${field('key')}); KEY_ID=$(echo "$CREATED" | ${field('keyId')})
  ${verify(ports.home)}   # at home
  ${verify(ports.far)}   # far away, for the first time
  ${verify(ports.far)}   # from memory
  curl -s ${controlPlane}/v1/keys.updateKey ${admin} -d "{\\"keyId\\":\\"$KEY_ID\\",\\"enabled\\":false}"; echo
  ${verify(ports.far)}   # refused

Ctrl-C stops everything.
`;
}

async function stop(status: number): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  await Promise.all(
    children.map(async (child) => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exit = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      await exit;
    }),
  );
  for (const proxy of proxies) proxy.close();
  await Promise.all(servers.map((server) => server.stop()));
  rmSync(directory, { recursive: true, force: true });
  process.exit(status);
}
