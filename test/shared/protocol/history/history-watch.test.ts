import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { HistoryWatch } from '../../../../shared/protocol/history/history-watch.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { SHARED_LOG } from '../../../../shared/redis/redis-keys.ts';
import { verifierConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { RedisNode } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';

const silent = createLogger('control-plane', 'silent');
let directory: string;
let redis: RedisNode;
let fleet: Fleet;
const file = () => join(directory, 'history');
const data = (name: string) => join(directory, name);
const env = () => ({ HISTORY_FILE: file() });

beforeEach(async () => {
  directory = scratch('history');
  redis = await RedisNode.start(data('redis'));
  fleet = await Fleet.start({ redisUrl: redis.url, env: env() });
});
afterEach(async () => {
  await fleet.stop();
  await redis.stop();
  rmSync(directory, { recursive: true, force: true });
});

const created = async (apiId = 'shop'): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId });
const disable = (keyId: string) => fleet.ok('keys.updateKey', { keyId, enabled: false });
/** Resolves when the control plane has noted a change of an API. */
const noted = (sequence: number, apiId = 'shop') =>
  fleet.until(() => JSON.parse(readFileSync(file(), 'utf8'))[apiId]?.sequence >= sequence);
const copy = () => cpSync(data('redis'), data('copy'), { recursive: true });
const restore = async () => {
  await redis.stop();
  rmSync(data('redis'), { recursive: true });
  cpSync(data('copy'), data('redis'), { recursive: true });
  await redis.restart();
};
const gauge = (name: string, at = 0) => metric(fleet.controlPlanes[at]?.adminAddress, name);
const findings = async (): Promise<{ check: string; result: string; change?: string }[]> =>
  (await fleet.ok('fleet.listFindings')).findings;
const refused = () => fleet.until(async () => (await gauge('keyfence_histories_refused')) === 1);

test('an older Redis is refused until somebody accepts it', async () => {
  const [kept, stolen] = [await created(), await created()];
  await fleet.ok('keys.updateKey', { keyId: kept.keyId, name: 'before' });
  for (const { key } of [kept, stolen]) expect(await fleet.verdict(key)).toBe('VALID');
  copy();
  await disable(stolen.keyId);
  expect(await fleet.verdict(stolen.key)).toBe('DISABLED');
  await noted(2);
  await restore();
  await refused();
  // A verifier that knew the keys, and one that starts, answer 503.
  await fleet.addVerifier(env(), false);
  for (const at of [0, 1])
    await fleet.until(async () => (await fleet.verifyOnce(stolen.key, { at })).status === 503);
  expect(await findings()).toContainEqual({
    check: 'history',
    result: 'Redis is older than it was; it lacks changes 2 to 2 of the API shop',
    change: expect.stringContaining('keyfence fleet accept-history'),
  });
  expect((await fleet.ok('audit.listEvents', { apiId: 'shop' })).events).toContainEqual(
    expect.objectContaining({ operation: 'rules.refuseHistory', after: { sequence: 1, lostSequence: 2 } }),
  );
  // Changes are possible meanwhile, and do not let anybody in.
  await disable(stolen.keyId);
  for (const at of [0, 1]) expect((await fleet.verifyOnce(kept.key, { at })).status).toBe(503);

  const { accepted } = await fleet.ok('fleet.acceptHistory');
  expect(accepted).toEqual([{ apiId: 'shop', sequence: 1, lostSequence: 2 }]);
  for (const at of [0, 1]) {
    expect(await fleet.verdict(kept.key, { at })).toBe('VALID');
    expect(await fleet.verdict(stolen.key, { at })).toBe('DISABLED');
  }
  expect((await findings()).map(({ check }) => check)).not.toContain('history');
  await fleet.until(async () => (await gauge('keyfence_histories_refused')) === 0);
  expect((await fleet.admin('fleet.acceptHistory', { apiId: 'shop' })).status).toBe(404);
  // What was accepted once does not count for a second restore.
  await fleet.ok('keys.updateKey', { keyId: kept.keyId, name: 'after' });
  await fleet.until(() => JSON.parse(readFileSync(file(), 'utf8')).shop.generation === '1');
  await restore();
  await refused();
});

