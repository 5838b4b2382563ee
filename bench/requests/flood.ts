import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { generateKey } from '../../shared/rules/key-format.ts';
import { type Benchmark, inDirectory, median, pin, type Row } from '../harness.ts';
import { type OpenLoop, openLoop, SERVER_CORE } from '../load/load.ts';
import { startBackend, startVerifier, warm } from '../servers.ts';

const RATE = 2000;
const FLOOD_RATE = 2000;
/** Number of loads in a turn: good keys alone, with unknown keys, with malformed keys. */
const LOADS = 3;
/** Number of turns per run; a turn has one second of each load. */
const TURNS = 10;
/**
 * Number of runs. The first runs are not counted, so that V8 has compiled even rare work (including the usage
 * report after a minute): its helper threads run on the verifier's core.
 */
const RUNS = 10;
const WARM_UPS = 3;

/** Measures what callers with good keys notice of a flood of made-up keys. */
const flood: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 10_000);
    // The generator spins on its core; it would be slowed down by a Redis on the same core.
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
    const streams = [
      { keysFile: backend.keysFile, rate: RATE },
      { keysFile: madeUp, rate: FLOOD_RATE },
      { keysFile: malformed, rate: FLOOD_RATE },
    ] as const;
    const [warmUps, runs, turns] = quick ? [0, 1, 2] : [WARM_UPS, RUNS, TURNS];
    const seen: OpenLoop[] = [];
    const lookupsBefore = await lookupsOf(verifier.adminAddress);
    let lookups: number;
    try {
      for (let run = -warmUps; run < runs; run++) {
        const each = await openLoop(verifier.port, turns * LOADS, ...streams);
        if (run >= 0) seen.push(each);
      }
      lookups = (await lookupsOf(verifier.adminAddress)) - lookupsBefore;
    } finally {
      await verifier.stop();
      await backend.stop();
    }
    return {
      title: 'A flood of unknown keys',
      about: `Requests with good keys arrive at ${RATE.toLocaleString('en')} requests/s over 32 connections. Each turn has three phases of one second: good keys alone; together with ${FLOOD_RATE.toLocaleString('en')} requests/s with random keys over 32 further connections; together with as many with malformed keys. Redis shares the verifier's core. Medians of ${runs * turns} turns, and of the ratio within each turn, after ${warmUps * (turns + 1)} warm-up turns.`,
      rows: rowsOf(seen, lookups / (FLOOD_RATE * (warmUps + runs) * (turns + 1))),
    };
  });

/** @param lookupsEach look-ups in Redis for each unknown key; the generator's own first turn counts too */
function rowsOf(seen: readonly OpenLoop[], lookupsEach: number): Row[] {
  const p99s = seen.flatMap(({ p99s }) => p99s);
  const of = (load: number) => p99s.filter((_, second) => second % LOADS === load);
  const alone = of(0);
  // Take ratios within each turn, whose loads ran close together.
  const ratio = (load: number) => median(of(load).map((p99, turn) => p99 / (alone[turn] ?? Number.NaN)));
  const row = (name: string, load: number) => ({
    name,
    value: `p99 ${median(of(load)).toFixed(2)} ms (${ratio(load).toFixed(2)} ×)`,
  });
  const valid = sum(seen, 'valid') / sum(seen, 'all');
  return [
    row('good keys alone', 0),
    { ...row('good keys, together with well-formed unknown keys', 1), target: '≤ 2 ×', met: ratio(1) <= 2 },
    row('good keys, together with malformed keys', 2),
    {
      name: 'share of good keys that were accepted',
      value: `${(100 * valid).toFixed(3)} %`,
      target: 'all',
      met: valid === 1,
    },
    {
      name: 'look-ups in Redis for each request with an unknown key',
      value: lookupsEach.toFixed(2),
    },
  ];
}

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
