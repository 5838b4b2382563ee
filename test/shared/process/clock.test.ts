import { expect, test } from 'vitest';
import { type Clock, systemClock, Waker } from '../../../shared/process/clock.ts';

/** Time that goes on only by `pass`. */
function steps(): Clock & { pass(): void; readonly waiting: number } {
  const timers = new Set<() => void>();
  return {
    ...systemClock,
    after(_delayMs, run) {
      timers.add(run);
      return { cancel: () => void timers.delete(run) };
    },
    pass() {
      for (const run of timers) run();
    },
    get waiting() {
      return timers.size;
    },
  };
}

test('a waker ends one pause, and leaves no timer', async () => {
  const clock = steps();
  const waker = new Waker();
  let ended = 0;
  const pause = () => waker.pause(clock, 1000).then(() => ended++);

  const woken = pause();
  waker.wake();
  await woken;
  expect([ended, clock.waiting]).toEqual([1, 0]);
  await pause(); // still woken
  expect([ended, clock.waiting]).toEqual([2, 0]);

  waker.reset();
  const timed = pause();
  await new Promise(setImmediate);
  expect([ended, clock.waiting]).toEqual([2, 1]);
  clock.pass();
  await timed;
  expect([ended, clock.waiting]).toEqual([3, 0]);
});
