import { clients, ENDPOINTS, type Endpoint, run } from '../clients/programs.ts';
import { type Benchmark, inDirectory, type Row } from '../harness.ts';
import { SERVER_CORE } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const KEYS = 100;
const STARTS = 3;
/** Minimum and maximum number of requests of one run. */
const [COUNT_MIN, COUNT_MAX] = [100, 20_000];
/** The share of a client's requests that the fast lane must answer. */
const SHARE_MIN = 0.99;

/** Measures the share of real clients' requests that the fast lane answers, and the speed of each client. */
const clientFamilies: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const seconds = quick ? 1 : 5;
    const backend = await startBackend(directory, KEYS);
    const verifier = await startVerifier(backend);
    const rows: Row[] = [];
    try {
      await warm(verifier, backend.keys);
      const [key = ''] = backend.keys;
      const base = `http://127.0.0.1:${verifier.port}`;
      for (const client of clients) {
        const missing = client.missing();
        if (missing !== undefined) {
          console.error(`without ${client.name}, for which ${missing} is not here`);
          continue;
        }
        const measure = async (endpoint: Endpoint) => {
          const secondsFor = async (requests: number) => {
            const startMs = performance.now();
            await run(client, { endpoint, base, key, count: requests, directory });
            return (performance.now() - startMs) / 1000;
          };
          // Subtract the time for starting or compiling a program, which is not the verifier's.
          const starts = [];
          for (let i = 0; i < STARTS; i++) starts.push(await secondsFor(1));
          const startS = Math.min(...starts);
          const eachS = ((await secondsFor(COUNT_MIN)) - startS) / COUNT_MIN;
          const count = Math.round(Math.min(COUNT_MAX, Math.max(COUNT_MIN, seconds / Math.max(eachS, 1e-6))));
          const before = await answered(verifier.adminAddress);
          const takenS = (await secondsFor(count)) - startS;
          const share = ((await answered(verifier.adminAddress)) - before) / count;
          return { share, rate: count / takenS };
        };
        const each = [];
        for (const endpoint of ENDPOINTS) each.push({ endpoint, ...(await measure(endpoint)) });
        rows.push({
          name: client.name,
          value: each
            .map(({ endpoint, share, rate }) => {
              const part = (100 * share).toFixed(1);
              return `${endpoint === 'authz' ? '/authz/' : endpoint} ${part} %, ${Math.round(rate).toLocaleString('en')} requests/s`;
            })
            .join('; '),
          target: `≥ ${100 * SHARE_MIN} % each`,
          met: each.every(({ share }) => share >= SHARE_MIN),
        });
      }
    } finally {
      await verifier.stop();
      await backend.stop();
    }
    return {
      title: 'Clients of other languages',
      about: `One client sends requests one after the other for about ${seconds} s. Shown are the share that the fast lane answered, and the rate without the start of the client. The verifier runs on core ${SERVER_CORE}. Some clients (Java's HttpClient, wget) write head and body separately, and the operating system holds the second write back until the first is acknowledged. Such a request takes 40 ms or more with any server.`,
      rows,
    };
  });

/** Number of requests that the fast lane has answered. */
async function answered(adminAddress: string): Promise<number> {
  const text = await (await fetch(`${adminAddress}/metrics`)).text();
  return Number(/^keyfence_fast_lane_requests_total (\S+)$/m.exec(text)?.[1]);
}

export default clientFamilies;
