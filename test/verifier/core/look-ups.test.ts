import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { digestOf } from '../../../shared/rules/key-format.ts';
import { GoodSecrets, LookupSlots, SingleFlight } from '../../../verifier/core/look-ups.ts';
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

describe('slots of look-ups', () => {
  const take = (slots: LookupSlots, source: string, isKnown = false) => {
    const held = slots.acquire(source, isKnown);
    const asked = { source, outcome: typeof held === 'boolean' ? held : undefined };
    if (typeof held !== 'boolean')
      void held.then((outcome) => {
        asked.outcome = outcome;
      });
    return asked;
  };
  const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

  test('have turns, so that one source with many waits behind nobody but itself', async () => {
    const slots = new LookupSlots(1, 100);
    take(slots, 'busy');
    const flood = Array.from({ length: 50 }, () => take(slots, 'flood'));
    const good = Array.from({ length: 3 }, (_, i) => take(slots, `good ${i}`));
    for (let i = 0; i < 4; i++) slots.release();
    await nextTurn();
    expect(good.map(({ outcome }) => outcome)).toEqual([true, true, true]);
    expect(flood.filter(({ outcome }) => outcome === true)).toHaveLength(1);
  });

  test('a secret that was good before comes first, whoever floods', async () => {
    const slots = new LookupSlots(1, 100);
    take(slots, 'busy');
    Array.from({ length: 60 }, (_, i) => take(slots, `source ${i}`));
    const known = take(slots, 'source 1', true);
    slots.release();
    await nextTurn();
    expect(known.outcome).toBe(true);
  });

  test('the source with most gives up when there is no room, and nobody for a flood of its own', async () => {
    const slots = new LookupSlots(1, 10);
    take(slots, 'busy');
    const flood = Array.from({ length: 10 }, () => take(slots, 'flood'));
    expect(take(slots, 'flood').outcome).toBe(false);
    const [good, known] = [take(slots, 'good'), take(slots, 'good', true)];
    await nextTurn();
    expect(flood.map(({ outcome }) => outcome).slice(-2)).toEqual([false, false]);
    expect([good.outcome, known.outcome]).toEqual([undefined, undefined]);
    for (let i = 0; i < 3; i++) slots.release();
    await nextTurn();
    expect([good.outcome, known.outcome]).toEqual([true, true]);
  });

  test('are all given back, in every order', async () => {
    const step = fc.record({ source: fc.nat(5), isKnown: fc.boolean(), ends: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 80 }), async (all) => {
        const slots = new LookupSlots(3, 5);
        const asked: ReturnType<typeof take>[] = [];
        let ended = 0;
        const held = () => asked.filter(({ outcome }) => outcome === true).length - ended;
        for (const { source, isKnown, ends } of all) {
          if (!ends) asked.push(take(slots, String(source), isKnown));
          else if (held() > 0) {
            ended++;
            slots.release();
          }
          await Promise.resolve();
          await Promise.resolve();
          expect(held()).toBeLessThanOrEqual(3);
          expect(asked.filter(({ outcome }) => outcome === undefined).length).toBeLessThanOrEqual(5);
        }
        while (held() > 0) {
          ended++;
          slots.release();
          await nextTurn();
        }
        expect(asked.filter(({ outcome }) => outcome === undefined)).toEqual([]);
        for (let i = 0; i < 3; i++) expect(slots.acquire('x', false)).toBe(true);
      }),
    );
  });
});

test('good secrets are remembered once look-ups have to wait, each for itself', () => {
  const good = new GoodSecrets();
  const digests = Array.from({ length: 1000 }, (_, i) => digestOf(`secret ${i}`));
  good.add(digests[0] ?? '', false);
  expect(good.has(digests[0] ?? '')).toBe(false);
  for (const digest of digests) good.add(digest, true);
  expect(digests.filter((digest) => good.has(digest)).length).toBeGreaterThan(990);
  expect(digests.filter((_, i) => good.has(digestOf(`other ${i}`)))).toEqual([]);
});
