import { type Benchmark, inDirectory, median, type Row } from '../harness.ts';
import { type OpenLoop, openLoop } from '../load/load.ts';
import { type Server, startBackend, startVerifier, warm } from '../servers.ts';
import { startPeer } from '../start-peers.ts';

const RATE = 5000;
const ROUNDS = 5;

/**
 * Measures a caller's latency at a rate far below the maximum, beside the latency of the generator itself.
 */
const fixedRate: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    const verifier = await startVerifier(backend);
    await warm(verifier, backend.keys);
    const floor = await startPeer('the floor: a socket that answers constant bytes', 'constant-bytes.ts');
    const servers: Server[] = [verifier, floor];
    const loads = new Map<string, OpenLoop[]>(servers.map(({ name }) => [name, []]));
    try {
      for (let round = 0; round < (quick ? 1 : ROUNDS); round++) {
        for (const { name, port } of servers)
          loads
            .get(name)
            ?.push(await openLoop(port, quick ? 3 : 5, { keysFile: backend.keysFile, rate: RATE }));
      }
    } finally {
      for (const { stop } of servers) await stop();
      await backend.stop();
    }
    const rows: Row[] = [...loads].map(([name, all]) => {
      const p99 = median(all.map((load) => load.p99));
      return {
        name: `${name}: p50 / p99`,
        value: `${median(all.map((load) => load.p50)).toFixed(2)} / ${p99.toFixed(2)} ms`,
        ...(name === verifier.name ? { target: 'p99 ≤ 1 ms', met: p99 <= 1 } : {}),
      };
    });
    return {
      title: `Latency at ${RATE.toLocaleString('en')} requests/s`,
      about:
        '10,000 keys in memory, 32 connections. The latency of a request counts from the time at which it was scheduled. The server and the load generator have one core each. Medians of all rounds, in turns.',
      rows,
    };
  });

export default fixedRate;
