import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Clock } from '../../../shared/process/clock.ts';
import { type Deadline, Deadlines } from '../../../shared/process/deadlines.ts';
import { SlotList } from '../../../shared/process/slot-list.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

/** Steps, each on one of a few things: it is added where it is not there, and else taken out. */
const steps = fc.array(fc.nat(11), { maxLength: 60 });

test('a bag has what a set has', () => {
  fc.assert(
    fc.property(steps, (all) => {
      const bag = new SlotList<{ n: number }>();
      const places = new Map<number, number>();
      for (const n of all) {
        const place = places.get(n);
        if (place === undefined) places.set(n, bag.add({ n }));
        else {
          bag.remove(place);
          places.delete(n);
        }
        expect(bag.size).toBe(places.size);
        expect([...bag].map((item) => item.n).sort()).toEqual([...places.keys()].sort());
      }
    }),
  );
});

interface Passed {
  n: number;
  atMs: number;
}

/** Those of one moment pass in no order. */
const inOrder = (a: Passed, b: Passed) => a.atMs - b.atMs || a.n - b.n;

test('a deadline passes once, unless ended', async () => {
  const LIMIT_MS = 20;
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const timeline = new Timeline();
      let timers = 0;
      const clock: Clock = {
        monotonicMs: () => timeline.nowMs,
        wallMs: () => 0,
        after(delayMs, run) {
          timers++;
          return timeline.after(delayMs, () => {
            timers--;
            run();
          });
        },
      };
      const passed: Passed[] = [];
      const deadlines = new Deadlines<number>(clock, LIMIT_MS, (n) =>
        passed.push({ n, atMs: timeline.nowMs }),
      );
      const running = new Map<number, { deadline: Deadline<number>; atMs: number }>();
      const expected: Passed[] = [];
      for (const n of all) {
        await timeline.run(timeline.nowMs + n);
        for (const [n, { atMs, deadline }] of running) {
          expect(deadline.hasPassed).toBe(atMs + LIMIT_MS <= timeline.nowMs);
          if (!deadline.hasPassed) continue;
          expected.push({ n, atMs: atMs + LIMIT_MS });
          running.delete(n);
          deadlines.end(deadline); // as its owner does afterwards; without effect
        }
        expect(passed.sort(inOrder)).toEqual(expected.sort(inOrder));
        const known = running.get(n);
        if (known) deadlines.end(known.deadline);
        if (known) running.delete(n);
        else running.set(n, { deadline: deadlines.begin(n), atMs: timeline.nowMs });
        expect(timers).toBeLessThanOrEqual(1);
      }
      await timeline.run(timeline.nowMs + 2 * LIMIT_MS);
      expect(passed.length).toBe(expected.length + running.size);
      expect(timers).toBe(0);
    }),
  );
});
