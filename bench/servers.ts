import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Agent, request } from 'undici';
import { startRedis } from '../deploy/dev/redis-server.ts';
import { generateKey, hashSecret } from '../shared/contract/key-format.ts';
import { pinned, startProcess } from './harness.ts';
import { SERVER_CORE } from './load/load.ts';

const ROOT = join(import.meta.dirname, '..');
export const ROOT_KEY = 'bench-root-key-0123456789abcdef0123456789';

/** A server under load, and what it is called in the table. */
export interface Server {
  readonly name: string;
  readonly port: number;
  stop(): Promise<void>;
}

/** A server of one process, which may have children. */
export interface ServerProcess extends Server {
  readonly pid: number;
  /** How long it took from the start of the process until it answered, milliseconds. */
  readonly readyMs: number;
}

/** Keys of one importKeys. */
const IMPORT_KEYS = 500;

/** Redis, control plane and `count` keys of the API `bench`. */
export interface Backend {
  readonly keys: readonly string[];
  /** Their ids, in the same order. */
  readonly keyIds: readonly string[];
  /** The keys, one a line. */
  readonly keysFile: string;
  /** A unix socket. */
  readonly redisPath: string;
  readonly redisPid: number;
  /** The environment of a verifier that belongs to it. */
  readonly env: Readonly<Record<string, string>>;
  /** The control plane's. */
  readonly address: string;
  /** A call to the control plane. */
  call(operation: string, body: object): Promise<Answer>;
  stop(): Promise<void>;
}

/** Fields of an answer that a benchmark reads. */
export interface Answer {
  readonly code?: string;
  readonly key?: string;
  readonly keyId?: string;
  readonly roleId?: string;
  readonly results?: readonly { readonly result: string; readonly keyId?: string }[];
  readonly propagation?: { readonly sequence: number; readonly by?: string; readonly verifiers?: number };
}

/** A control plane over a Redis. */
export interface ControlPlane {
  readonly pid: number;
  readonly address: string;
  call(operation: string, body: object): Promise<Answer>;
  stop(): Promise<void>;
}

/**
 * With V8's limits as in the image, in a container of 256 MiB.
 * @param env its settings, REDIS_URL among them
 */
export async function startControlPlane(env: Readonly<Record<string, string>>): Promise<ControlPlane> {
  const child = await startProcess<{ address: string }>(
    [
      process.execPath,
      '--max-semi-space-size=8',
      '--max-old-space-size=128',
      join(ROOT, 'control-plane/main.ts'),
    ],
    { PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info', ROOT_KEY, ROOT_KEY_CALLS_PER_MINUTE: '0', ...env },
    'address',
  );
  const { address } = child.ready;
  const agent = new Agent({ connections: 64 });
  return {
    pid: child.pid,
    address,
    call: (operation, body) => post(agent, `${address}/v1/${operation}`, body),
    async stop() {
      await agent.destroy();
      await child.stop();
    },
  };
}

/** @param redisOptions of redis-server; without any, writes are not synced, since most benchmarks only read */
export async function startBackend(
  directory: string,
  count: number,
  redisOptions: readonly string[] = ['--appendonly', 'no'],
): Promise<Backend> {
  const redis = await startRedis(join(directory, 'redis'), redisOptions);
  const env = { REDIS_URL: redis.url, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info', LEASE_MS: '60000' };
  // Imports of many keys at once, each synced to disk, may keep Redis busy for longer than calls otherwise wait.
  const { address, call, stop } = await startControlPlane({ ...env, REDIS_COMMAND_TIMEOUT_MS: '20000' });
  const keys = Array.from({ length: count }, () => generateKey(16));
  const imports = await inParallel(Math.ceil(count / IMPORT_KEYS), async (i) => {
    const batch = keys.slice(i * IMPORT_KEYS, (i + 1) * IMPORT_KEYS);
    const imported = batch.map((key) => ({ sha256: hashSecret(key), foreign: false }));
    let results: Answer['results'];
    // Where every write is synced, so many at once may take longer than Redis is waited for; sent again, they are there.
    for (let attempt = 0; results === undefined && attempt < 10; attempt++) {
      ({ results } = await call('keys.importKeys', { apiId: 'bench', keys: imported }));
    }
    if (results?.length !== batch.length) throw new Error('not imported');
    return results.map(({ keyId = '' }) => keyId);
  });
  const keysFile = join(directory, 'keys.txt');
  writeFileSync(keysFile, keys.join('\n'));
  return {
    keys,
    keyIds: imports.flat(),
    keysFile,
    redisPath: redis.url.replace('unix://', ''),
    redisPid: redis.process.pid ?? 0,
    env: {
      ...env,
      API_IDS: 'bench',
      CACHE_KEYS_MAX: String(Math.max(count, 100_000)),
      LOOKUP_WAIT_MS: '5000',
    },
    address,
    call,
    async stop() {
      await stop();
      await redis.stop();
    },
  };
}

/** A verifier as it is run in production, pinned to the server core. */
export interface BenchVerifier extends ServerProcess {
  readonly adminAddress: string;
  verify(key: string): Promise<Answer>;
}

/**
 * With V8's semi-spaces as the image sets them; peers run as Node comes.
 * @param main what to run as the verifier; relative to the project's root
 * @param isPinned whether it shares the server core, where it is not one of several
 */
export async function startVerifier(
  backend: Pick<Backend, 'env'>,
  main = 'verifier/main.ts',
  isPinned = true,
): Promise<BenchVerifier> {
  const command = [process.execPath, '--max-semi-space-size=8', resolve(ROOT, main)];
  const startedAt = performance.now();
  const verifier = await startProcess<{ address: string; adminAddress: string }>(
    isPinned ? pinned(SERVER_CORE, command) : command,
    backend.env,
    'address',
  );
  const agent = new Agent({ connections: 64 });
  const { address, adminAddress } = verifier.ready;
  return {
    name: 'Keyfence verifier, verifyKey from memory',
    port: Number(new URL(address).port),
    pid: verifier.pid,
    readyMs: performance.now() - startedAt,
    adminAddress,
    verify: (key) => post(agent, `${address}/v1/keys.verifyKey`, { key }),
    async stop() {
      await agent.destroy();
      await verifier.stop();
    },
  };
}

/** Has the verifier look up every key, so that it answers from memory from here on. */
export async function warm(verifier: BenchVerifier, keys: readonly string[]): Promise<void> {
  await inParallel(keys.length, async (i) => {
    while ((await verifier.verify(keys[i] ?? '')).code !== 'VALID');
  });
}

export async function post(agent: Agent, url: string, body: object): Promise<Answer> {
  const answer = await request(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    dispatcher: agent,
  });
  return (await answer.body.json()) as Answer;
}

/** Does `work` for 0 … count − 1, 64 at a time. */
export async function inParallel<T>(count: number, work: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = new Array(count);
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const i = next++;
      results[i] = await work(i);
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  return results;
}

/** Throws where a change is not complete because so many verifiers confirmed it. */
export function complete({ propagation, ...answer }: Answer, verifiers: number): void {
  if (propagation?.by !== 'acks' || propagation.verifiers !== verifiers)
    throw new Error(JSON.stringify(propagation ?? answer));
}
