import { type Benchmark, inDirectory, median, percentile, type Row } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { type LoadRequest, SERVER_CORE } from '../load/load.ts';
import { type ServerProcess, startBackend } from '../servers.ts';
import { startPeer } from '../start-peers.ts';

const KEYS = 1000;
/** The variants of the route and their names in the rows; all are compared with the first. */
const KINDS = {
  bare: 'a bare route',
  twin: 'a second process of the same',
  empty: 'a middleware that does nothing',
  digest: 'one that only takes SHA-256 of the key',
  idle: 'a verifier beside a bare route',
  keyfence: 'keyfence',
} as const;
type Kind = keyof typeof KINDS;
const KIND_NAMES = Object.keys(KINDS) as Kind[];

/** The share of a bare route's time that the guard may add. */
const SHARE_MAX = 0.05;

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
            servers.map((server) => ({ ...server, requests })),
            size,
          );
          rows.push(...rowsOf(framework, new Map(KIND_NAMES.map((kind, i) => [kind, times[i] ?? []]))));
        } finally {
          for (const { stop } of servers) await stop();
        }
      }
      return {
        title: 'Middleware in the process of the application',
        about: `Processor time, user and system, of a GET with one of ${KEYS.toLocaleString('en')} keys in memory over 32 connections to a route that answers a constant; each application on core ${SERVER_CORE}. In turns, ${size.blocks} blocks of ${size.count.toLocaleString('en')} requests each: the median of the differences within each turn, and their quartiles. What a second process of the bare route seems to add is what the measurement cannot tell apart. A middleware that does nothing is the framework's own cost, and SHA-256 of the key is what no guard can do without that keeps no keys in memory.`,
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
    return {
      name,
      value: `${shown(median(more))} µs more (quartiles ${shown(low)} and ${shown(high)}), ${(100 * share).toFixed(0)} %`,
      ...(kind === 'keyfence' ? { target: `≤ ${100 * SHARE_MAX} %`, met: share <= SHARE_MAX } : {}),
    };
  });
}

const shown = (us: number) => us.toFixed(1);

export default middleware;
