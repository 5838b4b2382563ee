import { type Benchmark, inDirectory, median, type Row } from './harness.ts';
import { findNginxLua, type Load, SERVER_CORE, verifyLoad } from './load.ts';
import { type Server, startBackend, startNginx, startPeer, startVerifier, warm } from './servers.ts';

/** verifyKey from memory against the least that others would do, each alone on one core. */
const verifyHit: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, quick ? 10_000 : 100_000);
    const { keys, keysFile, redisPath } = backend;
    const verifier = await startVerifier(backend);
    await warm(verifier, keys);
    const servers: Server[] = [
      verifier,
      await startPeer('minimal node:http handler', 'minimal-http.ts', keysFile),
      await startPeer('Fastify + one Redis GET', 'fastify-redis.ts', keysFile, redisPath),
    ];
    const nginx = findNginxLua();
    if (nginx) servers.push(await startNginx(nginx, directory, keysFile));
    const loads = new Map<string, Load[]>(servers.map(({ name }) => [name, []]));
    try {
      for (let round = 0; round < (quick ? 3 : 5); round++) {
        for (const { name, port } of servers) {
          const load = await verifyLoad(port, keysFile, keys, quick ? 2 : 5);
          if (load.errors > 0) throw new Error(`${name}: ${load.errors} errors`);
          loads.get(name)?.push(load);
        }
      }
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await backend.stop();
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
    const about = `${keys.length.toLocaleString('en')} keys in memory, asked for at random over 32 connections; each server on core ${SERVER_CORE}, the load on the other; interleaved, medians of ${quick ? 3 : 5}.`;
    return { title: 'verifyKey from memory', about, rows };
  });

export default verifyHit;
