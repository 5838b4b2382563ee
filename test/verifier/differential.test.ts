import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { conversation, cutAt } from './raw-requests.ts';
import { Subject } from './side-by-side.ts';
import { SHAPES } from './smuggling-shapes.ts';
import { verifyKey } from './wire.ts';

/** Conversations to generate; more = a longer search. A failure prints the seed and path that find it again. */
const RUNS = Number(process.env['DIFFERENTIAL_RUNS'] ?? 1500);
const SEED = process.env['DIFFERENTIAL_SEED'];

const lane = new Subject({ FAST_LANE: true, BODY_BYTES_MAX: 1024 });
const reference = new Subject({ FAST_LANE: false, BODY_BYTES_MAX: 1024 });

beforeAll(() => Promise.all([lane.start(), reference.start()]));
afterAll(() => Promise.all([lane.stop(), reference.stop()]));

/** Says the same to both, and checks that nobody could tell them apart. */
async function same(writes: readonly Buffer[], manner: 'patient' | 'hurried' = 'patient'): Promise<void> {
  const [ours, nodes] = await Promise.all([lane.hear(writes, manner), reference.hear(writes, manner)]);
  expect(ours).toEqual(nodes);
}

const COMMON = verifyKey({ key: 'good' }, ['X-Request-Id: before']);
const NEXT = verifyKey({ key: 'disabled', apiId: 'payments' }, ['X-Request-Id: after']);

test.each(Object.entries(SHAPES))('%s is read as Node reads it, wherever it stands', async (_name, shape) => {
  for (const text of [shape, COMMON + shape, shape + NEXT, COMMON + shape + NEXT, shape + shape])
    await same([Buffer.from(text, 'latin1')]);
});

test('it makes no difference where the network cuts', async () => {
  const texts = [
    COMMON + NEXT,
    verifyKey({ key: 'slow-good' }) + NEXT + verifyKey({ key: 'down' }),
    SHAPES['chunked'],
  ];
  for (const text of texts) {
    const bytes = Buffer.from(text ?? '', 'latin1');
    for (const manner of ['patient', 'hurried'] as const) {
      for (let at = 1; at < bytes.length; at++) await same(cutAt(bytes, [at]), manner);
      await same(cutAt(bytes, Array.from(bytes.keys())), manner);
    }
  }
}, 60_000);

test(
  `${RUNS} conversations, well-formed and damaged, go the same way`,
  async () => {
    const before = { ...lane.server.lane };
    await fc.assert(
      fc.asyncProperty(conversation, ([writes, manner]) => same(writes, manner)),
      { numRuns: RUNS, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
    );
    // The comparison is worth nothing where one of the two lanes is hardly used.
    const { answered, handedOver } = lane.server.lane;
    expect(answered - before.answered).toBeGreaterThan(RUNS / 4);
    expect(handedOver - before.handedOver).toBeGreaterThan(RUNS / 4);
  },
  60_000 + 20 * RUNS,
);
