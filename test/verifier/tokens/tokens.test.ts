import { expect, test } from 'vitest';
import { Lease } from '../../../shared/protocol/follower/lease.ts';
import { StampedVerdicts } from '../../../verifier/core/stamped.ts';
import { TOKEN_LENGTH_MAX, TokenIssuer, TokenStamp } from '../../../verifier/tokens/tokens.ts';

const WALL_MS = 1_790_000_000_000;
/** A clock, a lease of 10 s from now of which Redis says so much later what its time is, and what decides on a key with it. */
function granted(redisAheadMs = 0, tripMs = 0) {
  const clock = { ms: 0, monotonicMs: () => clock.ms, wallMs: () => WALL_MS + clock.ms };
  const lease = new Lease(clock as never);
  const sentAt = { monotonicMs: 0, wallMs: WALL_MS };
  clock.ms = tripMs;
  lease.extend(sentAt, 10_000);
  lease.allowLending(sentAt, 10_000, WALL_MS + redisAheadMs);
  const entry = {
    epoch: { apiId: 'shop', lease },
    expires: 0,
    links: undefined as unknown,
    join: undefined as unknown,
    details: undefined as unknown,
  };
  const end = (code = 'VALID') => {
    const issue = new TokenIssuer({ sign: JSON.stringify }, clock).issue({ code, entry } as never);
    return typeof issue === 'string' ? undefined : issue.endS;
  };
  const verdict: Record<string, unknown> = { code: 'VALID', entry };
  const issuer = new TokenIssuer({ sign: JSON.stringify }, clock);
  const verifier = new StampedVerdicts(
    { decide: () => verdict as never, lookUp: async () => ({ ...verdict, code: 'VALID' }) as never },
    [new TokenStamp(issuer)],
  );
  const tokenOf = () => verifier.decide({ key: 'k' } as never)?.stamps?.['X-Key-Token'];
  return { ...{ clock, lease, entry, end }, ...{ verdict, issuer, verifier, tokenOf } };
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
  shared.allowLending({ monotonicMs: 0, wallMs: WALL_MS }, 5000, WALL_MS);
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
  lease.allowLending({ monotonicMs: 0, wallMs: WALL_MS }, 10_000, 0);
  expect(end()).toBeUndefined();
});

test('a token is signed once for a key and half its life', () => {
  const { clock, lease, issuer, tokenOf } = granted();
  const first = tokenOf();
  expect(JSON.parse(first ?? '')).toMatchObject({ aud: 'shop', exp: WALL_MS / 1000 + 8, permissions: [] });
  clock.ms = 3000;
  lease.allowLending({ monotonicMs: 3000, wallMs: WALL_MS + 3000 }, 10_000, WALL_MS + 3000);
  expect([tokenOf(), issuer.counts.issued]).toEqual([first, 1]);
  clock.ms = 6000;
  expect([JSON.parse(tokenOf() ?? '').exp, issuer.counts.issued]).toEqual([inS(11), 2]);
});

test('an earlier token is not handed out after a change', () => {
  const { entry, verdict, issuer, tokenOf } = granted();
  const first = tokenOf();
  entry.details = { externalId: 'ada' };
  expect(JSON.parse(tokenOf() ?? '')).toMatchObject({ externalId: 'ada' });
  verdict['effectivePermissions'] = { slugs: ['a'] };
  expect(JSON.parse(tokenOf() ?? '')).toMatchObject({ permissions: ['a'] });
  entry.details = verdict['effectivePermissions'] = undefined;
  expect([tokenOf(), issuer.counts.issued]).toEqual([first, 4]);
});

test('an earlier token is not handed out past the lease', () => {
  const { lease, issuer, tokenOf } = granted();
  expect(tokenOf()).toBeDefined();
  const sentAt = { monotonicMs: 0, wallMs: WALL_MS };
  lease.allowLending(sentAt, 5000, WALL_MS);
  expect(JSON.parse(tokenOf() ?? '').exp).toBe(inS(3));
  lease.allowLending(sentAt, 10_000, WALL_MS + 1001);
  expect([tokenOf(), issuer.counts]).toEqual([
    undefined,
    { issued: 2, off: 0, clock: 1, lease: 0, older: 0, large: 0 },
  ]);
  lease.allowLending(sentAt, 2000, WALL_MS);
  expect([tokenOf(), issuer.counts.lease]).toEqual([undefined, 1]);
  lease.allowLending(sentAt, 10_000, 0);
  expect([tokenOf(), issuer.counts.off]).toEqual([undefined, 0]);
});

test('a verdict of a look-up has no token once the key is refused', async () => {
  const { verdict, verifier } = granted();
  const lookUp = async () => (await verifier.lookUp({ key: 'k' } as never)).stamps?.['X-Key-Token'];
  expect(await lookUp()).toBeDefined();
  verdict['code'] = 'DISABLED';
  expect(await lookUp()).toBeUndefined();
});

test('a token that is too long for a header is left out', () => {
  const { verdict, issuer, tokenOf } = granted();
  verdict['effectivePermissions'] = { slugs: ['x'.repeat(TOKEN_LENGTH_MAX)] };
  expect([tokenOf(), tokenOf()]).toEqual([undefined, undefined]);
  expect(issuer.counts).toMatchObject({ issued: 1, large: 2 });
});
