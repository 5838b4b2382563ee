import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { generateKey } from '../shared/key-format.ts';
import { type Benchmark, inDirectory, median, pin } from './harness.ts';
import { type OpenLoop, openLoop, SERVER_CORE } from './load.ts';
import { startBackend, startVerifier, warm } from './servers.ts';

const RATE = 2000;
const FLOOD_RATE = 2000;

/** Whether callers with good keys notice somebody who tries made-up ones. */
const flood: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    // The generator spins on its core, and would be what a Redis beside it slows down.
    pin(backend.redisPid, SERVER_CORE);
    const verifier = await startVerifier(backend);
    await warm(verifier, backend.keys);
    const madeUp = join(directory, 'made-up.txt');
    writeFileSync(madeUp, Array.from({ length: 100_000 }, () => generateKey(16)).join('\n'));
    const malformed = join(directory, 'malformed.txt');
    writeFileSync(
      malformed,
      Array.from({ length: 10_000 }, () => randomBytes(24).toString('base64url')).join('\n'),
    );
    const seconds = 3;
    const warmUps = quick ? 1 : 10;
    const good = { keysFile: backend.keysFile, rate: RATE };
    const beside = (keysFile: string) =>
      openLoop(verifier.port, seconds, good, { keysFile, rate: FLOOD_RATE });
    const unloaded: OpenLoop[] = [];
    const underUnknown: OpenLoop[] = [];
    const underMalformed: OpenLoop[] = [];
    const lookups: number[] = [];
    try {
      // Until V8 has compiled what looks up, connects and leaves: its helpers run on the verifier's core.
      for (let round = 0; round < warmUps; round++) await beside(madeUp);
      for (let round = 0; round < (quick ? 1 : 9); round++) {
        unloaded.push(await openLoop(verifier.port, seconds, good));
        const before = await lookupsOf(verifier.adminAddress);
        underUnknown.push(await beside(madeUp));
        lookups.push((await lookupsOf(verifier.adminAddress)) - before);
        underMalformed.push(await beside(malformed));
      }
    } finally {
      await verifier.stop();
      await backend.stop();
    }
    const p99 = (all: readonly OpenLoop[]) => median(all.map((each) => each.p99));
    const calm = p99(unloaded);
    const row = (name: string, all: readonly OpenLoop[]) => ({
      name,
      value: `p99 ${p99(all).toFixed(2)} ms (${(p99(all) / calm).toFixed(2)} ×), ${((100 * sum(all, 'valid')) / sum(all, 'all')).toFixed(3)} % valid`,
    });
    const met = p99(underUnknown) <= 2 * calm && sum(underUnknown, 'valid') === sum(underUnknown, 'all');
    return {
      title: 'A flood of unknown keys',
      about: `Good keys at ${RATE.toLocaleString('en')} requests/s over 32 connections; beside them ${FLOOD_RATE.toLocaleString('en')} requests/s with random keys over 32 more. Redis is on the verifier's core. Medians, after ${warmUps} rounds of flood that are not counted.`,
      rows: [
        row('good keys alone', unloaded),
        { ...row('beside well-formed unknown keys', underUnknown), target: '≤ 2 ×, all valid', met },
        row('beside malformed keys', underMalformed),
        {
          name: 'look-ups in Redis for each unknown key asked for',
          value: (median(lookups) / (FLOOD_RATE * (seconds + 1))).toFixed(2),
        },
      ],
    };
  });

const sum = (all: readonly OpenLoop[], field: 'valid' | 'all') =>
  all.reduce((total, each) => total + each[field], 0);

async function lookupsOf(adminAddress: string): Promise<number> {
  const text = await (await request(`${adminAddress}/metrics`)).body.text();
  return [...text.matchAll(/^keyfence_lookups_total(?:\{.*\})? (\S+)$/gm)].reduce(
    (total, [, n]) => total + Number(n),
    0,
  );
}

export default flood;
