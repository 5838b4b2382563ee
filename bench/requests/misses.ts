import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { type Benchmark, inDirectory, median, percentile, pinned } from '../harness.ts';
import { LOAD_CORE, SERVER_CORE } from '../load/load.ts';
import { type Backend, startBackend, startVerifier } from '../servers.ts';

const IMPORTED_AT_ONCE = 500;

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
    const withoutIdentities: Measured[] = [];
    const withIdentities: Measured[] = [];
    const http: number[] = [];
    try {
      for (let round = 0; round < rounds; round++) {
        inProcess.push(await lookUps(backend, backend.keysFile));
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
      const file = join(directory, 'owned.txt');
      writeFileSync(file, (await ownedKeys(backend, count)).join('\n'));
      for (let round = 0; round < rounds; round++) withoutIdentities.push(await lookUps(backend, file));
      await backend.call('identities.createIdentity', { externalId: 'somebody' });
      for (let round = 0; round < rounds; round++) withIdentities.push(await lookUps(backend, file));
    } finally {
      await backend.stop();
    }
    const get = median(inProcess.map((each) => each.get));
    const lookUp = median(inProcess.map((each) => each.lookUp));
    return {
      title: 'A key that is not in memory',
      about: `One caller asks for each of ${count.toLocaleString('en')} keys of one API once, one after the other. Redis runs on the same machine and is reached through a Unix socket. A look-up finds the API of the key, and reads the record together with a SYNC. Medians of ${rounds} rounds. In the row over HTTP the verifier runs on core ${SERVER_CORE} and the caller on any core.`,
      rows: [
        { name: 'a bare ioredis GET, p50', value: `${get.toFixed(3)} ms` },
        {
          name: 'a look-up (find the API, then SYNC with the record), p50',
          value: `${lookUp.toFixed(3)} ms (${(lookUp / get).toFixed(2)} ×)`,
          target: '≤ 3 ×',
          met: lookUp <= 3 * get,
        },
        {
          name: 'a look-up of a key with an external id, while there are no identities, p50',
          value: `${median(withoutIdentities.map((each) => each.lookUp)).toFixed(3)} ms`,
        },
        {
          name: 'a look-up of a key with an external id, where the state of its identity is not in memory, p50',
          value: `${median(withIdentities.map((each) => each.lookUp)).toFixed(3)} ms`,
        },
        { name: 'verifyKey over HTTP that needs a look-up, p50', value: `${median(http).toFixed(3)} ms` },
      ],
    };
  });

/** Looks up each key of a file once, in a separate process. */
async function lookUps({ env }: Backend, keysFile: string): Promise<Measured> {
  const script = join(import.meta.dirname, 'look-ups.ts');
  const [file = '', ...args] = pinned(LOAD_CORE, [process.execPath, script, keysFile]);
  const { stdout } = await promisify(execFile)(file, args, { env: { ...process.env, ...env } });
  return JSON.parse(stdout) as Measured;
}

/** Imports more keys, each with a different owner. */
async function ownedKeys({ call }: Backend, count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, () => generateKey(16));
  for (let i = 0; i < count; i += IMPORTED_AT_ONCE) {
    const some = keys.slice(i, i + IMPORTED_AT_ONCE);
    const imported = some.map((key, n) => ({
      ...{ sha256: hashSecret(key), foreign: false, externalId: `owner ${i + n}` },
    }));
    await call('keys.importKeys', { apiId: 'bench', keys: imported });
  }
  return keys;
}

export default misses;
