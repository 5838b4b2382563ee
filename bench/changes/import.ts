import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createWriteStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, median, percentile, type Row } from '../harness.ts';
import { type ControlPlane, ROOT_KEY, startControlPlane } from '../servers.ts';

const CLI = join(import.meta.dirname, '../../control-plane/clients/cli/keyfence.js');
const MIB = 2 ** 20;
const MEMORY_MAX = 200 * MIB;

/** An import of a million keys by the command line: its memory, and its effect on other calls. */
const importing: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const count = quick ? 50_000 : 1_000_000;
    const file = join(directory, 'keys.ndjson');
    await pipeline(Readable.from(lines(count)), createWriteStream(file));
    const redis = await startRedis(join(directory, 'redis'), []);
    const controlPlane = await startControlPlane({ REDIS_URL: redis.url });
    try {
      const { keyId = '' } = await controlPlane.call('keys.createKey', { apiId: 'bench' });
      await callsUntil(controlPlane, keyId, (made) => made === 200);
      const usual = await callsUntil(controlPlane, keyId, (made) => made === (quick ? 500 : 2000));
      const state = { isOver: false };
      const beside = callsUntil(controlPlane, keyId, () => state.isOver);
      const startedAt = performance.now();
      const peakOfCli = await importWith(controlPlane, file);
      const seconds = (performance.now() - startedAt) / 1000;
      state.isOver = true;
      const meanwhile = await beside;
      const memory = (name: string, bytes: number): Row => ({
        name: `peak memory of ${name}`,
        value: `${Math.round(bytes / MIB)} MiB`,
        target: `≤ ${MEMORY_MAX / MIB} MiB`,
        met: bytes <= MEMORY_MAX,
      });
      const [usualP99, p99] = [percentile(usual, 0.99), percentile(meanwhile, 0.99)];
      return {
        title: 'Import',
        about: `\`keyfence keys import\` imports ${count.toLocaleString('en')} keys by their hashes, through one control plane to one Redis (AOF, fsync always). Meanwhile one caller keeps disabling and enabling another key. No process is pinned to a core.`,
        rows: [
          { name: 'keys per second', value: Math.round(count / seconds).toLocaleString('en') },
          memory('the command line', peakOfCli),
          memory('the control plane', peakBytes(controlPlane.pid)),
          {
            name: `updateKey during the import: p50 / p99 of ${meanwhile.length} calls`,
            value: `${median(meanwhile).toFixed(1)} / ${p99.toFixed(1)} ms; otherwise ${median(usual).toFixed(1)} / ${usualP99.toFixed(1)} ms`,
            target: 'p99 ≤ 3 × usual p99',
            met: p99 <= 3 * usualP99,
          },
        ],
      };
    } finally {
      await controlPlane.stop();
      await redis.stop();
    }
  });

function* lines(count: number): Generator<string> {
  for (let i = 0; i < count; i++) {
    const sha256 = createHash('sha256').update(`import ${i}`).digest('base64url');
    yield `${JSON.stringify({ sha256, name: `key ${i}`, externalId: `customer_${i % 1000}` })}\n`;
  }
}

/** Changes a key again and again until `isEnough`; returns how long each change took, milliseconds. */
async function callsUntil({ call }: ControlPlane, keyId: string, isEnough: (made: number) => boolean) {
  const times: number[] = [];
  while (!isEnough(times.length)) {
    const startedAt = performance.now();
    const { propagation } = await call('keys.updateKey', { keyId, enabled: times.length % 2 === 0 });
    if (!propagation) throw new Error('not updated');
    times.push(performance.now() - startedAt);
  }
  return times;
}

/** Imports a file. @returns the peak memory of the command, bytes */
async function importWith({ address }: ControlPlane, file: string): Promise<number> {
  const env = { ...process.env, KEYFENCE_URL: address, KEYFENCE_ROOT_KEY: ROOT_KEY };
  const child = spawn(process.execPath, [CLI, 'keys', 'import', 'bench', file], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  let peak = 0;
  const watch = setInterval(() => {
    peak = Math.max(peak, peakBytes(child.pid ?? 0));
  }, 100);
  const status = await new Promise((resolve) => child.once('exit', resolve));
  clearInterval(watch);
  if (status !== 0) throw new Error(`the import ended with ${status}`);
  return peak;
}

/** The peak resident memory of a process, bytes; 0 if it has ended. */
function peakBytes(pid: number): number {
  try {
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

export default importing;
