import { beforeEach, expect, test } from 'vitest';
import { registerRun, syncRun } from '../../../../shared/protocol/follower/session.ts';
import { createKey } from '../../../../shared/protocol/log/new-key-record.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { scriptsOnRedis } from '../../../harness/scripts.ts';

/** SYNC by itself, about the keys that a follower saw created; changes and records are held to the simulation. */
const { at, run } = scriptsOnRedis();
const { head, index, creations, members } = apiKeys('a');
beforeEach(() => at.redis.hset(head, { c: '7', L: '500', Lf: '500' }));

const create = (keyId: string) =>
  run(
    createKey({
      ...{ head, index, creations, members, record: `k:${keyId}`, long: `m:${keyId}`, owners: `k:${keyId}` },
      ...{ base: '', keyId, now: 7, auto: '1', lease: 500, meta: '', owner: '', foreign: '0', kept: 100 },
      ...{ content: keyId, needs: 1, defaults: '*', credits: '', fields: ['p', 'hash'] },
    }),
  );
const register = () => run(registerRun('a', 'me', 'nonce'));
/** A SYNC of who applied nothing, with the mark of the last creation that it saw. */
const sync = (mark: string) =>
  run(syncRun('a', { member: 'me', position: 0, hash: '', creations: mark, nonce: 'nonce' }));

test('goes on when an API gets its first key', async () => {
  const registered = await register();
  const answer = {
    ...{ nonce: 'nonce', sequence: 0, hash: '', leaseMs: 500 },
    ...{ apiDeleted: false, creations: '0-' },
  };
  expect(registered).toEqual({ ...answer, identities: 0 });
  expect(await sync('0-')).toEqual({ ...answer, status: 'OK', entries: [], record: [] });
  await create('key_1');
  const first = await sync('0-');
  expect(first).toMatchObject({ ...answer, creations: expect.any(String), status: 'OK' });
  expect(first.creations).toMatch(/^1-[0-9a-f]{16}$/);
  await create('key_2');
  const second = await sync(first.creations);
  expect([second.status, second.creations.split('-')[0]]).toEqual(['OK', '2']);
  expect((await sync(second.creations)).status).toBe('OK');
  expect((await register()).creations).toBe(second.creations);
});

test('diverges after other creations or too many', async () => {
  await create('key_1');
  await register();
  expect(await sync('1-0123456789abcdef')).toMatchObject({ nonce: 'nonce', status: 'DIVERGED' });
  expect(await sync('2-0123456789abcdef')).toMatchObject({ nonce: 'nonce', status: 'DIVERGED' });
});

test('starts anew if its creations are forgotten', async () => {
  await create('key_1');
  await register();
  const { creations: seen } = await sync('0-');
  await create('key_2');
  await at.redis.xdel(creations, '1-0');
  expect(await sync(seen)).toMatchObject({ nonce: 'nonce', status: 'TRIMMED' });
});

test('refuses unknown, killed or foreign followers', async () => {
  expect(await sync('0-')).toMatchObject({ nonce: 'nonce', status: 'NOREG' });
  await at.redis.zadd(members, -5, 'me');
  expect(await sync('0-')).toMatchObject({ nonce: 'nonce', status: 'NOREG' });
  await at.redis.zadd(members, 3, 'me');
  expect(await sync('0-')).toMatchObject({ nonce: 'nonce', status: 'NOREG' });
});
