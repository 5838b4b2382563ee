import { type Benchmark, inDirectory } from './harness.ts';
import {
  findNginxLua,
  interleave,
  SERVER_CORE,
  throughputBars,
  throughputRows,
  verifyRequest,
} from './load.ts';
import { type Server, startBackend, startNginx, startPeer, startVerifier, warm } from './servers.ts';

/** verifyKey from memory against the least that others would do, each alone on one core. */
const verifyHit: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const rounds = quick ? 3 : 5;
    const backend = await startBackend(directory, quick ? 10_000 : 100_000);
    const { keys, keysFile, redisPath } = backend;
    const servers: Server[] = [];
    try {
      const verifier = await startVerifier(backend);
      servers.push(verifier);
      await warm(verifier, keys);
      servers.push(await startPeer('minimal node:http handler', 'minimal-http.ts', keysFile));
      servers.push(await startPeer('Fastify + one Redis GET', 'fastify-redis.ts', keysFile, redisPath));
      const nginx = findNginxLua();
      if (nginx) servers.push(await startNginx(nginx, directory, keysFile));
      const requests = keys.map(verifyRequest);
      const contenders = servers.map(({ name, port }) => ({ name, port, requests }));
      const loads = await interleave(contenders, rounds, quick ? 2 : 3);
      return {
        title: 'verifyKey from memory',
        about: `${keys.length.toLocaleString('en')} keys in memory, asked for at random over 32 connections; each server on core ${SERVER_CORE}, the load on the other; interleaved, medians of ${rounds}.`,
        bars: throughputBars(loads),
        rows: throughputRows(loads, {
          'minimal node:http handler': 2,
          'nginx + Lua LRU': 0.9,
          'Fastify + one Redis GET': 4,
        }),
      };
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await backend.stop();
    }
  });

export default verifyHit;
