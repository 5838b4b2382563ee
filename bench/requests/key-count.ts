import { type Benchmark, inDirectory } from '../harness.ts';
import { interleave, type Load, verifyRequest } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const SAMPLE = 100_000;

/** Measures the cost of an answer by the number of keys in memory. */
const keyCount: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const counts = quick ? [1000, 20_000] : [1000, 100_000, 1_000_000];
    const backend = await startBackend(directory, counts.at(-1) ?? 0);
    const contenders = [];
    try {
      for (const count of counts) {
        const verifier = await startVerifier(backend);
        const keys = backend.keys.slice(0, count);
        await warm(verifier, keys);
        const step = Math.ceil(count / SAMPLE);
        const requests = keys.filter((_, n) => n % step === 0).map(verifyRequest);
        contenders.push({ ...verifier, name: `${count.toLocaleString('en')} keys`, requests });
      }
      const loads = [...(await interleave(contenders, quick ? 3 : 5, quick ? 2 : 3))];
      const costOf = (load: Load) => (loads[0]?.[1].requestsPerSecond ?? 0) / load.requestsPerSecond;
      return {
        title: 'The cost of an answer, by the number of keys in memory',
        about: `32 connections ask for random keys. If there are more than ${SAMPLE.toLocaleString('en')} keys, they ask for only that many, evenly spread. Medians of all rounds, in turns.`,
        panels: [
          {
            unit: 'cost of an answer, that with the fewest keys = 1',
            digits: 2,
            values: loads.map(([name, load]) => ({ name, value: costOf(load) })),
          },
        ],
        rows: loads.map(([name, load], i) => {
          const ratio = costOf(load);
          return {
            name,
            value: `${Math.round(load.requestsPerSecond).toLocaleString('en')} requests/s, cost ${ratio.toFixed(2)} ×`,
            ...(i === loads.length - 1 ? { target: 'within 1.3 ×', met: ratio <= 1.3 } : {}),
          };
        }),
      };
    } finally {
      for (const { stop } of contenders) await stop();
      await backend.stop();
    }
  });

export default keyCount;
