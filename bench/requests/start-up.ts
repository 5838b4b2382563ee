import { execFileSync } from 'node:child_process';
import { readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { type Benchmark, inDirectory, median } from '../harness.ts';
import { fullLoad, verifyRequest } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const ROOT = join(import.meta.dirname, '../..');
const MIB = 2 ** 20;

interface Measured {
  readonly readyMs: number;
  readonly idle: number;
  readonly busy: number;
}

/** Measures how soon a verifier is ready, and its memory: as in the image, and from TypeScript. */
const startUp: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const image = join(directory, 'image');
    execFileSync(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', 'deploy/image/build.ts', image],
      {
        cwd: ROOT,
      },
    );
    symlinkSync(join(ROOT, 'node_modules'), join(image, 'node_modules'));
    const backend = await startBackend(directory, 10_000);
    const requests = backend.keys.map(verifyRequest);
    const measure = async (main: string): Promise<Measured> => {
      const all: Measured[] = [];
      for (let round = 0; round < (quick ? 1 : 5); round++) {
        const startedAt = performance.now();
        const verifier = await startVerifier(backend, main);
        while ((await fetch(`${verifier.adminAddress}/readyz`)).status !== 200) await pause(5);
        const readyMs = performance.now() - startedAt;
        await pause(2000);
        const idle = residentBytes(verifier.pid);
        await warm(verifier, backend.keys);
        await fullLoad(verifier.port, requests, quick ? 2 : 10);
        all.push({ readyMs, idle, busy: residentBytes(verifier.pid) });
        await verifier.stop();
      }
      const of = (field: keyof Measured) => median(all.map((each) => each[field]));
      return { readyMs: of('readyMs'), idle: of('idle'), busy: of('busy') };
    };
    try {
      const built = await measure(join(image, 'verifier/main.js'));
      const source = await measure(join(ROOT, 'verifier/main.ts'));
      const row = (name: string, field: keyof Measured, unit: number, suffix: string, target: number) => ({
        name: `${name}, run from the image (run from source)`,
        value: `${Math.round(built[field] / unit)} ${suffix} (${Math.round(source[field] / unit)})`,
        target: `≤ ${target} ${suffix}`,
        met: built[field] / unit <= target,
      });
      return {
        title: 'Start and memory of a verifier',
        about:
          'Time from the start of the process until /readyz answers 200, with one API. Resident memory (RSS) 2 s later, and after full load with 10,000 keys. The image has the verifier as one bundled file; the number in brackets is that of the TypeScript sources.',
        rows: [
          row('ready', 'readyMs', 1, 'ms', 120),
          row('RSS idle', 'idle', MIB, 'MiB', 64),
          row('RSS after full load', 'busy', MIB, 'MiB', 100),
        ],
      };
    } finally {
      await backend.stop();
    }
  });

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

export default startUp;
