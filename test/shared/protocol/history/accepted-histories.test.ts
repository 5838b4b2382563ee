import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Apis } from '../../../../control-plane/core/apis/apis.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { HistoryWatch } from '../../../../shared/protocol/history/history-watch.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';
import { PATIENT } from '../../../harness/waiting.ts';

/**
 * Lives, changes, restores and acceptances of one API in every order, at a real Redis, with two control planes that look at
 * different times and restart. What this test knows of each history is a list of its entries by names that are never used
 * again.
 */
const silent = createLogger('control-plane', 'silent');
let fleet: Fleet;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  fleet = new Fleet();
  await fleet.startRedis();
  redis = new Redis(fleet.redisUrl);
  nodes = new RedisNodes(redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT }), systemClock, silent);
});
afterAll(async () => {
  redis.disconnect();
  await nodes.close();
  await fleet.stop();
});
beforeEach(() => redis.flushall());

const { head, log: stream } = apiKeys('shop');

/** A state of Redis, and what is known of it. */
interface State {
  readonly dumps: readonly (Buffer | null)[];
  readonly truth: Truth;
}
interface Truth {
  /** Number of the API's life; 0 = there is none. */
  readonly life: number;
  readonly entries: readonly string[];
  /** Counts the acceptances: each is later than those of this history and that of the change which it names. */
  readonly acceptances: number;
  /** The latest change that any of them named. */
  readonly named: { readonly life: number; readonly number: number };
  /** The latest change for which this history is refused, and the acceptances of the history that had it. */
  readonly missing: { readonly life: number; readonly acceptances: number; readonly number: number };
}
/** The latest entry that a control plane saw, with all before it. */
type Seen = Pick<Truth, 'life' | 'entries' | 'acceptances'>;

const NOTHING_NAMED = {
  ...{ acceptances: 0, named: { life: 0, number: 0 }, missing: { life: 0, acceptances: 0, number: 0 } },
};

type Step =
  | { readonly do: 'change' | 'anew' | 'empty' | 'save' | 'accept' }
  | { readonly do: 'restore'; readonly state: number }
  | { readonly do: 'look' | 'restart'; readonly who: number; readonly refused?: boolean };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.constant<Step>({ do: 'change' }) },
    { weight: 4, arbitrary: fc.integer({ min: 0, max: 1 }).map((who): Step => ({ do: 'look', who })) },
    { weight: 2, arbitrary: fc.constantFrom<Step>({ do: 'save' }, { do: 'accept' }) },
    { weight: 2, arbitrary: fc.nat(5).map((state): Step => ({ do: 'restore', state })) },
    { weight: 1, arbitrary: fc.constantFrom<Step>({ do: 'anew' }, { do: 'empty' }) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 1 }).map((who): Step => ({ do: 'restart', who })) },
  ),
  { minLength: 4, maxLength: 24 },
);

const isAfter = (a: Truth['named'], b: Truth['named']) =>
  a.life > b.life || (a.life === b.life && a.number > b.number);

