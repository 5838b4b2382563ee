import { expect, test } from 'vitest';
import { Entry } from '../../../../shared/protocol/follower/key-cache.ts';
import type { Change } from '../../../../shared/protocol/log/change.ts';
import { KEY_LETTERS } from '../../../../shared/protocol/records/key-record.ts';
import { fenceMs } from '../../../../shared/protocol/timing.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { followerWith, LEASE_MS } from '../../../harness/follower.ts';
import { Timeline } from '../../../proof/simulation/clock.ts';

/** More than a follower keeps to compare with. */
const BURST = 5000;
const hashAt = (sequence: number) => (sequence === 0 ? '' : sequence.toString(16).padStart(40, '0'));
const changeAt = (sequence: number): Change => ({
  sequence,
  hash: hashAt(sequence),
  keyId: 'k',
  payload: '',
});
const messageOf = (sequence: number, payload = '') =>
  `${sequence}|${hashAt(sequence - 1)}|${hashAt(sequence)}|k|${payload}`;
const entries = (from: number) => Array.from({ length: 500 }, (_, i) => changeAt(from + i));
const record = [hashSecret('k1'), '1', '1', '', '', '', ''];

/** A follower whose SYNC, a fill, is on its way while a burst of messages comes. */
async function amidBurst() {
  const dropped: string[] = [];
  const world = await followerWith((reason) => dropped.push(reason));
  const filled = world.following.fill({ keyId: 'k1' });
  await world.settled();
  for (let sequence = 1; sequence <= BURST; sequence++) world.publish(messageOf(sequence));
  expect(world.following.position).toBe(BURST);
  const reply = { sequence: BURST, hash: hashAt(BURST), creations: '1-a', record, leaseMs: 10 * LEASE_MS };
  return { ...world, dropped, filled, reply };
}

test('believes only the reply after a burst', async () => {
  const { following, asked, settled, dropped, filled, reply } = await amidBurst();
  asked[0]?.answer({ ...reply, entries: entries(1) });
  await settled();
  expect([dropped, following.live]).toEqual([[], true]);
  expect(following.leaseRemainingMs).toBeLessThanOrEqual(LEASE_MS);
  const again = asked.find(({ request }, i) => i > 0 && request.keyId === 'k1');
  expect(again?.request).toMatchObject({ position: BURST, hash: hashAt(BURST) });
  again?.answer(reply);
  expect(await filled).toMatchObject({ keyId: 'k1' });
  expect(following.leaseRemainingMs).toBeGreaterThan(LEASE_MS);
  void following.stop();
});

test('notices another history after any burst', async () => {
  const { following, asked, settled, dropped, filled, reply } = await amidBurst();
  const others = entries(BURST - 499).map((change) => ({ ...change, hash: 'f'.repeat(40) }));
  filled.catch(() => undefined);
  asked[0]?.answer({ ...reply, entries: others });
  await settled();
  expect(dropped).toEqual(['diverged']);
  void following.stop();
});

test('acknowledges a lone change at once', async () => {
  const timeline = new Timeline();
  const { following, asked, publish } = await followerWith(undefined, {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => timeline.nowMs,
    after: (ms, run) => timeline.after(ms, run),
  });
  const acknowledged = async (atMs: number) => {
    await timeline.run(atMs);
    return asked.map(({ request }) => request.position);
  };
  await timeline.run(100);
  publish(messageOf(1));
  expect(await acknowledged(100)).toEqual([1]);
  for (const sequence of [2, 3]) publish(messageOf(sequence));
  asked[0]?.answer({ sequence: 1, hash: hashAt(1), creations: '1-a' });
  expect(await acknowledged(102.9)).toEqual([1]);
  publish(messageOf(4));
  expect(await acknowledged(103)).toEqual([1, 4]);
  void following.stop();
});

test('what was granted before a change counts until each lease from before it has ended', async () => {
  const timeline = new Timeline();
  const { following, asked, publish, settled } = await followerWith(undefined, {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => timeline.nowMs,
    after: (ms, run) => timeline.after(ms, run),
  });
  const limits = '[{"name":"requests","limit":10,"duration":60000,"autoApply":true}]';
  const state = KEY_LETTERS.map((letter) => ({ e: '1', L: limits })[letter as string] ?? '');
  const named = JSON.stringify(['set', hashSecret('k1'), ...state]);
  /** Another verifier may have such a lease still. */
  const longestMs = 10 * LEASE_MS;
  const obeyedAtMs = async (sequence: number, leaseMs = LEASE_MS) => {
    const filled = following.fill({ keyId: 'k1' });
    await settled();
    const at = {
      sequence,
      hash: hashAt(sequence),
      creations: '1-a',
      record: [hashSecret('k1'), '1', ...state],
    };
    for (const { answer } of asked.splice(0)) answer({ ...at, leaseMs });
    const entry = await filled;
    return entry instanceof Entry ? entry.obeyedAtMs : undefined;
  };
  await timeline.run(100);
  publish(messageOf(1, named));
  expect(await obeyedAtMs(1, longestMs)).toBe(100 + fenceMs(LEASE_MS, 0));
  // From now on they are short again.
  await obeyedAtMs(1);
  await timeline.run(200);
  publish(messageOf(2, named));
  expect(await obeyedAtMs(2)).toBe(200 + fenceMs(longestMs, 0));
  await timeline.run(300);
  publish(messageOf(3));
  // Nothing of a limit.
  expect(await obeyedAtMs(3)).toBe(200 + fenceMs(longestMs, 0));
  void following.stop();
});
