import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import autocannon from 'autocannon';
import { inDirectory, median, type Panel, pinned, type Row } from '../harness.ts';

/** Result of one run of load. Latencies in milliseconds. */
export interface Load {
  readonly requestsPerSecond: number;
  readonly p50: number;
  readonly p99: number;
  /** Number of answers other than 2xx, and of broken connections. */
  readonly errors: number;
}

/** Medians of several runs of load, and the requests/s of each run. */
export interface Loads extends Load {
  readonly each: readonly number[];
  /** CPU time of a request, user and system, microseconds; present if the server's process is known. */
  readonly cpuUs?: number;
}

/** The core to which servers are pinned, and the core for the load. */
export const SERVER_CORE = 0;
export const LOAD_CORE = 1;

let isThere: boolean | undefined;
/** Tells whether wrk is installed; if not, explains the consequence once. */
function hasWrk(): boolean {
  if (isThere !== undefined) return isThere;
  isThere = spawnSync('wrk', ['--version']).error === undefined;
  if (!isThere) console.error("without wrk: the load is autocannon's, which is slower than what it measures");
  return isThere;
}

/** One request of a load, to be sent repeatedly. */
export interface LoadRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Returns a verifyKey request for one key. */
export const verifyRequest = (key: string): LoadRequest => ({
  method: 'POST',
  path: '/v1/keys.verifyKey',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ key }),
});

/**
 * Sends `requests` in random order, as fast as answers arrive; with wrk if it is installed, else with
 * autocannon.
 */
