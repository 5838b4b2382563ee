import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type Benchmark, inDirectory, median, pinned, type Row } from '../harness.ts';
import { freePort, fullLoad, type Load, type LoadRequest, peer, SERVER_CORE } from '../load/load.ts';
import { type Server, startBackend, startVerifier, warm } from '../servers.ts';

const SHIPPED = join(import.meta.dirname, '../../deploy/gateways');
const KEYS = 1000;
const ASKING = {
  nginx: 'nginx + auth_request',
  unix: 'nginx + auth_request, Unix socket',
  caddy: 'Caddy + forward_auth',
};

/**
 * Suffix of a name: the same configuration asks an nginx that returns constant bytes, those of the verifier's
 * answer.
 */
const FLOOR = ', floor';
/** The share of its floor's throughput that a gateway with the verifier must reach. */
const SHARE_MIN = 0.9;

/** Measures how much asking the verifier adds to a request through a gateway. */
const gateways: Benchmark = async ({ quick }) => {
  const title = 'Behind a gateway';
  if (!isHere('nginx')) return { title, about: 'Not measured: needs nginx.', rows: [] };
  return inDirectory(async (directory) => {
    const backend = await startBackend(directory, KEYS);
    const socket = join(directory, 'verifier.sock');
    const verifier = await startVerifier({ ...backend, env: { ...backend.env, LISTEN_UNIX: socket } });
    await warm(verifier, backend.keys);
    const api = await startNginx('API', directory, `server { listen \${LISTEN}; return 200 "{}"; }`, {});
    const around = { UPSTREAM: at(api), VERIFIER: at(verifier), API_ID: 'bench' };
    const floor = await startFloor(directory, verifier, backend.keys[0] ?? '');
    const floorAround = { ...around, VERIFIER: at(floor) };
    const shipped = readFileSync(join(SHIPPED, 'nginx', 'keyfence.conf.template'), 'utf8');
    const alone = readFileSync(peer('nginx-alone.conf.template'), 'utf8');
    const servers = [
      await startNginx('nginx', directory, alone, around),
      await startNginx(ASKING.nginx, directory, shipped, around),
      await startNginx(ASKING.nginx + FLOOR, directory, shipped, floorAround),
    ];
    if (existsSync(socket)) {
      const askOver = (file: string) => ({ ...around, VERIFIER: `unix:${file}` });
      servers.push(
        await startNginx(ASKING.unix, directory, shipped, askOver(socket)),
        await startNginx(ASKING.unix + FLOOR, directory, shipped, askOver(floor.socket)),
      );
    }
    if (isHere('caddy')) {
      const file = join(SHIPPED, 'caddy', 'Caddyfile');
      servers.push(
        await startCaddy('Caddy', directory, peer('caddy-alone.Caddyfile'), around),
        await startCaddy(ASKING.caddy, directory, file, around),
        await startCaddy(ASKING.caddy + FLOOR, directory, file, floorAround),
      );
    }
    const requests = backend.keys.map(
      (key): LoadRequest => ({
        method: 'GET',
        path: '/orders/1',
        headers: { Authorization: `Bearer ${key}` },
      }),
    );
    const measured = new Map(servers.map(({ name }) => [name, { one: [] as Load[], many: [] as Load[] }]));
    try {
      for (let round = 0; round < rounds(quick); round++) {
        for (const { name, port } of servers) {
          const run = (connections: number) => fullLoad(port, requests, quick ? 1 : 2, connections);
          const [one, many] = [await run(1), await run(32)];
          if (one.errors + many.errors > 0) throw new Error(`${name}: errors`);
          measured.get(name)?.one.push(one);
          measured.get(name)?.many.push(many);
        }
      }
    } finally {
      for (const { stop } of [...servers, api, floor, verifier]) await stop();
      await backend.stop();
    }
    return { title, about: about(quick), rows: rowsOf(measured) };
  });
};

/**
 * Starts an nginx that returns constant bytes (the verifier's answer for a good key) over TCP and a Unix
 * socket.
 */
async function startFloor(directory: string, verifier: Server, key: string) {
  const answer = await fetch(`http://${at(verifier)}/authz/api/bench/forward-auth`, {
    headers: { Authorization: `Bearer ${key}` },
  });
  if (answer.status !== 200) throw new Error(`a good key is answered with ${answer.status}`);
  const socket = join(directory, 'floor.sock');
  const headers = [...answer.headers].filter(([name]) => name.startsWith('x-'));
  const lines = headers.map(([name, value]) => `add_header ${name} "${value}";`).join(' ');
  const site = `server { listen \${LISTEN}; listen unix:${socket}; ${lines} return 200; }`;
  return { ...(await startNginx('floor', directory, site, {})), socket };
}

