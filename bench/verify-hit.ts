import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { startRedis } from '../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, median, pinned, type Row, startProcess } from './harness.ts';
import { findNginxLua, freePort, type Load, peer, SERVER_CORE, verifyLoad } from './load.ts';

const ROOT = join(import.meta.dirname, '..');
const ROOT_KEY = 'bench-root-key-0123456789abcdef0123456789';

/** A server under load, and what it is called in the table. */
interface Server {
  readonly name: string;
  readonly port: number;
  stop(): Promise<void>;
}

/** A verifier as it is run in production, with `count` keys in memory, pinned to the server core. */
export async function startWarmVerifier(directory: string, count: number, env: Record<string, string> = {}) {
  const redis = await startRedis(join(directory, 'redis'), ['--appendonly', 'no']);
  const common = { REDIS_URL: redis.url, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info', LEASE_MS: '60000' };
  const controlPlane = await startProcess<{ address: string }>(
    [process.execPath, join(ROOT, 'control-plane/main.ts')],
    { ...common, ROOT_KEY },
    'address',
  );
  const agent = new Agent({ connections: 64 });
  const post = async (url: string, body: object) => {
    const answer = await request(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      dispatcher: agent,
    });
    return (await answer.body.json()) as { key?: string; code?: string };
  };
  const keys = await inParallel(
    count,
    async () => (await post(`${controlPlane.ready.address}/v1/keys.createKey`, { apiId: 'bench' })).key ?? '',
  );
  const verifier = await startProcess<{ address: string; adminAddress: string }>(
    pinned(SERVER_CORE, [process.execPath, join(ROOT, 'verifier/main.ts')]),
    { ...common, API_IDS: 'bench', CACHE_KEYS_MAX: '1000000', LOOKUP_WAIT_MS: '5000', ...env },
    'address',
  );
  const url = `${verifier.ready.address}/v1/keys.verifyKey`;
  await inParallel(count, async (i) => {
    let code: string | undefined;
    while (code !== 'VALID') code = (await post(url, { key: keys[i] })).code;
  });
  const keysFile = join(directory, 'keys.txt');
  writeFileSync(keysFile, keys.join('\n'));
  return {
    keys,
    keysFile,
    redis,
    verifier,
    port: Number(new URL(verifier.ready.address).port),
    async stop() {
      await agent.destroy();
      await verifier.stop();
      await controlPlane.stop();
      await redis.stop();
    },
  };
}

/** verifyKey from memory against the least that others would do, each alone on one core. */
const verifyHit: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const warm = await startWarmVerifier(directory, quick ? 10_000 : 100_000);
    const servers: Server[] = [
      { name: 'Keyfence verifier, verifyKey from memory', port: warm.port, stop: warm.stop },
      await startPeer('minimal node:http handler', 'minimal-http.ts', warm.keysFile),
      await startPeer(
        'Fastify + one Redis GET',
        'fastify-redis.ts',
        warm.keysFile,
        warm.redis.url.replace('unix://', ''),
      ),
    ];
    const nginx = findNginxLua();
    if (nginx) servers.push(await startNginx(nginx, directory, warm.keysFile));
    const loads = new Map<string, Load[]>(servers.map(({ name }) => [name, []]));
    try {
      for (let round = 0; round < (quick ? 3 : 5); round++) {
        for (const { name, port } of servers) {
          const load = await verifyLoad(port, warm.keysFile, warm.keys, quick ? 2 : 5);
          if (load.errors > 0) throw new Error(`${name}: ${load.errors} errors`);
          loads.get(name)?.push(load);
        }
      }
    } finally {
      for (const { stop } of servers.reverse()) await stop();
    }
    const rate = (name: string) =>
      median((loads.get(name) ?? []).map(({ requestsPerSecond }) => requestsPerSecond));
    const [mine = ''] = [...loads.keys()];
    const rows: Row[] = [...loads].map(([name, all]) => ({
      name,
      value: `${Math.round(rate(name)).toLocaleString('en')} requests/s, p50 ${median(all.map(({ p50 }) => p50)).toFixed(2)} ms, p99 ${median(all.map(({ p99 }) => p99)).toFixed(2)} ms`,
    }));
    const targets: Record<string, number> = {
      'minimal node:http handler': 2,
      'nginx + Lua LRU': 0.9,
      'Fastify + one Redis GET': 4,
    };
    for (const [name, target] of Object.entries(targets)) {
      if (!loads.has(name)) continue;
      const ratio = rate(mine) / rate(name);
      rows.push({
        name: `Keyfence ÷ ${name}`,
        value: `${ratio.toFixed(2)} ×`,
        target: `≥ ${target}`,
        met: ratio >= target,
      });
    }
    const about = `${warm.keys.length.toLocaleString('en')} keys in memory, asked for at random over 32 connections; each server on core ${SERVER_CORE}, the load on the other; interleaved, medians of ${quick ? 3 : 5}.`;
    return { title: 'verifyKey from memory', about, rows };
  });

async function startPeer(name: string, file: string, ...args: string[]): Promise<Server> {
  const port = freePort();
  const command = pinned(SERVER_CORE, [process.execPath, peer(file), String(port), ...args]);
  const { stop } = await startProcess(command, {}, 'ready');
  return { name, port, stop };
}

async function startNginx(nginx: string, directory: string, keysFile: string): Promise<Server> {
  const { spawn } = await import('node:child_process');
  const port = freePort();
  const conf = join(directory, 'nginx.conf');
  const text = readFileSync(peer('nginx-lua.conf'), 'utf8')
    .replaceAll('PORT', String(port))
    .replaceAll('KEYS', keysFile)
    .replaceAll('DIRECTORY', directory);
  writeFileSync(conf, text);
  const [file = '', ...args] = pinned(SERVER_CORE, [nginx, '-c', conf, '-p', directory]);
  const child = spawn(file, args, { stdio: 'inherit' });
  for (;;) {
    const up = await fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false,
    );
    if (up) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    name: 'nginx + Lua LRU',
    port,
    async stop() {
      child.kill('SIGTERM');
      await exited;
    },
  };
}

async function inParallel<T>(count: number, work: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = new Array(count);
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const i = next++;
      results[i] = await work(i);
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  return results;
}

export default verifyHit;
