import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { generateKey } from '../shared/key-format.ts';
import { type Benchmark, inDirectory, median, pin } from './harness.ts';
import { type OpenLoop, openLoop, SERVER_CORE } from './load.ts';
import { startBackend, startPeer, startVerifier, warm } from './servers.ts';

const RATE = 2000;
const FLOOD_RATE = 2000;
/**
 * Rounds that are not counted, until V8 has compiled all that is done now and then, the first usage report after a minute
 * included: its helpers run on the verifier's core.
 */
const WARM_UPS = 8;
/**
 * Many short ones rather than few long ones, because what else the machine does comes in bursts of seconds. The half
 * counts in which it did least, as seen by a server that does nothing.
 */
const ROUNDS = 24;

interface Round {
  readonly floor: OpenLoop;
  readonly alone: OpenLoop;
  readonly besideUnknown: OpenLoop;
  readonly besideMalformed: OpenLoop;
  readonly lookups: number;
}

/** Whether callers with good keys notice somebody who tries made-up ones. */
const flood: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    // The generator spins on its core, and would be what a Redis beside it slows down.
    pin(backend.redisPid, SERVER_CORE);
    const verifier = await startVerifier(backend);
    await warm(verifier, backend.keys);
    const constant = await startPeer('constant bytes', 'constant-bytes.ts');
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
    const all: Round[] = [];
    try {
      for (let round = -warmUps; round < rounds; round++) {
        const alone = await openLoop(verifier.port, seconds, good);
        const floor = await openLoop(constant.port, seconds, good);
        const before = await lookupsOf(verifier.adminAddress);
        const besideUnknown = await beside(madeUp);
        const lookups = (await lookupsOf(verifier.adminAddress)) - before;
        const besideMalformed = await beside(malformed);
        if (round >= 0) all.push({ floor, alone, besideUnknown, besideMalformed, lookups });
      }
    } finally {
      await constant.stop();
      await verifier.stop();
      await backend.stop();
    }
    const quiet = all.sort((a, b) => a.floor.p99 - b.floor.p99).slice(0, Math.ceil(rounds / 2));
    // Within each round, whose loads were near in time.
    const ratio = (of: LoadName) => median(quiet.map((round) => round[of].p99 / round.alone.p99));
    const p99 = (of: LoadName) => `p99 ${median(quiet.map((round) => round[of].p99)).toFixed(2)} ms`;
    const valid = (of: LoadName) => sum(all, of, 'valid') / sum(all, of, 'all');
    const row = (name: string, of: LoadName) => ({
      name,
      value: `${p99(of)} (${ratio(of).toFixed(2)} ×), ${(100 * valid(of)).toFixed(3)} % valid`,
    });
    const met = ratio('besideUnknown') <= 2 && valid('besideUnknown') === 1;
    return {
      title: 'A flood of unknown keys',
      about: `Good keys at ${RATE.toLocaleString('en')} requests/s over 32 connections; beside them ${FLOOD_RATE.toLocaleString('en')} requests/s with random keys over 32 more. Redis is on the verifier's core. Medians of ${quiet.length} rounds of ${seconds} s each, and of the ratios within each: of ${rounds} those in which the floor's p99 was lowest, after ${warmUps} that warm up.`,
      rows: [
        { name: 'the floor: a socket that answers constant bytes', value: p99('floor') },
        row('good keys alone', 'alone'),
        { ...row('beside well-formed unknown keys', 'besideUnknown'), target: '≤ 2 ×, all valid', met },
        row('beside malformed keys', 'besideMalformed'),
        {
          name: 'look-ups in Redis for each unknown key asked for',
          value: (median(quiet.map(({ lookups }) => lookups)) / (FLOOD_RATE * (seconds + 1))).toFixed(2),
        },
      ],
    };
  });

type LoadName = Exclude<keyof Round, 'lookups'>;

const sum = (rounds: readonly Round[], of: LoadName, field: 'valid' | 'all') =>
  rounds.reduce((total, round) => total + round[of][field], 0);

async function lookupsOf(adminAddress: string): Promise<number> {
  const text = await (await request(`${adminAddress}/metrics`)).body.text();
  return [...text.matchAll(/^keyfence_lookups_total(?:\{.*\})? (\S+)$/gm)].reduce(
    (total, [, n]) => total + Number(n),
    0,
  );
}

export default flood;
