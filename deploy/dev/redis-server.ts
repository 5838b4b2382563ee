import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { isAnswered } from './folder.ts';

export interface RedisServer {
  /** The value for REDIS_URL. */
  readonly url: string;
  readonly process: ChildProcess;
  /** Resolves when the server has written everything and has ended. */
  stop(): Promise<void>;
}

const READY_MS_MAX = 60_000;
const POLL_MS = 20;
const STOP_MS_MAX = 10_000;

/** Finds a Redis (or Valkey) server on PATH; undefined if there is none. */
export function redisProgram(): string | undefined {
  return ['redis-server', 'valkey-server'].find(isThere);
}

const programs = new Set<string>();

/** Tells whether a program is on PATH. A program that was found is not searched for again. */
function isThere(command: string): boolean {
  if (!programs.has(command) && spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0)
    programs.add(command);
  return programs.has(command);
}

/**
 * Starts a private, durable Redis on a unix socket in `directory`, and waits until it serves. It ends with
 * this process, however this process ends.
 * @param options further settings of redis.conf, as command-line options; they override
 */
export async function startRedis(directory: string, options: readonly string[] = []): Promise<RedisServer> {
  const command = redisProgram();
  if (!command) throw new Error('no redis-server on PATH');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const socket = socketIn(directory);
  // Two servers on one append-only file would each lose what the other wrote.
  if (await isAnswered(socket)) throw new Error(`another Redis keeps its data in ${directory}`);
  const persistent = ['--save', '', '--appendonly', 'yes', '--appendfsync', 'always', '--maxmemory', '2gb'];
  const own = ['--port', '0', '--unixsocket', socket, '--unixsocketperm', '700', '--dir', directory];
  const server = spawnBound(command, [...own, ...persistent, '--daemonize', 'no', ...options]);
  let output = '';
  server.stdout?.on('data', (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-4000);
  });
  const exit = new Promise<void>((resolve) => server.once('exit', () => resolve()));
  await untilServing(
    socket,
    () => server.exitCode !== null || server.signalCode !== null,
    () => output,
  );
  return {
    url: `unix://${socket}`,
    process: server,
    async stop() {
      server.kill('SIGTERM');
      const timer = setTimeout(() => server.kill('SIGKILL'), STOP_MS_MAX);
      await exit;
      clearTimeout(timer);
    },
  };
}

/** Starts a process that, on Linux, gets SIGTERM when this process ends unexpectedly. */
export function spawnBound(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): ChildProcess {
  const isBound = process.platform === 'linux' && isThere('setpriv');
  const [file, ...all] = isBound
    ? ['setpriv', '--pdeathsig', 'TERM', '--', command, ...args]
    : [command, ...args];
  // In a separate process group, so that Ctrl-C reaches only this process, which then stops the others in
  // order.
  return spawn(file ?? command, all, { stdio: ['ignore', 'pipe', 'inherit'], detached: true, env });
}

/** The path of a unix socket may have 107 bytes on Linux and 103 on macOS (sys/un.h). */
function socketIn(directory: string): string {
  const path = join(directory, 'redis.sock');
  return Buffer.byteLength(path) < 100 ? path : join(mkdtempSync(join(tmpdir(), 'keyfence-')), 'redis.sock');
}

async function untilServing(path: string, hasEnded: () => boolean, output: () => string): Promise<void> {
  const redis = new Redis({
    path,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    retryStrategy: () => null,
  });
  redis.on('error', () => undefined); // not up yet; the loop below tries again
  const giveUpAtMs = performance.now() + READY_MS_MAX;
  try {
    for (;;) {
      if (hasEnded() || performance.now() > giveUpAtMs)
        throw new Error(`redis-server did not start:\n${output()}`);
      try {
        if (redis.status !== 'ready') await redis.connect();
        await redis.ping();
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
    }
  } finally {
    redis.disconnect();
  }
}