test('a restart of everything does not forget it', async () => {
  const { key, keyId } = await created();
  copy();
  await disable(keyId);
  await noted(1);
  await Promise.all(fleet.verifiers.splice(0).map((verifier) => verifier.stop()));
  await Promise.all(fleet.controlPlanes.splice(0).map((controlPlane) => controlPlane.stop()));
  await restore();
  await fleet.addControlPlane(env());
  await refused();
  await fleet.addVerifier(env(), false);
  await fleet.until(async () => (await fleet.verifyOnce(key)).status === 503);
});

test('a deleted customer or API does not come back', async () => {
  await created();
  const { key } = await created('gone');
  copy();
  await fleet.ok('apis.deleteApi', { apiId: 'gone' });
  await fleet.ok('identities.createIdentity', { externalId: 'ada', enabled: false });
  await noted(1, 'gone');
  await noted(1, SHARED_LOG);
  await restore();
  await fleet.until(async () => (await gauge('keyfence_histories_refused')) === 2);
  expect((await fleet.verifyOnce(key)).status).toBe(503);
});

test('what was never durable is told, not refused', async () => {
  const { key, keyId } = await created();
  const nodes = new RedisNodes(verifierConfig({ REDIS_URL: redis.url }), systemClock, silent);
  let [isDurable, seen, lost] = [true, 0, 0];
  const keeps = async () => {
    seen++;
    return isDurable;
  };
  const watch = new HistoryWatch({
    ...{
      nodes,
      writer: new DurableWriter(nodes, 0),
      durability: { keeps },
      onRefused: async () => undefined,
    },
    ...{ replicas: 0, file: '', onLost: () => void lost++, clock: systemClock, log: silent },
  });
  const running = watch.run();
  try {
    await fleet.until(() => seen > 0);
    copy();
    isDurable = false;
    await fleet.ok('keys.updateKey', { keyId, name: 'x' });
    const before = seen;
    await fleet.until(() => seen > before);
    await Promise.all(fleet.controlPlanes.splice(0).map((controlPlane) => controlPlane.stop()));
    await restore();
    await fleet.until(() => lost === 1);
    expect(watch.refused).toBe(0);
    expect(await fleet.verdict(key)).toBe('VALID');
  } finally {
    watch.stop();
    await running;
    await nodes.close();
  }
});

test('an emptied Redis is told, not refused', async () => {
  const { key, keyId } = await created();
  await disable(keyId);
  await noted(1);
  await redis.command('FLUSHALL');
  await fleet.until(async () => (await gauge('keyfence_histories_lost_total')) > 0);
  expect(await fleet.verdict(key)).toBe('NOT_FOUND');
  const again = await created();
  expect(await fleet.verdict(again.key)).toBe('VALID');
  expect(await gauge('keyfence_histories_refused')).toBe(0);
});

test('a verifier that registered since tells of lost history', async () => {
  const { key, keyId } = await created();
  copy();
  await fleet.ok('keys.updateKey', { keyId, name: 'x' });
  await fleet.addVerifier(env());
  expect(await fleet.verdict(key, { at: 1 })).toBe('VALID');
  await Promise.all(fleet.controlPlanes.splice(0).map((controlPlane) => controlPlane.stop()));
  await restore();
  const diverged = () =>
    metric(fleet.verifiers[1]?.adminAddress, 'keyfence_drops_total{reason="diverged"}').catch(() => 0);
  await fleet.until(async () => (await diverged()) > 0);
});

test.each([
  ['empty', ''],
  ['cut off', '{"shop":{"created":"1"'],
  ['of something else', '{"shop":1}'],
  ['a list', '[]'],
])('a file that is %s ends the start with its name', async (_, text) => {
  const damaged = join(directory, 'damaged');
  writeFileSync(damaged, text);
  await expect(fleet.addControlPlane({ HISTORY_FILE: damaged })).rejects.toThrow(
    new RegExp(`^wrong configuration:\\n  HISTORY_FILE: ${damaged} is damaged`),
  );
});