async function play(script: readonly Step[]): Promise<void> {
  await redis.flushall();
  let now = 1_000;
  const clock = { ...systemClock, wallMs: () => now };
  const writer = new DurableWriter(nodes, 0);
  const log = new RedisChangeLog(nodes, writer, 0, () => now);
  const apis = new Apis(nodes, writer, clock, 500);
  const files = [join(scratch('marks'), 'a'), join(scratch('marks'), 'b')];
  const start = (who: number) =>
    new HistoryWatch({
      ...{ nodes, writer, replicas: 0, file: files[who] ?? '', clock: systemClock, log: silent },
      ...{
        durability: { keeps: async () => true },
        onRefused: async () => undefined,
        onLost: () => undefined,
      },
    });
  const watches = [start(0), start(1)];
  const seen: (Seen | undefined)[] = [undefined, undefined];
  const saved: State[] = [];
  let lives = 0;
  let truth: Truth = { life: 0, entries: [], ...NOTHING_NAMED };

  const make = async () => {
    now += 1000;
    await apis.create({ apiId: 'shop', name: 'Shop' });
    truth = { life: ++lives, entries: [], ...NOTHING_NAMED };
  };
  const change = async () => {
    if (truth.life === 0) await make();
    const keyId = `key_${randomBytes(6).toString('hex')}`;
    await log.write({ apiId: 'shop', operation: 'delete-again', keyId, fields: {} });
    truth = { ...truth, entries: [...truth.entries, keyId] };
  };
  const look = async (who: number) => {
    const watch = watches[who];
    await watch?.compare(['shop']);
    const isRefused = (await redis.hget(head, 'X')) !== null;
    if (truth.life === 0) return isRefused;
    const before = seen[who];
    const follows = before === undefined || truth.life > before.life || holds(before) || isNamed(before);
    if (isRefused) {
      if (follows) return true;
      const { life, acceptances, entries } = before;
      const [ours, most] = [{ life, acceptances, number: entries.length }, truth.missing];
      const isLatest = [ours.life - most.life, acceptances - most.acceptances, ours.number - most.number];
      if ((isLatest.find((difference) => difference !== 0) ?? 0) > 0) truth = { ...truth, missing: ours };
      return true;
    }
    expect(follows, `control plane ${who} follows a history that lacks what it saw`).toBe(true);
    seen[who] = truth;
    return false;
  };
  const holds = ({ life, entries, acceptances }: Seen) =>
    life === truth.life &&
    acceptances <= truth.acceptances &&
    (entries.length === 0 || truth.entries[entries.length - 1] === entries.at(-1));
  /** Somebody accepted that it is missing: by an acceptance after it was seen, that names it or a later change. */
  const isNamed = ({ life, entries, acceptances }: Seen) =>
    (life > truth.life || acceptances < truth.acceptances) &&
    !isAfter({ life, number: entries.length }, truth.named);
  /** A person accepts what is refused now: all that any control plane has told. */
  const accept = async () => {
    const refused = (await redis.hget(head, 'X')) !== null;
    const [accepted] = (await watches[0]?.accept('shop')) ?? [];
    if (!refused || !accepted) return;
    const [created, sequence] = (await redis.hget(head, 'V'))?.split(' ') ?? [];
    const named = { life: Number(created) / 1000 - 1, number: Number(sequence) };
    // It names what some control plane has seen, or an acceptance before.
    const isSeen = seen.some(
      (each) => each && !isAfter(named, { life: each.life, number: each.entries.length }),
    );
    expect(isSeen || !isAfter(named, truth.named)).toBe(true);
    const acceptances = Math.max(truth.acceptances, truth.missing.acceptances) + 1;
    truth = { ...truth, ...NOTHING_NAMED, acceptances, named };
  };

  try {
    for (const step of script) {
      if (step.do === 'change') await change();
      else if (step.do === 'look') {
        const isRefused = await look(step.who);
        if (step.refused !== undefined) expect(isRefused).toBe(step.refused);
      } else if (step.do === 'accept') await accept();
      else if (step.do === 'anew' || step.do === 'empty') {
        await redis.del(head, stream);
        truth = { life: 0, entries: [], ...NOTHING_NAMED };
        if (step.do === 'anew') await make();
      } else if (step.do === 'save')
        saved.push({ dumps: await Promise.all([redis.dumpBuffer(head), redis.dumpBuffer(stream)]), truth });
      else if (step.do === 'restart') {
        watches[step.who]?.stop();
        watches[step.who] = start(step.who);
      } else if (step.do === 'restore') {
        const state = saved[step.state % Math.max(1, saved.length)];
        if (!state) continue;
        for (const [i, key] of [head, stream].entries()) {
          const dump = state.dumps[i];
          await redis.del(key);
          if (dump) await redis.restore(key, 0, dump);
        }
        truth = state.truth;
      }
    }
    // Acceptances hold: one for each control plane that misses something is the most that it takes.
    for (let round = 0; round < watches.length; round++) {
      for (const who of [0, 1]) await look(who);
      await accept();
    }
    for (const who of [0, 1, 0, 1])
      expect(await look(who), 'refused again after it was accepted').toBe(false);
  } finally {
    for (const watch of watches) watch.stop();
  }
}

test('an acceptance holds, and covers no more than what it names, in every order of lives', async () => {
  await fc.assert(fc.asyncProperty(steps, play), {
    numRuns: Number(process.env['LIVES'] ?? 150),
    endOnFailure: false,
  });
});

const [change, save, accept, anew]: Step[] = [
  { do: 'change' },
  { do: 'save' },
  { do: 'accept' },
  { do: 'anew' },
];
const restore = (state: number): Step => ({ do: 'restore', state });
const look = (who: number, refused: boolean): Step => ({ do: 'look', who, refused });

test.each<[string, (Step | undefined)[]]>([
  [
    'an API made anew, and then an older Redis: one acceptance is enough',
    [
      ...[change, save, change, look(0, false), look(1, false), anew, change, look(0, false), look(1, false)],
      ...[restore(0), look(0, true), look(1, true), accept, look(0, false), look(1, false)],
    ],
  ],
  [
    'what only another control plane has seen is not accepted with it',
    [
      ...[change, save, change, look(0, false), change, look(1, false), restore(0), look(0, true), accept],
      ...[look(0, false), look(1, true), accept, look(1, false), look(0, false)],
    ],
  ],
  [
    'what is still there is not missed after an acceptance',
    [
      ...[anew, save, change, look(0, false), restore(0), change, change, look(1, false), look(0, true)],
      ...[change, accept, look(0, false), look(1, false), look(0, false)],
    ],
  ],
  [
    'changes since an acceptance are not accepted by it, whatever their numbers',
    [
      ...[change, save, change, change, look(0, false), restore(0), look(0, true), accept, save],
      ...[change, look(0, false), restore(1), look(0, true)],
    ],
  ],
  [
    'what an acceptance named stays accepted after the next',
    [
      ...[change, save, change, change, change, look(0, false), look(1, false), restore(0), look(0, true)],
      ...[
        accept,
        save,
        change,
        look(0, false),
        restore(1),
        look(0, true),
        accept,
        look(0, false),
        look(1, false),
      ],
    ],
  ],
])('%s', (_, script) => play(script.filter((step) => step !== undefined)));
