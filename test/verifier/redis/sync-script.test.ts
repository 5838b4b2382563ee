import { beforeEach, expect, test } from 'vitest';
import { scriptsOnRedis } from '../../harness/scripts.ts';

/** SYNC by itself, about the keys that a follower saw created; changes and records are held to the simulation. */
const { at, controlPlane, verifier } = scriptsOnRedis<unknown[]>();
beforeEach(() => at.redis.hset('head', { c: '7', L: '500', Lf: '500' }));

const create = (keyId: string) =>
  controlPlane(
    'keys/create-key',
    ['head', 'index', `k:${keyId}`, `m:${keyId}`, `k:${keyId}`, 'creations', 'members'],
    [keyId, 7, '1', 500, '', '', '0', 100, keyId, 1, '*', '', 'p', 'hash'],
  );
const register = () => verifier('register', ['head', 'members'], ['me', 'nonce']);
/** A SYNC of who applied nothing, with the mark of the last creation that it saw. */
const sync = (mark: unknown) =>
  verifier(
    'sync',
    ['head', 'log', 'members', 'creations'],
    ['me', 0, '', String(mark), 100, 100_000, 'nonce'],
  );
const markOf = (answer: unknown[]) => answer[6];

test('a follower that registered before the first key goes on when there is one', async () => {
  const registered = await register();
  expect(registered).toEqual(['nonce', '0', '', '500', '0', '0-', '0']);
  expect(await sync('0-')).toEqual(['nonce', 'OK', '0', '', '500', '0', '0-', [], []]);
  await create('key_1');
  const first = await sync('0-');
  expect(first.slice(0, 6)).toEqual(['nonce', 'OK', '0', '', '500', '0']);
  expect(markOf(first)).toMatch(/^1-[0-9a-f]{16}$/);
  await create('key_2');
  const second = await sync(markOf(first));
  expect([second[1], String(markOf(second)).split('-')[0]]).toEqual(['OK', '2']);
  expect((await sync(markOf(second)))[1]).toBe('OK');
  expect((await register())[5]).toBe(markOf(second));
});

test('a follower that saw other creations, or more of them than there are, has diverged', async () => {
  await create('key_1');
  await register();
  expect(await sync('1-0123456789abcdef')).toEqual(['nonce', 'DIVERGED']);
  expect(await sync('2-0123456789abcdef')).toEqual(['nonce', 'DIVERGED']);
});

test('a follower that saw what nobody can look up any more starts anew', async () => {
  await create('key_1');
  await register();
  const seen = markOf(await sync('0-'));
  await create('key_2');
  await at.redis.xdel('creations', '1-0');
  expect(await sync(seen)).toEqual(['nonce', 'TRIMMED']);
});

test('a follower that is not registered, was killed, or is of another history is refused', async () => {
  expect(await sync('0-')).toEqual(['nonce', 'NOREG']);
  await at.redis.zadd('members', -5, 'me');
  expect(await sync('0-')).toEqual(['nonce', 'NOREG']);
  await at.redis.zadd('members', 3, 'me');
  expect(await sync('0-')).toEqual(['nonce', 'NOREG']);
});