export async function fullLoad(
  port: number,
  requests: readonly LoadRequest[],
  seconds: number,
  connections = 32,
): Promise<Load> {
  if (!hasWrk()) return autocannonLoad(port, requests, seconds, connections);
  return inDirectory(async (directory) => {
    const file = join(directory, 'requests.txt');
    writeFileSync(file, requests.map((each) => wire(each, port)).join('\0'));
    const script = join(directory, 'wrk.lua');
    writeFileSync(
      script,
      `local requests = {}
       function init()
         math.randomseed(os.time())
         for each in io.open('${file}', 'rb'):read('*a'):gmatch('[^%z]+') do requests[#requests + 1] = each end
       end
       function request() return requests[math.random(#requests)] end
       function done(summary, latency)
         local e = summary.errors
         io.write(string.format('{"rps":%f,"p50":%f,"p99":%f,"errors":%d}\\n', summary.requests / summary.duration * 1e6,
           latency:percentile(50) / 1000, latency:percentile(99) / 1000, e.connect + e.read + e.write + e.status + e.timeout))
       end`,
    );
    const wrk = ['wrk', '-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, `http://127.0.0.1:${port}`];
    const [command = '', ...args] = pinned(LOAD_CORE, wrk);
    const { stdout } = await promisify(execFile)(command, args);
    const { rps, ...seen } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Omit<
      Load,
      'requestsPerSecond'
    > & {
      rps: number;
    };
    return { requestsPerSecond: rps, ...seen };
  });
}

/** Returns a request as text on the wire. */
export function wire({ method, path, headers, body = '' }: LoadRequest, port: number): string {
  const all = {
    Host: `127.0.0.1:${port}`,
    ...headers,
    ...(body ? { 'Content-Length': String(body.length) } : {}),
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

/** A server under load, and its requests. */
export interface Contender {
  readonly name: string;
  readonly port: number;
  /** Id of the server's process. */
  readonly pid?: number;
  readonly requests: readonly LoadRequest[];
}

/**
 * Loads each contender in turn, round after round, so that other work of the machine affects all alike;
 * returns medians by name. A first round, in which V8 compiles, is not counted.
 * @param rampSeconds uncounted load of the same kind right before each counted one, for servers that adapt to
 * their load
 */
export async function interleave(
  contenders: readonly Contender[],
  rounds: number,
  seconds: number,
  rampSeconds = 0,
): Promise<Map<string, Loads>> {
  const loads = new Map<string, (Load & { cpuUs: number })[]>(contenders.map(({ name }) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    for (const { name, port, pid, requests } of contenders) {
      if (rampSeconds > 0) await fullLoad(port, requests, rampSeconds);
      const before = pid === undefined ? Number.NaN : cpuSeconds(pid);
      const load = await fullLoad(port, requests, seconds);
      if (load.errors > 0) throw new Error(`${name}: ${load.errors} errors`);
      const cpu = pid === undefined ? Number.NaN : cpuSeconds(pid) - before;
      const cpuUs = (cpu * 1e6) / (load.requestsPerSecond * seconds);
      if (round >= 0) loads.get(name)?.push({ ...load, cpuUs });
    }
  }
  const middle = (all: readonly (Load & { cpuUs: number })[]): Loads => ({
    ...(all.some(({ cpuUs }) => Number.isNaN(cpuUs)) ? {} : { cpuUs: median(all.map(({ cpuUs }) => cpuUs)) }),
    each: all.map(({ requestsPerSecond }) => requestsPerSecond),
    requestsPerSecond: median(all.map(({ requestsPerSecond }) => requestsPerSecond)),
    p50: median(all.map(({ p50 }) => p50)),
    p99: median(all.map(({ p99 }) => p99)),
    errors: 0,
  });
  return new Map([...loads].map(([name, all]) => [name, middle(all)]));
}

/** CPU time of a process and its children so far, seconds. */
export function cpuSeconds(pid: number): number {
  const ids = [
    pid,
    ...readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean),
  ];
  const ticks = ids.map((id) => {
    // The name, which may contain spaces, is followed by the state and eleven other fields.
    const fields = readFileSync(`/proc/${id}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((sum, each) => sum + each, 0) / TICKS_PER_SECOND;
}

/** Linux reports CPU time to programs in hundredths of a second, whatever its own clock. */
const TICKS_PER_SECOND = 100;

/**
 * Rows for each contender, and for each ratio of the first to another with a target: the median of the ratios
 * within each round, whose loads ran close together.
 */
export function throughputRows(
  loads: ReadonlyMap<string, Loads>,
  targets: Readonly<Record<string, number>>,
): Row[] {
  const rows: Row[] = [...loads].map(([name, { requestsPerSecond, p50, p99, cpuUs }]) => ({
    name,
    value: [
      `${Math.round(requestsPerSecond).toLocaleString('en')} requests/s, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`,
      ...(cpuUs === undefined ? [] : [`${cpuUs.toFixed(1)} µs of CPU per request`]),
    ].join(', '),
  }));
  const [[mine, first] = ['', undefined]] = loads;
  for (const [name, target] of Object.entries(targets)) {
    const other = loads.get(name);
    if (!first || !other) continue;
    const ratio = median(first.each.map((mine, round) => mine / (other.each[round] ?? Number.NaN)));
    rows.push({
      name: `${mine} ÷ ${name}`,
      value: `${ratio.toFixed(2)} ×`,
      target: `≥ ${target}`,
      met: ratio >= target,
    });
  }
  return rows;
}

/** The same as charts: the throughput, and the wait of the slowest hundredth. */
export function loadPanels(loads: ReadonlyMap<string, Load>): Panel[] {
  const values = (field: 'requestsPerSecond' | 'p99') =>
    [...loads].map(([name, load]) => ({ name, value: load[field] }));
  return [
    { unit: 'requests/s on one core', digits: 0, values: values('requestsPerSecond') },
    { unit: 'p99 at that rate, ms', digits: 2, values: values('p99') },
  ];
}

/** Result of the fixed-rate generator, milliseconds. */
export interface OpenLoop {
  readonly p50: number;
  readonly p99: number;
  /** The 99th percentile of each second. */
  readonly p99s: readonly number[];
  readonly valid: number;
  readonly all: number;
}

/** Requests for random keys of a file. */
export interface Stream {
  readonly keysFile: string;
  /** Requests per second. */
  readonly rate: number;
}

/**
 * Sends verifyKey at fixed rates from one process; latencies count from the time when a request was due. The
 * first stream always runs. The others take turns of a second: none, the first, the next, and so on.
 * @returns the latencies of the first stream
 */
export async function openLoop(
  port: number,
  seconds: number,
  ...streams: readonly [Stream, ...Stream[]]
): Promise<OpenLoop> {
  const [file = '', ...args] = pinned(LOAD_CORE, [
    process.execPath,
    // A pause of the generator would count as the server's. The generator spins, so V8's helper threads
    // compete with it, and compiling its loop was visible at the 99th percentile.
    '--no-opt',
    '--no-maglev',
    '--single-threaded-gc',
    '--min-semi-space-size=64',
    '--max-semi-space-size=64',
    join(import.meta.dirname, 'open-loop.ts'),
    String(port),
    String(seconds),
    ...streams.flatMap(({ keysFile, rate }) => [keysFile, String(rate)]),
  ]);
  const { stdout } = await promisify(execFile)(file, args);
  return JSON.parse(stdout) as OpenLoop;
}

async function autocannonLoad(
  port: number,
  requests: readonly LoadRequest[],
  seconds: number,
  connections: number,
): Promise<Load> {
  const result = await autocannon({
    url: `http://127.0.0.1:${port}`,
    connections,
    duration: seconds,
    requests: requests.slice(0, 1000).map((each) => ({ ...each })),
  });
  return {
    requestsPerSecond: result.requests.average,
    p50: result.latency.p50,
    p99: result.latency.p99,
    errors: result.errors + result.non2xx,
  };
}

/** Modules that this nginx needs, by Debian's package. */
const NGINX_LUA = {
  'libnginx-mod-http-lua': '/usr/lib/nginx/modules/ngx_http_lua_module.so',
  'lua-resty-lrucache': '/usr/share/lua/5.1/resty/lrucache.lua',
  'lua-cjson': '/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so',
};

/** Finds nginx with Lua; if anything is missing, reports it and returns undefined. */
export function findNginxLua(): string | undefined {
  const nginx = ['/usr/sbin/nginx', 'nginx'].find(
    (command) => spawnSync(command, ['-v']).error === undefined,
  );
  const missing = Object.entries(NGINX_LUA).flatMap(([name, file]) => (existsSync(file) ? [] : [name]));
  if (nginx && missing.length === 0) return nginx;
  console.error(`without nginx + Lua LRU, which needs ${['nginx', ...Object.keys(NGINX_LUA)].join(', ')}`);
  return undefined;
}

/** The path of a peer's file. */
export const peer = (name: string): string => join(import.meta.dirname, '../peers', name);

/** Returns a port that was free a moment ago. */
export function freePort(): number {
  const code = `const s=require('net').createServer().listen(0,()=>{console.log(s.address().port);s.close()})`;
  return Number(execFileSync(process.execPath, ['-e', code], { encoding: 'utf8' }));
}
