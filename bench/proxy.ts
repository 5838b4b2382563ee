import { readFileSync } from 'node:fs';
import { isHere, startNginx } from './gateways.ts';
import { type Benchmark, inDirectory, median, type Row } from './harness.ts';
import { freePort, gatewayLoad, hasWrk, LOAD_CORE, type Load, peer, SERVER_CORE } from './load.ts';
import { type Server, startBackend, startPeer, startVerifier, warm } from './servers.ts';

const KEYS = 1000;
const MINE = 'Keyfence, proxy mode';
const MINIMAL = 'minimal node:http + undici proxy';

/** Proxy mode against proxies that ask nobody. */
const proxy: Benchmark = async ({ quick }) => {
  const title = 'In front of an API';
  if (!hasWrk || !isHere('nginx')) return { title, about: 'Not measured: needs wrk and nginx.', rows: [] };
  return inDirectory(async (directory) => {
    const body = '{"order":1}';
    const site = `server { listen \${LISTEN}; return 200 '${body}'; }`;
    const api = await startNginx('API', directory, site, {}, LOAD_CORE);
    const upstream = `http://127.0.0.1:${api.port}`;
    const backend = await startBackend(directory, KEYS);
    const port = freePort();
    const env = { ...backend.env, UPSTREAM_URL: upstream, PROXY_PORT: String(port) };
    const verifier = await startVerifier({ ...backend, env });
    await warm(verifier, backend.keys);
    const nginx = readFileSync(peer('nginx-alone.conf.template'), 'utf8');
    const servers: Server[] = [
      { name: MINE, port, stop: verifier.stop },
      await startPeer(MINIMAL, 'minimal-proxy.ts', upstream),
      await startPeer('minimal node:http proxy', 'minimal-http-proxy.ts', upstream),
      await startNginx('nginx proxy_pass', directory, nginx, { UPSTREAM: `127.0.0.1:${api.port}` }),
      { name: 'the API itself', port: api.port, stop: api.stop },
    ];
    const loads = new Map(servers.map(({ name }) => [name, { one: [] as Load[], many: [] as Load[] }]));
    try {
      for (let round = 0; round < rounds(quick); round++) {
        for (const server of servers) {
          const run = (connections: number) =>
            gatewayLoad(server.port, backend.keysFile, connections, quick ? 1 : 3);
          const [one, many] = [await run(1), await run(32)];
          if (one.errors + many.errors > 0) throw new Error(`${server.name}: errors`);
          loads.get(server.name)?.one.push(one);
          loads.get(server.name)?.many.push(many);
        }
      }
    } finally {
      for (const { stop } of servers) await stop();
      await backend.stop();
    }
    const about = `GET with one of ${KEYS.toLocaleString('en')} keys in memory, passed on to an nginx that says \`${body}\`. Each proxy on core ${SERVER_CORE}; the load and the API on core ${LOAD_CORE}. Latency over 1 connection, throughput over 32; interleaved; medians of ${rounds(quick)}.`;
    return { title, about, rows: rowsOf(loads) };
  });
};

const rounds = (quick: boolean) => (quick ? 3 : 7);

function rowsOf(loads: ReadonlyMap<string, { one: Load[]; many: Load[] }>): Row[] {
  const rate = (name: string) =>
    median((loads.get(name)?.many ?? []).map(({ requestsPerSecond }) => requestsPerSecond));
  const rows: Row[] = [...loads].map(([name, { one }]) => {
    const [p50, p99] = [median(one.map((load) => load.p50)), median(one.map((load) => load.p99))];
    const latency = `p50 ${p50.toFixed(3)} ms, p99 ${p99.toFixed(3)} ms`;
    return { name, value: `${Math.round(rate(name)).toLocaleString('en')} requests/s; ${latency}` };
  });
  for (const other of [...loads.keys()].filter((name) => name !== MINE && name !== 'the API itself')) {
    const ratio = rate(MINE) / rate(other);
    const target = other === MINIMAL ? { target: '≥ 0.9', met: ratio >= 0.9 } : {};
    rows.push({ name: `Keyfence ÷ ${other}`, value: `${ratio.toFixed(2)} ×`, ...target });
  }
  return rows;
}

export default proxy;
