// `npm run regions`: two regions on this machine, 80 ms apart, for a first look.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from './arguments.ts';
import { FaultProxy } from './fault-proxy.ts';
import { ensureRedis } from './install-redis.ts';
import { createCalls, enableCall, verifyCall } from './printed-calls.ts';
import { Processes } from './processes.ts';
import { type RedisServer, startRedis } from './redis-server.ts';

/** Time of a packet from one region to the other, in milliseconds. */
const WAY_MS = 40;

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
const processes = new Processes((message) => void fail(message));
const proxies: FaultProxy[] = [];
let isStopping = false;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void stop(0));
try {
  await start();
} catch (error) {
  await fail((error as Error).message);
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
  await processes.untilReady();
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
    STOP_WAIT_MS: '2000',
    LOG_LEVEL: 'warn',
  };
  processes.run(name, file, { ...process.env, ...own, ...settings });
}

function walk(): string {
  const address = (port: number) => `http://127.0.0.1:${port}`;
  const verify = (port: number) => verifyCall(address(port), `-w ' %{time_total} s' `);
  return `
Two regions are ready, ${2 * WAY_MS} ms apart. Copy this into another terminal.

  ROOT_KEY='${rootKey}'
  ${createCalls(address(ports.controlPlane), { apiId: 'demo' })}
  ${verify(ports.home)}   # at home
  ${verify(ports.far)}   # far away, for the first time
  ${verify(ports.far)}   # from memory
  ${enableCall(address(ports.controlPlane), false)}
  ${verify(ports.far)}   # refused

Ctrl-C stops everything.
`;
}

async function fail(message: string): Promise<void> {
  console.error(`keyfence: ${message}`);
  await stop(1);
}

async function stop(status: number): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  await processes.stop();
  for (const proxy of proxies) proxy.close();
  await Promise.all(servers.map((server) => server.stop()));
  rmSync(directory, { recursive: true, force: true });
  process.exit(status);
}
