import { expect, test } from 'vitest';
import { Lease } from '../../../shared/protocol/follower/lease.ts';
import { issueNow } from '../../../verifier/core/tokens.ts';

const WALL_MS = 1_790_000_000_000;
/** A clock, a lease of 10 s from now of which Redis says so much later what its time is, and what decides on a key with it. */
function granted(redisAheadMs = 0, tripMs = 0) {
  const clock = { ms: 0, monotonicMs: () => clock.ms, wallMs: () => WALL_MS + clock.ms };
  const lease = new Lease(clock as never);
  const sentAt = { monotonicMs: 0, wallMs: WALL_MS };
  clock.ms = tripMs;
  lease.extend(sentAt, 10_000);
  lease.allowTokens(sentAt, 10_000, WALL_MS + redisAheadMs);
  const entry = {
    epoch: { apiId: 'shop', lease },
    expires: 0,
    links: undefined as unknown,
    join: undefined as unknown,
  };
  const end = (code = 'VALID') =>
    issueNow({ decide: () => ({ code, entry }) as never }, { key: 'k' } as never, clock.wallMs())?.endS;
  return { clock, lease, entry, end };
}
const inS = (seconds: number) => WALL_MS / 1000 + seconds;

test('a token ends two seconds before the first lease', () => {
  const { clock, entry, end } = granted();
  expect(end()).toBe(inS(8));
  clock.ms = 1999;
  expect(end()).toBe(inS(8));
  const shared = granted().lease;
  clock.ms = 0;
  entry.links = {};
  expect(end()).toBeUndefined();
  shared.allowTokens({ monotonicMs: 0, wallMs: WALL_MS }, 5000, WALL_MS);
  entry.join = { lease: shared };
  expect(end()).toBe(inS(3));
});

test('a token ends with its key', () => {
  const { entry, end } = granted();
  entry.expires = WALL_MS + 4999;
  expect(end()).toBe(inS(4));
});

test('none is issued about a key that is refused by now', () => {
  expect(granted().end('DISABLED')).toBeUndefined();
});

test('none is issued by a clock that may be wrong', () => {
  expect(granted(1000).end()).toBe(inS(8));
  expect(granted(-1000).end()).toBe(inS(8));
  expect(granted(1001).end()).toBeUndefined();
  expect(granted(-1001).end()).toBeUndefined();
  expect(granted(0, 1001).end()).toBeUndefined();
});

test('none is issued at the end of a lease', () => {
  const { clock, lease, end } = granted();
  clock.ms = 8000;
  expect(end()).toBeUndefined();
  lease.cut();
  clock.ms = 0;
  expect(end()).toBeUndefined();
});

test('none is issued once the API has no tokens', () => {
  const { lease, end } = granted();
  lease.allowTokens({ monotonicMs: 0, wallMs: WALL_MS }, 10_000, 0);
  expect(end()).toBeUndefined();
});
