import { type Benchmark, inDirectory, median } from '../harness.ts';
import { cpuOfBlocks } from '../load/blocks.ts';
import { SERVER_CORE, verifyRequest } from '../load/load.ts';
import { ROOT_KEY, type ServerProcess, startBackend, startVerifier, warm } from '../servers.ts';

const KEYS = 10_000;
const RATIO_MAX = 1.05;
const KINDS = [
  ['POST /v1/keys.verifyKey', '/v1/keys.verifyKey'],
  ['a second process of the same', '/v1/keys.verifyKey'],
  ['POST /v2/keys.verifyKey', '/v2/keys.verifyKey'],
  ['the same with a root key, which is required', '/v2/keys.verifyKey'],
] as const;
const WITH_ROOT_KEY = 3;

/** Measures the cost of verifyKey in version 2 of the interface, from memory. */
const v2: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const size = quick ? { warmUp: 20, blocks: 60, count: 3000 } : { warmUp: 40, blocks: 300, count: 3000 };
    const backend = await startBackend(directory, KEYS);
    const servers: ServerProcess[] = [];
    try {
      for (const kind of KINDS.keys()) {
        const env = kind === WITH_ROOT_KEY ? { VERIFY_ROOT_KEYS: 'required' } : {};
        const server = await startVerifier({ env: { ...backend.env, ...env } });
        servers.push(server);
        await warm(server, backend.keys);
      }
      const times = await cpuOfBlocks(
        servers.map((server, i) => ({
          ...server,
          pids: [server.pid],
          requests: backend.keys.map((key) => {
            const request = { ...verifyRequest(key), path: KINDS[i]?.[1] ?? '' };
            const headers = { ...request.headers, Authorization: `Bearer ${ROOT_KEY}` };
            return i === WITH_ROOT_KEY ? { ...request, headers } : request;
          }),
        })),
        size,
      );
      const first = times[0] ?? [];
      return {
        title: 'verifyKey of v1 and v2',
        about: `CPU time (user and system) of a verifyKey from memory, with ${KEYS.toLocaleString('en')} keys, over 32 connections. Each verifier runs on core ${SERVER_CORE}. The variants take turns, ${size.blocks} blocks of ${size.count.toLocaleString('en')} requests each. Medians of the blocks, and of the ratio within each turn.`,
        rows: KINDS.map(([name], i) => {
          const own = times[i] ?? [];
          const ratio = median(own.map((time, turn) => time / (first[turn] ?? Number.NaN)));
          return {
            name,
            value: `${median(own).toFixed(2)} µs (${ratio.toFixed(3)} ×)`,
            ...(i === 2 ? { target: `≤ ${RATIO_MAX} ×`, met: ratio <= RATIO_MAX } : {}),
          };
        }),
      };
    } finally {
      for (const { stop } of servers.reverse()) await stop();
      await backend.stop();
    }
  });

export default v2;
