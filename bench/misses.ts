import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Benchmark, inDirectory, median, percentile, pinned } from './harness.ts';
import { LOAD_CORE, SERVER_CORE } from './load.ts';
import { startBackend, startVerifier } from './servers.ts';

interface Measured {
  readonly get: number;
  readonly lookUp: number;
}

/** Measures the cost of a key that is not in memory: its pointer, and SYNC with its record. */
const misses: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const rounds = quick ? 1 : 5;
    const count = 2000;
    const backend = await startBackend(directory, count);
    const inProcess: Measured[] = [];
    const http: number[] = [];
    try {
      for (let round = 0; round < rounds; round++) {
        const [file = '', ...args] = pinned(LOAD_CORE, [
          process.execPath,
          join(import.meta.dirname, 'look-ups.ts'),
          backend.keysFile,
        ]);
        const { stdout } = await promisify(execFile)(file, args, { env: { ...process.env, ...backend.env } });
        inProcess.push(JSON.parse(stdout) as Measured);
        const verifier = await startVerifier(backend);
        const ms: number[] = [];
        for (const key of backend.keys) {
          const startedAt = performance.now();
          const { code } = await verifier.verify(key);
          ms.push(performance.now() - startedAt);
          if (code !== 'VALID') throw new Error(`${code}`);
        }
        http.push(percentile(ms, 0.5));
        await verifier.stop();
      }
    } finally {
      await backend.stop();
    }
    const get = median(inProcess.map((each) => each.get));
    const lookUp = median(inProcess.map((each) => each.lookUp));
    return {
      title: 'A key that is not in memory',
      about: `${count.toLocaleString('en')} keys of one API, one after the other, each once; Redis on the same machine over a unix socket; medians of ${rounds}. Over HTTP: the verifier on core ${SERVER_CORE}, the caller anywhere.`,
      rows: [
        { name: 'a bare ioredis GET, p50', value: `${get.toFixed(3)} ms` },
        {
          name: 'a look-up (pointer, and SYNC with the record), p50',
          value: `${lookUp.toFixed(3)} ms (${(lookUp / get).toFixed(2)} ×)`,
          target: '≤ 3 ×',
          met: lookUp <= 3 * get,
        },
        { name: 'verifyKey over HTTP that needs a look-up, p50', value: `${median(http).toFixed(3)} ms` },
      ],
    };
  });

export default misses;
