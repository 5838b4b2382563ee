import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Benchmark, inDirectory, median } from './harness.ts';
import { type Load, SERVER_CORE, verifyLoad } from './load.ts';
import { startBackend, startVerifier, warm } from './servers.ts';

const SAMPLE = 100_000;

/** What an answer costs by the number of keys in memory. */
const keyCount: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const counts = quick ? [1000, 20_000] : [1000, 10_000, 100_000, 1_000_000];
    const backend = await startBackend(directory, counts.at(-1) ?? 0);
    const verifiers = [];
    const loads = counts.map((): Load[] => []);
    try {
      for (const count of counts) {
        const verifier = await startVerifier(backend);
        verifiers.push(verifier);
        await warm(verifier, backend.keys.slice(0, count));
      }
      for (let round = 0; round < (quick ? 3 : 5); round++) {
        for (const [i, count] of counts.entries()) {
          const asked = backend.keys.slice(0, count);
          const sample = asked.filter((_, n) => n % Math.ceil(count / SAMPLE) === 0);
          const file = join(directory, `sample-${count}.txt`);
          writeFileSync(file, sample.join('\n'));
          const load = await verifyLoad(verifiers[i]?.port ?? 0, file, sample, quick ? 2 : 5);
          if (load.errors > 0) throw new Error(`${load.errors} errors`);
          loads[i]?.push(load);
        }
      }
    } finally {
      for (const verifier of verifiers) await verifier.stop();
      await backend.stop();
    }
    const rates = loads.map((all) => median(all.map(({ requestsPerSecond }) => requestsPerSecond)));
    return {
      title: 'What an answer costs by the number of keys in memory',
      about: `Asked for at random over 32 connections (of more than ${SAMPLE.toLocaleString('en')} keys: so many of them, evenly spread); each verifier on core ${SERVER_CORE}, the load on the other; interleaved, medians.`,
      rows: counts.map((count, i) => {
        const ratio = (rates[0] ?? 0) / (rates[i] ?? 0);
        return {
          name: `${count.toLocaleString('en')} keys`,
          value: `${Math.round(rates[i] ?? 0).toLocaleString('en')} requests/s, cost ${ratio.toFixed(2)} ×`,
          ...(i === counts.length - 1 ? { target: 'within 1.3 ×', met: ratio <= 1.3 } : {}),
        };
      }),
    };
  });

export default keyCount;
