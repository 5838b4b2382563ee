import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Benchmark, pinned } from '../harness.ts';
import { SERVER_CORE } from '../load/load.ts';
import { SEMI_SPACES } from '../servers.ts';

interface Measured {
  readonly verifyNs: number;
  readonly hashNs: number;
  readonly heapBytes: number;
  readonly rssBytes: number;
}

/** Measures the memory of a cached key, and a verification without HTTP, by the number of keys. */
const memory: Benchmark = async ({ quick }) => {
  const measure = async (count: number): Promise<Measured> => {
    const [file = '', ...args] = pinned(SERVER_CORE, [
      process.execPath,
      '--expose-gc',
      SEMI_SPACES,
      join(import.meta.dirname, 'cached-keys.ts'),
      String(count),
    ]);
    const { stdout } = await promisify(execFile)(file, args);
    return JSON.parse(stdout) as Measured;
  };
  const many = quick ? 200_000 : 1_000_000;
  const small = await measure(1000);
  const large = await measure(many);
  const ratio = large.verifyNs / small.verifyNs;
  const count = many.toLocaleString('en');
  return {
    title: 'A cached key',
    about: `The keys have an empty meta. The verifier loads them with its own look-ups from a stub of Redis. The benchmark then asks for a sample of 1,000 keys in turn, on core ${SERVER_CORE}. SHA-256 takes ${Math.round(small.hashNs)} ns of each verification.`,
    rows: [
      {
        name: 'verify in process, 1,000 keys',
        value: `${(small.verifyNs / 1000).toFixed(2)} µs`,
        target: '≤ 2 µs',
        met: small.verifyNs <= 2000,
      },
      {
        name: `verify in process, ${count} keys`,
        value: `${(large.verifyNs / 1000).toFixed(2)} µs (${ratio.toFixed(2)} ×)`,
      },
      {
        name: `heap for each of ${count} keys`,
        value: `${Math.round(large.heapBytes)} bytes`,
        target: '≤ 250 bytes',
        met: large.heapBytes <= 250,
      },
      {
        name: `RSS for each of ${count} keys`,
        value: `${Math.round(large.rssBytes)} bytes`,
        target: '≤ 450 bytes',
        met: large.rssBytes <= 450,
      },
    ],
  };
};

export default memory;
