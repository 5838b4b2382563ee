import { type Benchmark, inDirectory, type Row } from './harness.ts';
import { interleave, type LoadRequest, SERVER_CORE, throughputRows } from './load.ts';
import { inParallel, startBackend, startPeer } from './servers.ts';

const KEYS = 1000;

/** Measures what the package's middleware adds to a route that does nothing, answered in the process. */
const middleware: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    // Short ones: the two loads of a round are compared, and what else the machine does lasts for seconds.
    const [rounds, seconds] = quick ? [3, 1] : [18, 2];
    const backend = await startBackend(directory, KEYS);
    const rows: Row[] = [];
    try {
      const requests = backend.keys.map(
        (key): LoadRequest => ({
          method: 'GET',
          path: '/orders/1',
          headers: { Authorization: `Bearer ${key}` },
        }),
      );
      for (const framework of ['Fastify', 'Express', 'Hono']) {
        const bare = `${framework} bare`;
        const servers = [
          await startPeer(
            `${framework} behind keyfence`,
            'guarded.ts',
            framework,
            backend.env['REDIS_URL'] ?? '',
          ),
          await startPeer(bare, 'guarded.ts', framework),
        ];
        try {
          await inParallel(KEYS, async (i) => {
            const { port } = servers[0] ?? { port: 0 };
            const headers = { authorization: `Bearer ${backend.keys[i]}` };
            const ask = () => fetch(`http://127.0.0.1:${port}/orders/1`, { headers });
            while (!(await ask().then(async (answer) => (await answer.text()) && answer.ok)));
          });
          const contenders = servers.map(({ name, port }) => ({ name, port, requests }));
          rows.push(...throughputRows(await interleave(contenders, rounds, seconds), { [bare]: 0.95 }));
        } finally {
          for (const { stop } of servers) await stop();
        }
      }
      return {
        title: 'Middleware in the process of the application',
        about: `GET with one of ${KEYS.toLocaleString('en')} keys in memory, 32 connections, to a route that answers a constant; each application alone on core ${SERVER_CORE}, so that its throughput is the inverse of its CPU per request. Interleaved, medians of ${rounds} rounds of ${seconds} s.`,
        rows,
      };
    } finally {
      await backend.stop();
    }
  });

export default middleware;