const rounds = (quick: boolean) => (quick ? 3 : 5);

const about = (quick: boolean) =>
  `GET with one of ${KEYS.toLocaleString('en')} keys in memory. Gateway, verifier and API (an nginx that answers \`{}\`) share core ${SERVER_CORE}. A "floor" has an nginx in the verifier's place that always gives the verifier's answer for a good key. Latency over 1 connection, throughput over 32. Medians of ${rounds(quick)} rounds, in turns; p99 of the lowest round. In brackets: the difference from the bare gateway in ms, and the ratio to its throughput.`;

function rowsOf(measured: ReadonlyMap<string, { one: Load[]; many: Load[] }>): Row[] {
  const numbers = [...measured].map(([name, { one, many }]) => ({
    name,
    p50: median(one.map(({ p50 }) => p50)),
    p99: Math.min(...one.map(({ p99 }) => p99)),
    rate: median(many.map(({ requestsPerSecond }) => requestsPerSecond)),
  }));
  return numbers.map(({ name, p50, p99, rate }) => {
    const [gateway] = name.split(' + ');
    const base = numbers.find((other) => other.name === gateway && name !== gateway);
    const more = (value: number, other = value) =>
      base ? ` (${value < other ? '' : '+'}${(value - other).toFixed(3)})` : '';
    const latency = `p50 ${p50.toFixed(3)} ms${more(p50, base?.p50)}, p99 ${p99.toFixed(3)} ms${more(p99, base?.p99)}`;
    const throughput = `${Math.round(rate).toLocaleString('en')} requests/s`;
    const shareOfBase = base ? [`${(rate / base.rate).toFixed(2)} × bare ${gateway}`] : [];
    const valueWith = (...shares: string[]) =>
      `${latency}, ${throughput}${shares.length > 0 ? ` (${shares.join(', ')})` : ''}`;
    const rounds = measured.get(name)?.many ?? [];
    const floors = measured.get(name + FLOOR)?.many;
    if (!floors) return { name, value: valueWith(...shareOfBase) };
    const shares = rounds.map((each, i) => each.requestsPerSecond / (floors[i]?.requestsPerSecond ?? 0));
    return {
      name,
      value: valueWith(...shareOfBase, `${median(shares).toFixed(2)} × its floor`),
      target: `≥ ${SHARE_MIN} × its floor`,
      met: median(shares) >= SHARE_MIN,
    };
  });
}

const at = ({ port }: Server) => `127.0.0.1:${port}`;

/** Tells whether a command is installed. */
export function isHere(command: string): boolean {
  return spawnSync(command, ['--version'], { stdio: 'ignore' }).error === undefined;
}

/** Starts nginx with one worker and the template's site. */
export function startNginx(
  name: string,
  directory: string,
  template: string,
  values: Record<string, string>,
  core = SERVER_CORE,
): Promise<Server & { readonly pid: number }> {
  const port = freePort();
  const all: Record<string, string> = { ...values, LISTEN: `127.0.0.1:${port}` };
  const home = join(directory, `nginx-${port}`);
  const site = template.replace(/\$\{(\w+)\}/g, (whole, variable: string) => all[variable] ?? whole);
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (kind) => `${kind}_temp_path ${home}-${kind};`,
  );
  writeFileSync(
    `${home}.conf`,
    `${process.getuid?.() === 0 ? 'user root;' : ''} daemon off; worker_processes 1; pid ${home}.pid; error_log stderr crit;
     events { worker_connections 1024; }
     http { access_log off; keepalive_requests 100000000; ${paths.join(' ')} ${site} }`,
  );
  return started(name, port, pinned(core, ['nginx', '-p', directory, '-c', `${home}.conf`]), {});
}

/** Starts Caddy with one thread, because nginx has one worker. */
function startCaddy(
  name: string,
  home: string,
  file: string,
  values: Record<string, string>,
): Promise<Server & { readonly pid: number }> {
  const port = freePort();
  const env = {
    ...values,
    LISTEN: '127.0.0.1',
    PORT: String(port),
    GOMAXPROCS: '1',
    HOME: home,
    XDG_DATA_HOME: home,
  };
  const command = ['caddy', 'run', '--config', file, '--adapter', 'caddyfile'];
  return started(name, port, pinned(SERVER_CORE, command), env);
}

async function started(
  name: string,
  port: number,
  command: readonly string[],
  env: Record<string, string>,
): Promise<Server & { readonly pid: number }> {
  const [file = '', ...args] = command;
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: 'ignore' });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  while (!(await isOpen(port))) {
    if (child.exitCode !== null) throw new Error(`${name} did not start`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    name,
    port,
    pid: child.pid ?? 0,
    async stop() {
      child.kill('SIGTERM');
      await exited;
    },
  };
}

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

export default gateways;
