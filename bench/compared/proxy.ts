import { readFileSync } from 'node:fs';
import { type Benchmark, inDirectory, median, type Row } from '../harness.ts';
import {
  freePort,
  fullLoad,
  interleave,
  LOAD_CORE,
  type LoadRequest,
  type Loads,
  loadPanels,
  peer,
  SERVER_CORE,
  throughputRows,
} from '../load/load.ts';
import { type Server, startBackend, startVerifier, warm } from '../servers.ts';
import { startPeer } from '../start-peers.ts';
import { isHere, startNginx } from './gateways.ts';

const KEYS = 1000;
const OURS = 'Keyfence, proxy mode';
const NGINX = 'nginx proxy_pass';
/** The maximum ratio of our CPU time per request to nginx's, including the verification. */
const CPU_MAX = 2.2;
const MINIMAL = 'minimal node:http + undici proxy';
/** What proxy mode stands on, alone. */
const PARTS = {
  'Node sockets alone, bytes passed on unread': 'unread-bytes-proxy.ts',
  'Node sockets and undici alone': 'undici-dispatch-proxy.ts',
};

/** Measures proxy mode against proxies that verify nothing. */
const proxy: Benchmark = async ({ quick }) => {
  const title = 'In front of an API';
  if (!isHere('nginx')) return { title, about: 'Not measured: needs nginx.', rows: [] };
  const rounds = quick ? 3 : 11;
  const seconds = quick ? 1 : 2;
  return inDirectory(async (directory) => {
    const site = `server { listen \${LISTEN}; return 200 '{"order":1}'; }`;
    const api = await startNginx('API', directory, site, {}, LOAD_CORE);
    const backend = await startBackend(directory, KEYS);
    const servers: (Server & { readonly pid: number })[] = [];
    try {
      const UPSTREAM_URL = `http://127.0.0.1:${api.port}`;
      const port = freePort();
      const env = { ...backend.env, UPSTREAM_URL, PROXY_API_ID: 'bench', PROXY_PORT: String(port) };
      const verifier = await startVerifier({ ...backend, env });
      servers.push({ name: OURS, port, pid: verifier.pid, stop: verifier.stop });
      await warm(verifier, backend.keys);
      servers.push(await startPeer(MINIMAL, 'minimal-proxy.ts', UPSTREAM_URL));
      servers.push(await startPeer(`${MINIMAL}, tuned`, 'minimal-proxy.ts', UPSTREAM_URL, 'tuned'));
      servers.push(await startPeer('minimal node:http proxy', 'minimal-http-proxy.ts', UPSTREAM_URL));
      for (const [name, file] of Object.entries(PARTS))
        servers.push(await startPeer(name, file, UPSTREAM_URL));
      const nginx = readFileSync(peer('nginx-alone.conf.template'), 'utf8');
      const around = { UPSTREAM: `127.0.0.1:${api.port}` };
      servers.push(await startNginx(NGINX, directory, nginx, around));
      const requests = backend.keys.map(
        (key): LoadRequest => ({
          method: 'GET',
          path: '/orders/1',
          headers: { Authorization: `Bearer ${key}` },
        }),
      );
      const contenders = servers.map(({ name, port, pid }) => ({ name, port, pid, requests }));
      const loads = await interleave(contenders, rounds, seconds);
      const alone = await latencies(
        [...servers.filter(({ name }) => name === OURS || name === NGINX), api],
        requests,
        rounds,
        seconds,
      );
      const about = `GET with one of ${KEYS.toLocaleString('en')} keys in memory, passed on to an nginx as the API. Each proxy runs on core ${SERVER_CORE}; the load generator and the API run on core ${LOAD_CORE}. First 32 connections, then one. Medians of ${rounds} rounds, in turns. Only Keyfence checks the key; the other proxies check nothing. The two with "alone" show what Keyfence stands on: the first does not read what it passes on, the second takes each read for one request and cuts it into lines.`;
      const targets = { [MINIMAL]: 0.9, [`${MINIMAL}, tuned`]: 0.9 };
      const rows = [...throughputRows(loads, targets), ...cpuRow(loads), ...alone];
      return { title, about, panels: loadPanels(loads), rows };
    } finally {
      for (const { stop } of [...servers.reverse(), api]) await stop();
      await backend.stop();
    }
  });
};

/** Returns the row of our CPU time per request relative to nginx. */
function cpuRow(loads: ReadonlyMap<string, Loads>): Row[] {
  const [ours, nginx] = [loads.get(OURS)?.cpuUs, loads.get(NGINX)?.cpuUs];
  if (ours === undefined || nginx === undefined) return [];
  const name = `${OURS}: CPU time per request ÷ that of ${NGINX}`;
  const ratio = ours / nginx;
  const target = `≤ ${CPU_MAX.toFixed(2)}`;
  return [{ name, value: `${ratio.toFixed(2)} ×`, target, met: ratio <= CPU_MAX }];
}

/** Measures the latency of requests that are sent one after the other. */
async function latencies(
  servers: readonly Server[],
  requests: readonly LoadRequest[],
  rounds: number,
  seconds: number,
): Promise<Row[]> {
  const seen = servers.map(({ name }) => ({ name, p50: [] as number[], p99: [] as number[] }));
  for (let round = 0; round < rounds; round++) {
    for (const [i, { port }] of servers.entries()) {
      const { p50, p99 } = await fullLoad(port, requests, seconds, 1);
      seen[i]?.p50.push(p50);
      seen[i]?.p99.push(p99);
    }
  }
  return seen.map(({ name, p50, p99 }) => ({
    name: `${name}, one connection`,
    value: `p50 ${median(p50).toFixed(3)} ms, p99 ${median(p99).toFixed(3)} ms`,
  }));
}

export default proxy;
