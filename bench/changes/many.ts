import { Redis } from 'ioredis';
import { type Benchmark, inDirectory, median, percentile, type Row } from '../harness.ts';
import { redisCpuOf } from '../redis-cpu.ts';
import {
  type Backend,
  type BenchVerifier,
  complete,
  inParallel,
  startBackend,
  startVerifier,
  warm,
} from '../servers.ts';
import { SingleDisables } from './single-disables.ts';

const KEYS = 10_000;
const KEYS_PER_CALL = 1000;
/** Concurrent calls of 1,000 keys, as many as the command line makes. */
const CALLS_AT_ONCE = 4;
const VERIFIERS = 3;
/** The API whose keys are disabled, and another API. */
const APIS = ['bench', 'elsewhere'];

/** Disables many keys of one API, and measures the effect on other callers' disables. */
const many: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, KEYS, []);
    const redis = new Redis({ path: backend.redisPath });
    const env = { ...backend.env, API_IDS: APIS.join() };
    const verifiers = await Promise.all(
      Array.from({ length: VERIFIERS }, () => startVerifier({ env }, undefined, false)),
    );
    const measured = { seconds: [] as number[], scriptUs: [] as number[], cpuMs: [] as number[] };
    const others = new SingleDisables({
      address: backend.address,
      keyIds: await Promise.all(
        APIS.map(async (apiId) => (await backend.call('keys.createKey', { apiId })).keyId ?? ''),
      ),
      verifiers: VERIFIERS,
    });
    const meanwhile: number[][] = APIS.map(() => []);
    const usual: number[][] = APIS.map(() => []);
    try {
      for (const verifier of verifiers) await warm(verifier, backend.keys);
      others.begin(50);
      await others.taken();
      others.begin(quick ? 300 : 2000);
      add(usual, await others.taken());
      for (let round = 0; round < (quick ? 2 : 10); round++) {
        await setAll(backend, true);
        await redis.config('RESETSTAT');
        const cpu = await redisCpuOf(redis, async () => {
          others.begin();
          const startedAt = performance.now();
          await setAll(backend, false);
          measured.seconds.push((performance.now() - startedAt) / 1000);
          add(meanwhile, await others.end());
        });
        measured.cpuMs.push(cpu.ms);
        measured.scriptUs.push(await meanScriptUs(redis));
        await checkRefused(verifiers, backend.keys);
      }
    } finally {
      redis.disconnect();
      await others.stop();
      await Promise.all(verifiers.map((verifier) => verifier.stop()));
      await backend.stop();
    }
    return { title: 'Many keys at once', about: ABOUT, rows: rowsOf({ ...measured, usual, meanwhile }) };
  });

const ABOUT = `${KEYS / KEYS_PER_CALL} calls of keys.updateKeys, ${CALLS_AT_ONCE} at a time, disable ${KEYS.toLocaleString('en')} keys of one API, through one control plane and one Redis (AOF, fsync always). ${VERIFIERS} verifiers have every key in memory; afterwards each verifier is asked about every key. Meanwhile two callers, each in its own thread, keep disabling and enabling one other key: one caller a key of the same API, the other a key of another API. The delay of such a disable is its p99 minus the usual p50. No process is pinned to a core.`;

/**
 * Measurements of each round, and the times of single disables, usually and meanwhile, for each of APIS,
 * milliseconds.
 */
interface Measured {
  readonly seconds: number[];
  readonly scriptUs: number[];
  readonly cpuMs: number[];
  readonly usual: readonly (readonly number[])[];
  readonly meanwhile: readonly (readonly number[])[];
}

/** Asks every verifier for every key after it was disabled. */
async function checkRefused(verifiers: readonly BenchVerifier[], keys: readonly string[]): Promise<void> {
  for (const verifier of verifiers) {
    await inParallel(KEYS, async (i) => {
      const { code } = await verifier.verify(keys[i] ?? '');
      if (code !== 'DISABLED') throw new Error(`${code} after the disable was complete`);
    });
  }
}

function rowsOf({ seconds, scriptUs, cpuMs, usual, meanwhile }: Measured): Row[] {
  const held = ['the same API', 'another API'].map((name, i): Row => {
    const [usually = [], then = []] = [usual[i], meanwhile[i]];
    const [usualP99, p99] = [percentile(usually, 0.99), percentile(then, 0.99)];
    const heldUpMs = p99 - median(usually);
    return {
      name: `another key of ${name}, disabled meanwhile: p50 / p99 of ${then.length} disables`,
      value: `${median(then).toFixed(1)} / ${p99.toFixed(1)} ms (usual: ${median(usually).toFixed(1)} / ${usualP99.toFixed(1)} ms; p99 ${(p99 / usualP99).toFixed(1)} × the usual); delay ${heldUpMs.toFixed(1)} ms`,
      target: 'delay ≤ 2 × usual p99',
      met: heldUpMs <= 2 * usualP99,
    };
  });
  const slowest = Math.max(...seconds);
  return [
    {
      name: `all keys disabled and refused everywhere: median / slowest of ${seconds.length} rounds`,
      value: `${median(seconds).toFixed(2)} / ${slowest.toFixed(2)} s`,
      target: 'median ≤ 2 s',
      met: median(seconds) <= 2,
    },
    ...held,
    {
      name: 'Redis meanwhile: share of a core / mean time of a script',
      value: `${Math.round(median(cpuMs) / median(seconds) / 10)} % / ${Math.round(median(scriptUs))} µs`,
    },
  ];
}

async function setAll({ call, keyIds }: Backend, enabled: boolean): Promise<void> {
  const parts = Array.from({ length: KEYS / KEYS_PER_CALL }, (_, i) =>
    keyIds.slice(i * KEYS_PER_CALL, (i + 1) * KEYS_PER_CALL),
  );
  const caller = async () => {
    for (let part = parts.shift(); part; part = parts.shift()) {
      complete(await call('keys.updateKeys', { apiId: 'bench', keyIds: part, enabled }), VERIFIERS);
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, caller));
}

function add(to: number[][], each: readonly number[][]): void {
  for (const [i, taken] of each.entries()) to[i]?.push(...taken);
}

/** The mean time of a script since the statistics were reset, microseconds. */
async function meanScriptUs(redis: Redis): Promise<number> {
  const info = await redis.info('commandstats');
  return Number(/cmdstat_evalsha:.*?usec_per_call=([\d.]+)/.exec(info)?.[1]);
}

export default many;
