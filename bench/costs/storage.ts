// Measures what keys take on Redis' disk and when it starts, and what verifiers take of the network.
// `npm run capacity -- --measure` runs it.
import { readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { inDirectory, machine, startProcess } from '../harness.ts';
import { startBackend } from '../servers.ts';

const FILE = join(import.meta.dirname, 'storage.json');
const KEYS = 30_000;
const IMPORTED_AT_ONCE = 500;
const FOLLOWERS = 100;
const CHANGES = 50;
const IDLE_MS = 5000;

/** Measures of Redis' files and network, each of one key or one verifier. */
export interface Storage {
  /** Bytes of a key in the append-only file once that is rewritten. */
  readonly fileBytesPerKey: number;
  /** Time to read a key when Redis starts, microseconds. */
  readonly loadUsPerKey: number;
  /** Bytes of a SYNC without changes, both directions. */
  readonly idleSyncBytes: number;
  /** Bytes of a change for each verifier, both directions: the message and the acknowledgement. */
  readonly changeBytes: number;
}

/** Returns the last measures, and where they were taken. */
export function lastStorage(): { readonly machine: string; readonly storage: Storage } {
  return JSON.parse(readFileSync(FILE, 'utf8'));
}

/** Measures, and keeps the result. Takes about a minute. */
export async function measureStorage(): Promise<void> {
  const load = loadavg()[0]?.toFixed(1);
  const storage = await inDirectory(measure);
  const where = `${machine()}; load average ${load} before`;
  writeFileSync(FILE, `${JSON.stringify({ machine: where, storage }, undefined, 2)}\n`);
}

async function measure(directory: string): Promise<Storage> {
  const backend = await startBackend(directory, 1);
  for (let count = 0; count < KEYS; count += IMPORTED_AT_ONCE) {
    const keys = Array.from({ length: IMPORTED_AT_ONCE }, () => ({
      ...{ sha256: hashSecret(generateKey(16)), foreign: false },
    }));
    await backend.call('keys.importKeys', { apiId: 'bench', keys });
  }
  const redis = new Redis({ path: backend.redisPath });
  const read = async (section: string, ...fields: string[]) => {
    const info = await redis.info(section);
    return fields.reduce(
      (sum, field) => sum + Number(new RegExp(`^${field}:(\\d+)`, 'm').exec(info)?.[1]),
      0,
    );
  };
  const netBytes = () => read('stats', 'total_net_input_bytes', 'total_net_output_bytes');
  const during = async (work: () => Promise<unknown>) => {
    const before = await netBytes();
    await work();
    return (await netBytes()) - before;
  };
  const idle = () => new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const change = async () => {
    for (let i = 0; i < CHANGES; i++)
      await backend.call('keys.updateKey', { keyId: backend.keyIds[0], enabled: i % 2 === 0 });
  };
  await redis.config('SET', 'appendonly', 'yes');
  while ((await read('persistence', 'aof_rewrite_in_progress', 'aof_rewrite_scheduled')) > 0)
    await new Promise((resolve) => setTimeout(resolve, 100));
  const written = await read('persistence', 'aof_base_size');
  const [aloneIdle, aloneChanging] = [await during(idle), await during(change)];
  const program = join(import.meta.dirname, '../changes/followers.ts');
  const followers = await startProcess(
    [process.execPath, program, String(FOLLOWERS), 'bench'],
    { REDIS_URL: `unix://${backend.redisPath}` },
    'live',
  );
  const [idleBytes, changingBytes] = [await during(idle), await during(change)];
  await followers.stop();
  redis.disconnect();
  await backend.stop();
  const log = join(directory, 'start.log');
  await (await startRedis(join(directory, 'redis'), ['--logfile', log])).stop();
  const loadS = /DB loaded from append only file: ([\d.]+) seconds/.exec(readFileSync(log, 'utf8'))?.[1];
  return {
    fileBytesPerKey: written / KEYS,
    loadUsPerKey: (Number(loadS) * 1e6) / KEYS,
    idleSyncBytes: (idleBytes - aloneIdle) / FOLLOWERS / (IDLE_MS / 1000),
    changeBytes: (changingBytes - aloneChanging) / FOLLOWERS / CHANGES,
  };
}
