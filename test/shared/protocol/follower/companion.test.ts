import { expect, test } from 'vitest';
import type { NewCompanion } from '../../../../shared/protocol/follower/companion.ts';
import type { Follower } from '../../../../shared/protocol/follower/follower.ts';
import { followerWith, LEASE_MS } from '../../../harness/follower.ts';
import { eventually } from '../../../harness/waiting.ts';

const HASH = '1'.padStart(40, '0');
const FORGET = `1||${HASH}|k|["forget","digest pool"]`;

/** A follower, and in order what it asks of Redis and of the companions of its epochs. */
async function world() {
  const events: string[] = [];
  const work = { isHeld: false };
  const arrival = Promise.withResolvers<void>();
  let follower: Follower | undefined;
  const companion: NewCompanion = (host) => ({
    isHeld: false,
    changed: (records) => {
      events.push(`changed ${records.map(({ pool }) => pool)} at ${host.position()}`);
    },
    recall: (pool) => events.push(`recall ${pool}`),
    reconnected: () => events.push('reconnected'),
    held: () => [work],
    bring: (held) => {
      events.push(`bring ${held.length}`);
      return arrival.promise;
    },
    close: async () => {
      events.push(`close, and ${follower?.canAnswer ? 'may' : 'may not'} answer`);
    },
  });
  const { following, asked, ...rest } = await followerWith(undefined, undefined, companion, () =>
    events.push('register'),
  );
  follower = following;
  events.length = 0;
  const drop = async () => {
    rest.publish('5||gap|k|'); // asks for a SYNC
    await eventually(() => asked.length > 0);
    asked.shift()?.answer({ status: 'NOREG' });
  };
  return { ...rest, following, asked, events, work, arrival, drop };
}

test('hears of changes in the block that applies them, before they are acknowledged', async () => {
  const { following, asked, events, publish } = await world();
  publish(FORGET);
  expect(events).toEqual(['changed pool at 1']);
  await eventually(() => asked.length > 0);
  asked.shift()?.answer({ sequence: 1, hash: HASH, creations: '1-a' });
  void following.stop();
});

test('hears once of the changes of a reply, after all of them', async () => {
  const { following, asked, events, publish, settled } = await world();
  publish('5||gap|k|');
  await eventually(() => asked.length > 0);
  const entries = [1, 2].map((sequence) => ({
    ...{ sequence, hash: `${sequence}`, keyId: 'k', payload: `["forget","digest pool${sequence}"]` },
  }));
  asked.shift()?.answer({ sequence: 2, hash: '2', creations: '1-a', entries });
  await settled();
  expect(events).toEqual(['changed pool1,pool2 at 2']);
  void following.stop();
});

test('hears of recalls, and of another connection at once and when it is there', async () => {
  const { following, events, recall, disconnect } = await world();
  recall('pool');
  expect(events).toEqual(['recall pool']);
  disconnect();
  expect(events).toEqual(['recall pool', 'reconnected']);
  await eventually(() => events.length > 2);
  expect(events).toEqual(['recall pool', 'reconnected', 'reconnected']);
  void following.stop();
});

test('ends after its lease, before another name is registered', async () => {
  const { following, events, drop } = await world();
  expect(following.leaseRemainingMs).toBeGreaterThan(LEASE_MS / 2);
  await drop();
  await eventually(() => events.length > 1);
  expect(events).toEqual(['close, and may not answer', 'register']);
  void following.stop();
});

test('has the work of former names before the first answer', async () => {
  const { following, events, work, arrival, drop, settled } = await world();
  work.isHeld = true;
  await drop();
  await eventually(() => events.length > 2);
  expect(events).toEqual(['close, and may not answer', 'register', 'bring 1']);
  await settled();
  expect(following.live).toBe(false);
  arrival.resolve();
  await following.whenLive();
  expect(following.canAnswer).toBe(true);
  void following.stop();
});

test('that could not bring work ends, and answers nothing', async () => {
  const { following, events, work, arrival, drop } = await world();
  work.isHeld = true;
  await drop();
  await eventually(() => events.includes('bring 1'));
  arrival.reject(new Error('Redis is away'));
  await eventually(() => events.length > 3);
  expect(events.slice(0, 4)).toEqual([
    ...['close, and may not answer', 'register', 'bring 1', 'close, and may not answer'],
  ]);
  expect(following.live).toBe(false);
  work.isHeld = false;
  void following.stop();
});
