import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Bag } from '../../verifier/bag.ts';
import { InFlight } from '../../verifier/in-flight.ts';

/** Steps, each on one of a few things: it is added where it is not there, and else taken out. */
const steps = fc.array(fc.nat(11), { maxLength: 60 });

test('a bag has what a set has', () => {
  fc.assert(
    fc.property(steps, (all) => {
      const bag = new Bag<{ n: number }>();
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

test('what is under way is found until it has settled, however it ends and whatever is beside it', async () => {
  // Four of each begin alike, and so share a chain.
  const digestOf = (n: number) => `${'abc'[n % 3]}x${n}`;
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const inFlight = new InFlight<number>();
      const model = new Map<number, PromiseWithResolvers<number>>();
      for (const [i, n] of all.entries()) {
        const running = model.get(n);
        if (running === undefined) {
          const begun = Promise.withResolvers<number>();
          model.set(n, begun);
          expect(inFlight.add(digestOf(n), begun.promise)).toBe(begun.promise);
        } else {
          model.delete(n);
          if (i % 2 === 0) running.resolve(n);
          else running.reject(new Error('as meant'));
          await running.promise.catch(() => undefined);
        }
        expect(inFlight.size).toBe(model.size);
        for (let other = 0; other < 12; other++)
          expect(inFlight.get(digestOf(other))).toBe(model.get(other)?.promise);
      }
    }),
  );
});
