import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import autocannon from 'autocannon';
import { pinned } from './harness.ts';

/** What one run of load saw. Latencies in milliseconds. */
export interface Load {
  readonly requestsPerSecond: number;
  readonly p50: number;
  readonly p99: number;
  /** Answers that were not 2xx, and connections that broke. */
  readonly errors: number;
}

/** The core that servers are pinned to, and the one for the load. */
export const SERVER_CORE = 0;
export const LOAD_CORE = 1;

const hasWrk = spawnSync('wrk', ['--version']).error === undefined;

/**
 * Asks verifyKey for random keys of `keysFile` (one a line) over 32 connections, as fast as answers come.
 * With wrk where it is installed, else with autocannon.
 */
export async function verifyLoad(
  port: number,
  keysFile: string,
  keys: readonly string[],
  seconds: number,
): Promise<Load> {
  if (!hasWrk) return autocannonLoad(port, keys, seconds);
  const script = `${keysFile}.lua`;
  writeFileSync(
    script,
    `local requests = {}
     function init()
       math.randomseed(os.time())
       wrk.headers['Content-Type'] = 'application/json'
       for key in io.lines('${keysFile}') do
         requests[#requests + 1] = wrk.format('POST', '/v1/keys.verifyKey', nil, '{"key":"' .. key .. '"}')
       end
     end
     function request() return requests[math.random(#requests)] end
     function done(summary, latency)
       local e = summary.errors
       io.write(string.format('{"rps":%f,"p50":%f,"p99":%f,"errors":%d}\\n', summary.requests / summary.duration * 1e6,
         latency:percentile(50) / 1000, latency:percentile(99) / 1000, e.connect + e.read + e.write + e.status + e.timeout))
     end`,
  );
  const [file = '', ...args] = pinned(LOAD_CORE, [
    'wrk',
    '-t1',
    '-c32',
    `-d${seconds}s`,
    '-s',
    script,
    `http://127.0.0.1:${port}`,
  ]);
  const { stdout } = await promisify(execFile)(file, args);
  const seen = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as {
    rps: number;
    p50: number;
    p99: number;
    errors: number;
  };
  return { requestsPerSecond: seen.rps, p50: seen.p50, p99: seen.p99, errors: seen.errors };
}

/** What the generator of a fixed rate saw, milliseconds. */
export interface OpenLoop {
  readonly p50: number;
  readonly p99: number;
  readonly valid: number;
  readonly all: number;
}

/** verifyKey for random keys of `keysFile` at a fixed rate; latencies count from when a request was due. */
export async function openLoop(
  port: number,
  keysFile: string,
  rate: number,
  seconds: number,
): Promise<OpenLoop> {
  const script = join(import.meta.dirname, 'open-loop.ts');
  const [file = '', ...args] = pinned(LOAD_CORE, [
    process.execPath,
    script,
    String(port),
    keysFile,
    String(rate),
    String(seconds),
  ]);
  const { stdout } = await promisify(execFile)(file, args);
  return JSON.parse(stdout) as OpenLoop;
}

async function autocannonLoad(port: number, keys: readonly string[], seconds: number): Promise<Load> {
  const result = await autocannon({
    url: `http://127.0.0.1:${port}/v1/keys.verifyKey`,
    connections: 32,
    duration: seconds,
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    requests: keys.slice(0, 1000).map((key) => ({ body: JSON.stringify({ key }) })),
  });
  return {
    requestsPerSecond: result.requests.average,
    p50: result.latency.p50,
    p99: result.latency.p99,
    errors: result.errors + result.non2xx,
  };
}

/** Where nginx with Lua is; undefined where it is not. */
export function findNginxLua(): string | undefined {
  const nginx = ['/usr/sbin/nginx', 'nginx'].find(
    (command) => spawnSync(command, ['-v']).error === undefined,
  );
  const hasLua = spawnSync('test', ['-f', '/usr/lib/nginx/modules/ngx_http_lua_module.so']).status === 0;
  return nginx && hasLua ? nginx : undefined;
}

/** The file of a peer. */
export const peer = (name: string): string => join(import.meta.dirname, 'peers', name);

/** A port that was free a moment ago. */
export function freePort(): number {
  const code = `const s=require('net').createServer().listen(0,()=>{console.log(s.address().port);s.close()})`;
  return Number(execFileSync(process.execPath, ['-e', code], { encoding: 'utf8' }));
}
