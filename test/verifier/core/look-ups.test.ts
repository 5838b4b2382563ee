import fc from 'fast-check';
import { expect, test } from 'vitest';
import { SingleFlight } from '../../../verifier/core/look-ups.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

/** Steps, each on one of a few digests: somebody asks for it, or its look-up ends. */
const steps = fc.array(fc.record({ n: fc.nat(11), ends: fc.boolean() }), { maxLength: 60 });
const WAIT_MS = 20;

test('a digest has one look-up for all who ask', async () => {
  // Four of each begin alike, and so share a chain.
  const digestOf = (n: number) => `${'abc'[n % 3]}x${n}`;
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const timeline = new Timeline();
      const clock = {
        monotonicMs: () => timeline.nowMs,
        wallMs: () => 0,
        after: (ms: number, run: () => void) => timeline.after(ms, run),
      };
      const reading = new Map<string, PromiseWithResolvers<string>>();
      const read = (digest: string) => {
        expect(reading.has(digest)).toBe(false);
        const begun = Promise.withResolvers<string>();
        reading.set(digest, begun);
        return begun.promise;
      };
      const lookUps = new SingleFlight<string, number, string>({
        clock,
        waitMs: WAIT_MS,
        read,
        answer(found, question) {
          if (question % 5 === 0) throw new Error(`${question} has no answer`);
          return `${found} to ${question}`;
        },
        tooSlow: () => new Error('too slow'),
      });
      const asked: { digest: string; question: number; sinceMs: number; got?: string; due?: string }[] = [];
      for (const [i, { n, ends }] of all.entries()) {
        const digest = digestOf(n);
        if (!ends) {
          const mine: (typeof asked)[number] = { digest, question: i, sinceMs: timeline.nowMs };
          asked.push(mine);
          lookUps.lookUp(digest, i).then(
            (value) => {
              mine.got = value;
            },
            (error) => {
              mine.got = error.message;
            },
          );
        } else {
          const begun = reading.get(digest);
          const works = i % 2 === 0;
          if (works) begun?.resolve(`${digest} ${i}`);
          else begun?.reject(new Error(`${digest} ${i}`));
          reading.delete(digest);
          for (const each of begun ? asked : []) {
            if (each.digest !== digest) continue;
            const answer =
              each.question % 5 === 0
                ? `${each.question} has no answer`
                : `${digest} ${i} to ${each.question}`;
            each.due ??= works ? answer : `${digest} ${i}`;
          }
        }
        await timeline.run(timeline.nowMs + (n % 4));
        for (const each of asked) if (each.sinceMs + WAIT_MS <= timeline.nowMs) each.due ??= 'too slow';
        expect(asked.map(({ got }) => got)).toEqual(asked.map(({ due }) => due));
        expect(lookUps.size).toBe(reading.size);
      }
    }),
  );
});

test('judges no question that took too long', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => 0,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  const begun = Promise.withResolvers<string>();
  const judged: string[] = [];
  const lookUps = new SingleFlight<string, string, string>({
    ...{ clock, waitMs: WAIT_MS, read: () => begun.promise, tooSlow: () => new Error('too slow') },
    answer: (found, question) => {
      judged.push(question);
      return found;
    },
  });
  const late = expect(lookUps.lookUp('abc', 'late')).rejects.toThrow('too slow');
  await timeline.run(WAIT_MS - 1);
  const inTime = expect(lookUps.lookUp('abc', 'in time')).resolves.toBe('found');
  await timeline.run(WAIT_MS + 1);
  await late;
  begun.resolve('found');
  await inTime;
  expect(judged).toEqual(['in time']);
});
