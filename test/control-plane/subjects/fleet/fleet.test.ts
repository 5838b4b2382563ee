import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { verifierIds, verifierStatus } from '../../../../shared/redis/redis-keys.ts';
import { perVerdict } from '../../../../shared/rules/verdict-codes.ts';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
let redis: Redis;
// A report is kept for three periods, which a machine that stands still must not use up.
const env = { STATUS_PERIOD_MS: '1000' };

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env });
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

interface Listed {
  id: string;
  apis: { apiId: string; member: string; state: string; position: number; lag: number }[];
  sharedLog?: { member: string; state: string; lag: number };
}
const listed = async (): Promise<Listed[]> => (await fleet.ok('fleet.listVerifiers')).verifiers;

test('every verifier reports how each API stands', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'seen' });
  for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  let verifiers: Listed[] = [];
  await fleet.until(async () => {
    verifiers = await listed();
    return verifiers.length === 2 && verifiers.every(({ apis }) => apis[0]?.position === 1);
  });
  const [first, second] = verifiers;
  expect(first).toEqual({
    id: expect.stringMatching(/^verifier_/),
    host: expect.any(String),
    version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    protocol: PROTOCOL,
    startedAt: expect.any(Number),
    reportedAt: expect.any(Number),
    verdicts: { memory: expect.any(Number), redis: expect.any(Number) },
    codes: { ...perVerdict(() => 0), VALID: expect.any(Number), DISABLED: expect.any(Number) },
    keysInMemory: 1,
    settings: { foreignKeys: false, foreignDigests: [], syncPeriodMs: expect.any(Number) },
    clockOffMs: expect.any(Number),
    roundTripMs: expect.any(Number),
    usage: { untilMs: expect.any(Number) },
    apis: [
      {
        apiId: 'seen',
        member: expect.stringMatching(`^${PROTOCOL}\\.`),
        state: 'live',
        position: 1,
        lag: 0,
        leaseRemainingMs: expect.any(Number),
      },
    ],
    apisNotShown: 0,
  });
  expect(second?.id).not.toBe(first?.id);
});

test('lists a verifier that lacks some verdicts', async () => {
  const [known] = await listed();
  const id = `verifier_${'0'.repeat(20)}`;
  await redis.set(verifierStatus(id), JSON.stringify({ ...known, id, codes: { VALID: 3 } }));
  await redis.zadd(verifierIds, 0, id);
  expect((await listed()).find((verifier) => verifier.id === id)).toMatchObject({ codes: { VALID: 3 } });
  await redis.zrem(verifierIds, id);
});

test('names a laggard as its verifier reports it', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'behind' });
  const cutOff = await fleet.addVerifier(env);
  expect(await fleet.verdict(key, { at: 2 })).toBe('VALID');
  const memberOf = (verifier: Listed | undefined) =>
    verifier?.apis.find(({ apiId }) => apiId === 'behind')?.member;
  await fleet.until(async () => (await listed()).some(memberOf));
  const verifier = (await listed()).find(memberOf);
  // It goes, and its registration is put back: a process that is registered and does not answer.
  await cutOff.stop();
  fleet.verifiers.pop();
  await redis.zadd('kf:{behind}:members', 0, memberOf(verifier) ?? '');
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false, waitMs: 0 });
  const { sequence } = propagation;
  const standing = await fleet.ok('keys.getPropagation', { keyId, sequence: String(sequence) });
  expect(standing.propagation.laggards).toEqual([memberOf(verifier)]);
});

test('a stopped verifier holds up no change', async () => {
  // Broke once: waking up to stop, the follower registered anew after it had left.
  const { key } = await fleet.ok('keys.createKey', { apiId: 'left' });
  const leaving = await fleet.addVerifier(env);
  expect(await fleet.verdict(key, { at: 2 })).toBe('VALID');
  expect(await redis.zcard('kf:{left}:members')).toBe(1);
  await leaving.stop();
  fleet.verifiers.pop();
  expect(await redis.zcard('kf:{left}:members')).toBe(0);
});

test('lists no stopped or long crashed verifier', async () => {
  const before = (await listed()).map(({ id }) => id);
  const leaving = await fleet.addVerifier(env);
  await fleet.until(async () => (await listed()).length === before.length + 1);
  const left = (await listed()).map(({ id }) => id).find((id) => !before.includes(id)) ?? '';
  await leaving.stop();
  fleet.verifiers.pop();
  expect((await listed()).map(({ id }) => id)).toEqual(before);
  // Nothing is left for others to clear away. They may have, but rarely within a millisecond.
  expect(await redis.zscore(verifierIds, left)).toBeNull();

  const crashed = `verifier_${'0'.repeat(20)}`;
  const report = JSON.stringify({ ...(await listed())[0], id: crashed });
  await redis.set(verifierStatus(crashed), report, 'PX', 3000);
  await redis.zadd(verifierIds, 0, crashed);
  expect((await listed()).map(({ id }) => id)).toEqual([crashed, ...before]);
  await fleet.until(async () => (await listed()).length === before.length);
  await fleet.until(async () => (await redis.zscore(verifierIds, crashed)) === null);
});

test('passes on no malformed report', async () => {
  const before = await listed();
  for (const [i, report] of [
    '{',
    'null',
    '{"id":"x"}',
    JSON.stringify({ ...before[0], apis: [1] }),
  ].entries()) {
    await redis.set(verifierStatus(`x${i}`), report, 'PX', 60_000);
    await redis.zadd(verifierIds, 0, `x${i}`);
  }
  expect((await listed()).map(({ id }) => id)).toEqual(before.map(({ id }) => id));
  for (const i of [0, 1, 2, 3]) await redis.zrem(verifierIds, `x${i}`);
});

test('the list comes in pages', async () => {
  const all = (await listed()).map(({ id }) => id);
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await fleet.ok('fleet.listVerifiers', { limit: '1', ...(cursor ? { cursor } : {}) });
    seen.push(...page.verifiers.map(({ id }: Listed) => id));
    cursor = page.cursor;
  } while (cursor);
  expect(seen).toEqual(all);
});

test('looking needs the permission to', async () => {
  const withPermission = async (permission: string) =>
    (await fleet.ok('rootKeys.createRootKey', { name: 'looker', permissions: [permission] })).key as string;
  const [may, mayNot] = [await withPermission('root.*.read_fleet'), await withPermission('api.*.read_api')];
  expect((await fleet.admin('fleet.listVerifiers', {}, { rootKey: may })).status).toBe(200);
  const refused = await fleet.admin('fleet.listVerifiers', {}, { rootKey: mayNot });
  expect(refused.status).toBe(403);
  expect(refused.body.error.message).toContain('root.*.read_fleet');
});

test('says how far roles and identities are', async () => {
  await fleet.ok('permissions.createRole', { name: 'seen', permissions: ['read'] });
  const { key } = await fleet.ok('keys.createKey', { apiId: 'seen', roles: ['seen'] });
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.until(async () => (await listed()).some(({ sharedLog }) => sharedLog?.state === 'live'));
  const sharedLogs = (await listed()).map(({ sharedLog }) => sharedLog);
  // The other one met none.
  expect(sharedLogs).toEqual(
    expect.arrayContaining([
      undefined,
      expect.objectContaining({ state: 'live', lag: 0, member: expect.stringMatching(`^${PROTOCOL}\\.`) }),
    ]),
  );
});
