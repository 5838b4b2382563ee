import type { Benchmark } from '../harness.ts';
import { costOf, yardstickS } from './cpu-time.ts';

/** The row that `within.ts` reads. */
export const COST = 'processor time ÷ that of a fixed computation';

/** Measures what `npm test` costs, on a machine that does nothing else. */
const tests: Benchmark = async () => {
  const before = await yardstickS();
  const { status, cpuS, wallS } = await costOf(['npm', 'test']);
  if (status !== 0) throw new Error('npm test failed');
  const yardstick = (before + (await yardstickS())) / 2;
  return {
    title: 'Tests',
    about: `\`npm test\`, which needs nothing but Node and Redis. CI fails if the ratio grows to 1.5 of this one.`,
    rows: [
      { name: 'time', value: `${wallS.toFixed(0)} s`, target: '≤ 240 s', met: wallS <= 240 },
      { name: 'processor time', value: `${cpuS.toFixed(0)} s`, target: '≤ 400 s', met: cpuS <= 400 },
      { name: COST, value: (cpuS / yardstick).toFixed(0) },
    ],
  };
};

export default tests;
