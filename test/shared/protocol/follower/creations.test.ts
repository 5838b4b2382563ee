import { expect, test } from 'vitest';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { followerWith, LEASE_MS } from '../../../harness/follower.ts';

const record = (keyId: string, number: number) => [
  ...[hashSecret(keyId), String(number)],
  ...['1', '', '', '', ''],
];

test('remembers a key only if one history has all', async () => {
  const { following, asked, settled } = await followerWith();
  const fills = ['k2', 'k3'].map((keyId) => following.fill({ keyId }));
  await settled();
  expect(asked.map(({ request }) => request.creations)).toEqual(['1-a', '1-a']);
  asked[0]?.answer({ creations: '2-b', record: record('k2', 2) });
  expect(await fills[0]).toMatchObject({ keyId: 'k2' });
  // Its request knew nothing of 2-b: this may be of a history without that.
  asked[1]?.answer({ creations: '3-c', record: record('k3', 3) });
  await settled();
  expect(asked[2]?.request).toMatchObject({ keyId: 'k3', creations: '2-b' });
  asked[2]?.answer({ creations: '3-c', record: record('k3', 3) });
  expect(await fills[1]).toMatchObject({ keyId: 'k3' });
  void following.stop();
});

test('remembers a key seen created at once', async () => {
  const { following, asked, settled } = await followerWith();
  const fills = ['k2', 'k1'].map((keyId) => following.fill({ keyId }));
  await settled();
  asked[0]?.answer({ creations: '2-b', record: record('k2', 2) });
  asked[1]?.answer({ creations: '3-c', record: record('k1', 1) });
  expect(await Promise.all(fills)).toMatchObject([{ keyId: 'k2' }, { keyId: 'k1' }]);
  // What the second reply told of is not proven to be of one history with 2-b, and so is not taken for seen.
  const next = following.fill({ keyId: 'k1' });
  await settled();
  expect(asked[2]?.request.creations).toBe('2-b');
  asked[2]?.answer({ creations: '3-c', record: record('k1', 1) });
  await next;
  void following.stop();
});

test('only a reply to all seen extends a lease', async () => {
  const { following, asked, settled } = await followerWith();
  const fills = ['k2', 'k1'].map((keyId) => following.fill({ keyId }));
  await settled();
  asked[0]?.answer({ creations: '2-b', record: record('k2', 2) });
  await fills[0];
  asked[1]?.answer({ creations: '3-c', record: record('k1', 1), leaseMs: 10 * LEASE_MS });
  await fills[1];
  expect(following.leaseRemainingMs).toBeLessThanOrEqual(LEASE_MS);
  const next = following.fill({ keyId: 'k1' });
  await settled();
  asked[2]?.answer({ creations: '3-c', record: record('k1', 1), leaseMs: 10 * LEASE_MS });
  await next;
  expect(following.leaseRemainingMs).toBeGreaterThan(LEASE_MS);
  void following.stop();
});
