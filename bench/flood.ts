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
/**
 * Rounds that are not counted, until V8 has compiled all that is done now and then, the first usage report after a minute
 * included: its helpers run on the verifier's core.
 */
const WARM_UPS = 8;
/** Many short ones rather than few long ones, because what else the machine does comes in bursts of seconds. */
const ROUNDS = 17;

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
    const seconds = 2;
    const [warmUps, rounds] = quick ? [1, 1] : [WARM_UPS, ROUNDS];
    const good = { keysFile: backend.keysFile, rate: RATE };
    const beside = (keysFile: string) =>
      openLoop(verifier.port, seconds, good, { keysFile, rate: FLOOD_RATE });
    const unloaded: OpenLoop[] = [];
    const underUnknown: OpenLoop[] = [];
    const underMalformed: OpenLoop[] = [];
    const lookups: number[] = [];
    try {
      for (let round = -warmUps; round < rounds; round++) {
        const alone = await openLoop(verifier.port, seconds, good);
        const before = await lookupsOf(verifier.adminAddress);
        const besideUnknown = await beside(madeUp);
        const asked = (await lookupsOf(verifier.adminAddress)) - before;
        const besideMalformed = await beside(malformed);
        if (round < 0) continue;
        unloaded.push(alone);
        underUnknown.push(besideUnknown);
        lookups.push(asked);
        underMalformed.push(besideMalformed);
      }
    } finally {
      await verifier.stop();
      await backend.stop();
    }
    // Within each round, whose loads were near in time.
    const ratio = (all: readonly OpenLoop[]) =>
      median(all.map(({ p99 }, round) => p99 / (unloaded[round]?.p99 ?? Number.NaN)));
    const row = (name: string, all: readonly OpenLoop[]) => ({
      name,
      value: `p99 ${median(all.map(({ p99 }) => p99)).toFixed(2)} ms (${ratio(all).toFixed(2)} ×), ${((100 * sum(all, 'valid')) / sum(all, 'all')).toFixed(3)} % valid`,
    });
    const met = ratio(underUnknown) <= 2 && sum(underUnknown, 'valid') === sum(underUnknown, 'all');
    return {
      title: 'A flood of unknown keys',
      about: `Good keys at ${RATE.toLocaleString('en')} requests/s over 32 connections; beside them ${FLOOD_RATE.toLocaleString('en')} requests/s with random keys over 32 more. Redis is on the verifier's core. Medians of ${rounds} rounds of ${seconds} s each, and of the ratios within each, after ${warmUps} rounds that are not counted.`,
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
