import { afterEach, beforeEach, expect, test } from 'vitest';
import { LoadShedding } from '../../../../control-plane/core/serve/load-shedding.ts';
import type { Clock } from '../../../../shared/process/clock.ts';
import { blockFor } from '../../../harness/waiting.ts';

/** Load shedding on a clock that the test moves, while the event loop is kept busy all the time. */
let nowMs = 0;
let blocked: NodeJS.Timeout;
const clock: Clock = {
  monotonicMs: () => nowMs,
  wallMs: () => nowMs,
  after: () => ({ cancel: () => undefined }),
};

beforeEach(() => {
  nowMs = 0;
  blocked = setInterval(() => blockFor(30), 1);
});
afterEach(() => clearInterval(blocked));

function shedding(delayMsMax: number) {
  const load = new LoadShedding(delayMsMax, clock);
  const isDue = async (laterMs: number) => {
    nowMs += laterMs;
    await new Promise(setImmediate); // timers are what blocks the loop, and what samples it
    return load.isDue();
  };
  return { load, isDue };
}

test('refuses calls when the event loop lags long', async () => {
  const { load, isDue } = shedding(1);
  const giveUpAtMs = performance.now() + 15_000;
  while (!(await isDue(600))) expect(performance.now()).toBeLessThan(giveUpAtMs);

  // One pause is over by the next sample: nothing was seen for two of them.
  expect(await isDue(1001)).toBe(false);
  expect(await isDue(500)).toBe(false);
  expect(await isDue(1)).toBe(true);
  expect(await isDue(1000)).toBe(true);
  load.stop();
});

test('refuses nothing where no delay is too much', async () => {
  const { load, isDue } = shedding(0);
  const untilMs = performance.now() + 1200; // two samples, which it takes by the real clock
  while (performance.now() < untilMs) expect(await isDue(600)).toBe(false);
  load.stop();
});
