import { type Benchmark, inDirectory, median } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { SERVER_CORE, verifyRequest } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

/** Measures what it costs that processes share a port: the CPU time of a request, of all processes together. */
const sharedPort: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    const alone = await startVerifier(backend);
    const sharing = { ...backend.env, REUSE_PORT: 'true' };
    const first = await startVerifier({ env: sharing });
    const second = await startVerifier({ env: { ...sharing, PORT: String(first.port) } });
    try {
      const requests = backend.keys.map(verifyRequest);
      // Each connection leads to one process, so the keys are looked up over several.
      for (const verifier of [alone, first, first, first]) await warm(verifier, backend.keys);
      const contenders = [
        { ...alone, pids: [alone.pid], requests },
        { ...first, pids: [first.pid, second.pid], requests },
      ];
      const blocks = { warmUp: 40, blocks: quick ? 100 : 400, count: 2000 };
      const [one = [], several = []] = await cpuOfBlocks(contenders, blocks);
      const ratio = median(one.map((us, i) => us / (several[i] ?? Number.NaN)));
      return {
        title: 'Processes on one port',
        about: `verifyKey from memory, with 10,000 keys, over 32 connections, to one process or to two with REUSE_PORT. All share core ${SERVER_CORE}, the load generator has the other. CPU time of all processes together; medians of ${blocks.blocks} blocks of ${blocks.count} requests, in turns. What the caches of several cores add is not in it.`,
        rows: [
          { name: 'one process: CPU time of a request', value: `${median(one).toFixed(2)} µs` },
          { name: 'two processes: CPU time of a request', value: `${median(several).toFixed(2)} µs` },
          {
            name: 'requests for the same CPU time, two processes ÷ one',
            value: `${ratio.toFixed(3)} ×`,
            target: '≥ 0.9 ×',
            met: ratio >= 0.9,
          },
        ],
      };
    } finally {
      for (const { stop } of [alone, first, second]) await stop();
      await backend.stop();
    }
  });

export default sharedPort;
