import { type Benchmark, inDirectory, median, type Row } from './harness.ts';
import { interleave, type LoadRequest, type Loads, SERVER_CORE, throughputRows } from './load.ts';
import { inParallel, startBackend, startPeer } from './servers.ts';

const KEYS = 1000;
/** What stands before the route, and what the rows say of it; ours comes first. */
const KINDS = {
  keyfence: 'behind keyfence',
  bare: 'bare',
  empty: 'behind a middleware that does nothing',
  digest: 'behind one that only takes SHA-256 of the key',
} as const;

/** Measures what the package's middleware adds to a route that does nothing, answered in the process. */
const middleware: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    // Short ones: the loads of a round are compared, and what else the machine does lasts for seconds.
    const [rounds, seconds] = quick ? [3, 1] : [14, 1];
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
        const nameOf = (kind: keyof typeof KINDS) => `${framework} ${KINDS[kind]}`;
        const start = (kind: keyof typeof KINDS) => {
          const redis = kind === 'keyfence' ? [backend.env['REDIS_URL'] ?? ''] : [];
          return startPeer(nameOf(kind), 'guarded.ts', framework, kind, ...redis);
        };
        const servers = [
          await start('keyfence'),
          await start('bare'),
          await start('empty'),
          await start('digest'),
        ];
        try {
          await inParallel(KEYS, async (i) => {
            const { port } = servers[0] ?? { port: 0 };
            const headers = { authorization: `Bearer ${backend.keys[i]}` };
            const ask = () => fetch(`http://127.0.0.1:${port}/orders/1`, { headers });
            while (!(await ask().then(async (answer) => (await answer.text()) && answer.ok)));
          });
          const contenders = servers.map(({ name, port }) => ({ name, port, requests }));
          const loads = await interleave(contenders, rounds, seconds);
          rows.push(...throughputRows(loads, { [nameOf('bare')]: 0.95, [nameOf('empty')]: 0.95 }));
          rows.push(costsRow(framework, (kind) => loads.get(nameOf(kind))));
        } finally {
          for (const { stop } of servers) await stop();
        }
      }
      return {
        title: 'Middleware in the process of the application',
        about: `GET with one of ${KEYS.toLocaleString('en')} keys in memory, 32 connections, to a route that answers a constant; each application alone on core ${SERVER_CORE}, so that its throughput is the inverse of its CPU per request. Interleaved, medians of ${rounds} rounds of ${seconds} s. Beside the bare route stands what no guard can do without: the framework's own cost of a middleware, and SHA-256 of the key.`,
        rows,
      };
    } finally {
      await backend.stop();
    }
  });

/** Says where the time of a request goes: medians of the differences within each round. */
function costsRow(framework: string, loadsOf: (kind: keyof typeof KINDS) => Loads | undefined): Row {
  const times = (kind: keyof typeof KINDS) =>
    (loadsOf(kind)?.each ?? []).map((requestsPerSecond) => 1e6 / requestsPerSecond);
  const more = (kind: keyof typeof KINDS, than: keyof typeof KINDS) => {
    const others = times(than);
    return median(times(kind).map((time, round) => time - (others[round] ?? Number.NaN))).toFixed(1);
  };
  return {
    name: `${framework}, µs of a request`,
    value: `${median(times('bare')).toFixed(1)} bare, ${more('empty', 'bare')} for any middleware, ${more('digest', 'empty')} for SHA-256, ${more('keyfence', 'digest')} for all else`,
  };
}

export default middleware;
