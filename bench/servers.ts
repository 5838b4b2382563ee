import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Agent, request } from 'undici';
import { startRedis } from '../deploy/dev/redis-server.ts';
import { generateKey, hashSecret } from '../shared/rules/key-format.ts';
import { pinned, startProcess } from './harness.ts';
import { SERVER_CORE } from './load/load.ts';

const ROOT = join(import.meta.dirname, '..');
export const ROOT_KEY = 'bench-root-key-0123456789abcdef0123456789';

/** V8's semi-spaces and the C library's memory as in the image; peers run with the defaults. */
export const SEMI_SPACES = '--max-semi-space-size=8';
export const MEMORY = { MALLOC_ARENA_MAX: '1', MALLOC_TRIM_THRESHOLD_: '131072' };

/** A server under load, and its name in the table. */
export interface Server {
  readonly name: string;
  readonly port: number;
  stop(): Promise<void>;
}

/** A server of one process, which may have children. */
export interface ServerProcess extends Server {
  readonly pid: number;
}

/** Number of keys per importKeys call. */
const IMPORT_KEYS = 500;

/** Redis, a control plane and `count` keys of the API `bench`. */
export interface Backend {
  readonly keys: readonly string[];
  /** Their ids, in the same order. */
  readonly keyIds: readonly string[];
  /** A file with the keys, one per line. */
  readonly keysFile: string;
  /** The path of a unix socket. */
  readonly redisPath: string;
  readonly redisPid: number;
  /** The environment of a verifier on this Redis. */
  readonly env: Readonly<Record<string, string>>;
  /** Address of the control plane. */
  readonly address: string;
  /** Calls the control plane. */
  call(operation: string, body: object): Promise<Answer>;
  stop(): Promise<void>;
}

/** Fields of a response that benchmarks read. */
export interface Answer {
  readonly code?: string;
  readonly key?: string;
  readonly keyId?: string;
  readonly roleId?: string;
  readonly results?: readonly { readonly result: string; readonly keyId?: string }[];
  readonly propagation?: { readonly sequence: number; readonly by?: string; readonly verifiers?: number };
}

/** A control plane on a Redis. */
export interface ControlPlane {
  readonly pid: number;
  readonly address: string;
  call(operation: string, body: object): Promise<Answer>;
  stop(): Promise<void>;
}

/**
 * Starts a control plane with V8's limits as in the image, in a container of 256 MiB.
 * @param env its settings, including REDIS_URL
 */
export async function startControlPlane(env: Readonly<Record<string, string>>): Promise<ControlPlane> {
  const child = await startProcess<{ address: string }>(
    [process.execPath, SEMI_SPACES, '--max-old-space-size=128', join(ROOT, 'control-plane/main.ts')],
    {
      ...MEMORY,
      ...{ PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'info', ROOT_KEY, ROOT_KEY_CALLS_PER_MINUTE: '0' },
      ...env,
    },
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

/**
 * Starts Redis and a control plane and imports keys.
 * @param redisOptions options of redis-server; by default writes are not synced, because most benchmarks only
 * read
 * @param own further settings of the control plane and of verifiers
 */
export async function startBackend(
  directory: string,
  count: number,
  redisOptions: readonly string[] = ['--appendonly', 'no'],
  own: Readonly<Record<string, string>> = {},
): Promise<Backend> {
  const redis = await startRedis(join(directory, 'redis'), redisOptions);
  const ports = { PORT: '0', ADMIN_PORT: '0' };
  const env = { REDIS_URL: redis.url, ...ports, LOG_LEVEL: 'info', LEASE_MS: '60000', ...own };
  // Concurrent imports of many keys, each synced to disk, may keep Redis busy for longer than a call usually
  // waits.
  const { address, call, stop } = await startControlPlane({ ...env, REDIS_COMMAND_TIMEOUT_MS: '20000' });
  const keys = Array.from({ length: count }, () => generateKey(16));
  const imports = await inParallel(Math.ceil(count / IMPORT_KEYS), async (i) => {
    const batch = keys.slice(i * IMPORT_KEYS, (i + 1) * IMPORT_KEYS);
    const imported = batch.map((key) => ({ sha256: hashSecret(key), foreign: false }));
    let results: Answer['results'];
    // If every write is synced, the imports may exceed the command time-out; when they are repeated, the keys
    // exist.
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

/** A verifier as in production, pinned to the server core. */
export interface BenchVerifier extends ServerProcess {
  readonly adminAddress: string;
  verify(key: string): Promise<Answer>;
}

/**
 * Starts a verifier.
 * @param main the program, relative to the project's root
 * @param isPinned whether to pin it to the server core; false for one of several verifiers
 */
export async function startVerifier(
  backend: Pick<Backend, 'env'>,
  main = 'verifier/main.ts',
  isPinned = true,
): Promise<BenchVerifier> {
  const command = [process.execPath, SEMI_SPACES, resolve(ROOT, main)];
  const verifier = await startProcess<{ address: string; adminAddress: string }>(
    isPinned ? pinned(SERVER_CORE, command) : command,
    { ...MEMORY, ...backend.env },
    'address',
  );
  const agent = new Agent({ connections: 64 });
  const { address, adminAddress } = verifier.ready;
  return {
    name: 'Keyfence verifier, verifyKey from memory',
    port: Number(new URL(address).port),
    pid: verifier.pid,
    adminAddress,
    verify: (key) => post(agent, `${address}/v1/keys.verifyKey`, { key }),
    async stop() {
      await agent.destroy();
      await verifier.stop();
    },
  };
}

/** Makes the verifier look up every key, so that it answers from memory from then on. */
export async function warm(verifier: BenchVerifier, keys: readonly string[], code = 'VALID'): Promise<void> {
  await inParallel(keys.length, async (i) => {
    while ((await verifier.verify(keys[i] ?? '')).code !== code);
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

/** Runs `work` for 0 … count − 1, 64 at a time. */
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

/** Throws unless a change is complete because `verifiers` verifiers confirmed it. */
export function complete({ propagation, ...answer }: Answer, verifiers: number): void {
  if (propagation?.by !== 'acks' || propagation.verifiers !== verifiers)
    throw new Error(JSON.stringify(propagation ?? answer));
}
