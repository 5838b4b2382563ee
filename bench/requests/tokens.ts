import { type Benchmark, inDirectory, median } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { type LoadRequest, SERVER_CORE } from '../load/load.ts';
import { type ServerProcess, startBackend, startVerifier, warm } from '../servers.ts';

const KEYS = 1000;
const RATIO_MAX = 1.2;
/** With the default lease, a key's token is signed about every four seconds. */
const ENV = { LEASE_MS: '10000', TOKEN_KEY: 'the secret of the tokens of a benchmark' };
const KINDS = ['GET /authz/forward-auth', 'a second process of the same', 'with a token'];
const WITH_TOKEN = 2;

/** Measures what a token costs in a gateway's question answered from memory. */
const tokens: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const size = quick ? { warmUp: 20, blocks: 60, count: 3000 } : { warmUp: 40, blocks: 300, count: 3000 };
    const backend = await startBackend(directory, KEYS, undefined, ENV);
    const servers: ServerProcess[] = [];
    try {
      await backend.call('apis.updateApi', { apiId: 'bench', tokens: true });
      for (const kind of KINDS.keys()) {
        const env = { ...backend.env, AUTHZ_TOKEN: String(kind === WITH_TOKEN) };
        const server = await startVerifier({ env });
        servers.push(server);
        await warm(server, backend.keys);
      }
      const requests = backend.keys.map(
        (key): LoadRequest => ({
          method: 'GET',
          path: '/authz/forward-auth',
          headers: { 'X-Forwarded-Method': 'GET', 'X-Forwarded-Uri': '/a', Authorization: `Bearer ${key}` },
        }),
      );
      const times = await cpuOfBlocks(
        servers.map((server) => ({ ...server, pids: [server.pid], requests })),
        size,
      );
      const first = times[0] ?? [];
      return {
        title: 'A token for the API behind',
        about: `CPU time (user and system) of a gateway's question about one of ${KEYS.toLocaleString('en')} keys in memory, over 32 connections. Each verifier runs on core ${SERVER_CORE}. The variants take turns, ${size.blocks} blocks of ${size.count.toLocaleString('en')} requests each. Medians of the blocks, and of the ratio within each turn.`,
        rows: KINDS.map((name, i) => {
          const own = times[i] ?? [];
          const ratio = median(own.map((time, turn) => time / (first[turn] ?? Number.NaN)));
          return {
            name,
            value: `${median(own).toFixed(2)} µs (${ratio.toFixed(3)} ×)`,
            ...(i === WITH_TOKEN ? { target: `≤ ${RATIO_MAX} ×`, met: ratio <= RATIO_MAX } : {}),
          };
        }),
      };
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await backend.stop();
    }
  });

export default tokens;
