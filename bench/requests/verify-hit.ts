import { join } from 'node:path';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, pin } from '../harness.ts';
import {
  findNginxLua,
  interleave,
  LOAD_CORE,
  loadPanels,
  SERVER_CORE,
  throughputRows,
  verifyRequest,
} from '../load/load.ts';
import { type Server, startBackend, startVerifier, warm } from '../servers.ts';
import { startNginx, startPeer } from '../start-peers.ts';

/** Compares verifyKey from memory with minimal alternatives, each alone on one core. */
const verifyHit: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const rounds = quick ? 3 : 5;
    const backend = await startBackend(directory, quick ? 10_000 : 100_000);
    const { keys, keysFile } = backend;
    const servers: Server[] = [];
    const others: RedisServer[] = [];
    try {
      const verifier = await startVerifier(backend);
      servers.push(verifier);
      await warm(verifier, keys);
      servers.push(await startPeer('minimal node:http handler', 'minimal-http.ts', keysFile));
      // A server that asks Redis each time is measured twice: with Redis on the core that serves, and for
      // comparison with Redis on the core of the load, where it costs the server nothing.
      for (const [where, core] of [
        ['', SERVER_CORE],
        [', Redis on the other core', LOAD_CORE],
      ] as const) {
        const redis = await startRedis(join(directory, `redis-${core}`), ['--appendonly', 'no']);
        others.push(redis);
        pin(redis.process.pid, core);
        const path = redis.url.replace('unix://', '');
        servers.push(await startPeer(`Fastify + one Redis GET${where}`, 'fastify-redis.ts', keysFile, path));
      }
      const nginx = findNginxLua();
      if (nginx) servers.push(await startNginx(nginx, directory, keysFile));
      const requests = keys.map(verifyRequest);
      const contenders = servers.map(({ name, port }) => ({ name, port, requests }));
      const loads = await interleave(contenders, rounds, quick ? 2 : 3);
      return {
        title: 'verifyKey from memory',
        about: `32 connections ask for random keys out of ${keys.length.toLocaleString('en')} in memory. Medians of ${rounds} rounds, in turns.`,
        panels: loadPanels(loads),
        rows: throughputRows(loads, {
          'minimal node:http handler': 2,
          'nginx + Lua LRU': 0.9,
          'Fastify + one Redis GET': 4,
        }),
      };
    } finally {
      for (const { stop } of [...servers.reverse(), ...others]) await stop();
      await backend.stop();
    }
  });

export default verifyHit;
