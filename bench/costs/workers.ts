import { type Benchmark, inDirectory, median } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { SERVER_CORE, verifyRequest } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const WORKERS = 2;

/** Measures what it costs that several workers share a port: the CPU time of a request, of all processes together. */
const workers: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    const alone = await startVerifier(backend);
    const shared = await startVerifier({ ...backend, env: { ...backend.env, WORKERS: String(WORKERS) } });
    try {
      const requests = backend.keys.map(verifyRequest);
      // Each connection leads to one worker, so the keys are looked up over several.
      for (const verifier of [alone, shared, shared, shared]) await warm(verifier, backend.keys);
      const contenders = [alone, shared].map(({ name, port, pid }) => ({ name, port, pid, requests }));
      const blocks = { warmUp: 40, blocks: quick ? 100 : 400, count: 2000 };
      const [one = [], several = []] = await cpuOfBlocks(contenders, blocks);
      const ratio = median(one.map((us, i) => us / (several[i] ?? Number.NaN)));
      return {
        title: 'Several workers',
        about: `verifyKey from memory, with 10,000 keys, over 32 connections. The processes of either verifier share core ${SERVER_CORE}, the load generator has the other. CPU time of all processes together; medians of ${blocks.blocks} blocks of ${blocks.count} requests, in turns. What the caches of several cores add is not in it.`,
        rows: [
          { name: 'one process: CPU time of a request', value: `${median(one).toFixed(2)} µs` },
          { name: `WORKERS=${WORKERS}: CPU time of a request`, value: `${median(several).toFixed(2)} µs` },
          {
            name: `requests for the same CPU time, WORKERS=${WORKERS} ÷ one process`,
            value: `${ratio.toFixed(3)} ×`,
            target: '≥ 0.9 ×',
            met: ratio >= 0.9,
          },
        ],
      };
    } finally {
      for (const { stop } of [alone, shared]) await stop();
      await backend.stop();
    }
  });

export default workers;
