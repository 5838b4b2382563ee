import { type Benchmark, inDirectory } from '../harness.ts';
import { interleave, throughputRows, verifyRequest } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const SCRAPE_MS = 1000;

/** Measures what metrics cost the hot path when they are scraped far more often than Prometheus does. */
const metricsCost: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    // The rounds are short because their two loads are compared, and other work of the machine lasts for
    // seconds.
    const rounds = quick ? 3 : 18;
    const backend = await startBackend(directory, 10_000);
    const counting = { ...(await startVerifier(backend)), name: 'metrics on, scraped every second' };
    const other = await startVerifier(backend, 'bench/peers/verifier-without-metrics.ts');
    const silent = { ...other, name: 'nothing counted' };
    const scraping = setInterval(() => {
      fetch(`${counting.adminAddress}/metrics`)
        .then((answer) => answer.arrayBuffer())
        .catch(() => undefined); // the verifier has stopped
    }, SCRAPE_MS);
    try {
      const requests = backend.keys.map(verifyRequest);
      for (const verifier of [counting, silent]) await warm(verifier, backend.keys);
      const contenders = [counting, silent].map(({ name, port }) => ({ name, port, requests }));
      const loads = await interleave(contenders, rounds, 2);
      return {
        title: 'What metrics cost',
        about: `verifyKey from memory, with 10,000 keys, over 32 connections. Medians of ${rounds} rounds of 2 s, in turns, and of the ratio within each round.`,
        rows: throughputRows(loads, { 'nothing counted': 0.97 }),
      };
    } finally {
      clearInterval(scraping);
      for (const { stop } of [counting, silent]) await stop();
      await backend.stop();
    }
  });

export default metricsCost;
