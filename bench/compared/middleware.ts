import { type Benchmark, inDirectory, median, percentile, type Row } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { type LoadRequest, SERVER_CORE } from '../load/load.ts';
import { type ServerProcess, startBackend } from '../servers.ts';
import { startPeer } from '../start-peers.ts';

const KEYS = 1000;
/** The variants of the route and their names in the rows; all are compared with the first. */
const KINDS = {
  bare: 'a bare route',
  twin: 'a second process of the bare route',
  empty: 'a middleware that does nothing',
  digest: 'a middleware that only computes SHA-256 of the key',
  idle: 'a bare route with an idle verifier in the process',
  keyfence: 'the middleware of Keyfence',
} as const;
type Kind = keyof typeof KINDS;
const KIND_NAMES = Object.keys(KINDS) as Kind[];

/** The CPU time, in µs, that a guard may take beyond SHA-256 of the key. */
const OVER_DIGEST_MAX: Readonly<Record<string, number>> = { Fastify: 2.5, Express: 5, Hono: 4 };

/** Measures how much the package's middleware adds to a route that does nothing. */
const middleware: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const size = quick ? { warmUp: 20, blocks: 60, count: 1500 } : { warmUp: 40, blocks: 400, count: 1500 };
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
        const servers: ServerProcess[] = [];
        try {
          for (const kind of KIND_NAMES) {
            const redis = kind === 'keyfence' || kind === 'idle' ? [backend.env['REDIS_URL'] ?? ''] : [];
            servers.push(await startPeer(kind, 'guarded.ts', framework, kind, ...redis));
          }
          const times = await cpuOfBlocks(
            servers.map((server) => ({ ...server, pids: [server.pid], requests })),
            size,
          );
          rows.push(...rowsOf(framework, new Map(KIND_NAMES.map((kind, i) => [kind, times[i] ?? []]))));
        } finally {
          for (const { stop } of servers) await stop();
        }
      }
      return {
        title: "Middleware in the application's process",
        about: `CPU time (user and system) of a GET with one of ${KEYS.toLocaleString('en')} keys in memory, over 32 connections, to a route that answers a constant. Each application runs on core ${SERVER_CORE}. The variants take turns, ${size.blocks} blocks of ${size.count.toLocaleString('en')} requests each. Shown are the median and the quartiles of the differences from the bare route within a turn. The difference of a second process of the bare route is the noise of the measurement. A middleware that does nothing shows the framework's own cost. SHA-256 of the key is the minimum for any guard that keeps no plain keys in memory.`,
        rows,
      };
    } finally {
      await backend.stop();
    }
  });

function rowsOf(framework: string, times: ReadonlyMap<Kind, readonly number[]>): Row[] {
  const bare = times.get('bare') ?? [];
  const whole = median(bare);
  return KIND_NAMES.map((kind): Row => {
    const name = `${framework}, ${KINDS[kind]}`;
    if (kind === 'bare') return { name, value: `${whole.toFixed(1)} µs` };
    const more = (times.get(kind) ?? []).map((time, turn) => time - (bare[turn] ?? Number.NaN));
    const [low, high] = [percentile(more, 0.25), percentile(more, 0.75)];
    const share = median(more) / whole;
    const value = `${signed(median(more))} µs (quartiles ${signed(low)} and ${signed(high)}), ${(100 * share).toFixed(0)} %`;
    if (kind !== 'keyfence') return { name, value };
    const digest = times.get('digest') ?? [];
    const over = median((times.get(kind) ?? []).map((time, turn) => time - (digest[turn] ?? Number.NaN)));
    const most = OVER_DIGEST_MAX[framework] ?? Number.NaN;
    return {
      name,
      value: `${value}; ${signed(over)} µs over SHA-256`,
      target: `≤ ${most} µs over SHA-256`,
      met: over <= most,
    };
  });
}

const signed = (us: number) => `${us < 0 ? '' : '+'}${us.toFixed(1)}`;

export default middleware;
