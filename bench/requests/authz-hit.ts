import { type Benchmark, inDirectory } from '../harness.ts';
import { findNginxLua, interleave, type LoadRequest, loadPanels, throughputRows } from '../load/load.ts';
import { type Server, startBackend, startVerifier, warm } from '../servers.ts';
import { startNginx, startPeer } from '../start-peers.ts';

/** Measures a gateway's question answered from memory: no body to read, no JSON. */
const authzHit: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const rounds = quick ? 3 : 5;
    const backend = await startBackend(directory, quick ? 10_000 : 100_000);
    const { keys, keysFile } = backend;
    const servers: Server[] = [];
    try {
      const verifier = {
        ...(await startVerifier({ ...backend, env: { ...backend.env, API_IDS: 'bench' } })),
        name: 'Keyfence verifier, /authz/auth-request',
      };
      servers.push(verifier);
      await warm(verifier, keys);
      servers.push(await startPeer('minimal node:http handler', 'minimal-http.ts', keysFile));
      const nginx = findNginxLua();
      if (nginx) servers.push(await startNginx(nginx, directory, keysFile));
      const requests = keys.map(
        (key): LoadRequest => ({
          method: 'GET',
          path: '/authz/auth-request',
          headers: {
            'X-Original-Method': 'GET',
            'X-Original-URI': '/orders/1',
            Authorization: `Bearer ${key}`,
          },
        }),
      );
      const contenders = servers.map(({ name, port }) => ({ name, port, requests }));
      const loads = await interleave(contenders, rounds, quick ? 2 : 3);
      return {
        title: "Answering a gateway's check from memory",
        about: `GET with the key in the Authorization header, as nginx sends it, over 32 connections. ${keys.length.toLocaleString('en')} keys are in memory. Medians of ${rounds} rounds, in turns.`,
        panels: loadPanels(loads),
        rows: throughputRows(loads, { 'minimal node:http handler': 1.6, 'nginx + Lua LRU': 0.8 }),
      };
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await backend.stop();
    }
  });

export default authzHit;
