// `within.ts COMMAND…`: runs the tests by this command, and fails where they fail or cost too much.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Measured } from '../page.ts';
import { costOf, yardstickS } from './cpu-time.ts';
import { COST } from './tests.ts';

/** How much dearer than recorded the tests may get. */
const GROWTH_MAX = 1.5;

const before = await yardstickS();
const { status, cpuS, wallS } = await costOf(process.argv.slice(2));
const cost = cpuS / ((before + (await yardstickS())) / 2);
const results = readFileSync(join(import.meta.dirname, '..', 'results.json'), 'utf8');
const recorded = (JSON.parse(results) as Measured[])
  .find(({ name }) => name === 'tests')
  ?.rows.find(({ name }) => name === COST)?.value;
const limit = GROWTH_MAX * Number(recorded ?? Number.POSITIVE_INFINITY);
console.log(
  `npm test: ${wallS.toFixed(0)} s, ${cpuS.toFixed(0)} s of processor time, ${cost.toFixed(0)} × that of a fixed computation (at most ${limit.toFixed(0)})`,
);
if (cost > limit)
  console.log('That is too much. Make tests cheaper, or record it: npm run bench -- tests --write');
process.exitCode = status !== 0 ? status : Number(cost > limit);
