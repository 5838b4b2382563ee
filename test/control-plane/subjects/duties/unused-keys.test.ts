import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Apis } from '../../../../control-plane/core/apis/apis.ts';
import { Audit } from '../../../../control-plane/subjects/audit/audit.ts';
import { DueKeys } from '../../../../control-plane/subjects/duties/expiries.ts';
import { WatchedFleet } from '../../../../control-plane/subjects/duties/fleet-watch.ts';
import { KeyRules } from '../../../../control-plane/subjects/duties/key-rules.ts';
import { examineFleet } from '../../../../control-plane/subjects/examine/examination.ts';
import { FleetView } from '../../../../control-plane/subjects/fleet/fleet.ts';
import { Notices } from '../../../../control-plane/subjects/webhooks/notices.ts';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import {
  apiKeys,
  auditKeyIndex,
  auditStream,
  noticeStream,
  recordKey,
  SHARED_LOG,
  unusedKeys,
  usageKey,
  verifierIds,
  verifierStatus,
  webhookEndpoints,
} from '../../../../shared/redis/redis-keys.ts';
import { identityIdOf } from '../../../../shared/rules/key-format.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { scratch } from '../../../harness/scratch.ts';
import { PATIENT } from '../../../harness/waiting.ts';
import { SteppedClock } from '../webhooks/stepped-clock.ts';

const DAY = 86_400_000;
const HOUR = 3_600_000;
const API = 'shop';
const directory = scratch('test');
const log = createLogger('control-plane', 'silent');
const clock = new SteppedClock();
let server: RedisServer;
let nodes: RedisNodes;
let fleet: WatchedFleet;
let rules: KeyRules;
let disabledCount = 0;

beforeAll(async () => {
  server = await startRedis(join(directory, 'redis'));
  nodes = new RedisNodes(redisConfig({ REDIS_URL: server.url, ...PATIENT }), clock, log);
});
afterAll(async () => {
  await nodes.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});
const redis = () => nodes.connection('');
const writer = () => new DurableWriter(nodes, 0);
const newAudit = () =>
  new Audit({
    ...{ nodes, writer: writer(), clock, log, onCount: () => undefined },
    limits: { eventsMax: { done: 100, refused: 100 }, waitingMax: 10 },
  });
/** A control plane, as after a start. */
const newRules = () => {
  fleet = new WatchedFleet(nodes, new FleetView(nodes));
  return new KeyRules({
    ...{ nodes, writer: writer(), audit: newAudit(), notices: new Notices(nodes), fleet, clock, log },
    onDisabled: (keys) => {
      disabledCount += keys;
    },
  });
};

const apis = () => new Apis(nodes, writer(), clock, 1000);
const VERIFIER = `verifier_${'1'.repeat(20)}`;
/** Lets a verifier report how far its usage is known; undefined = it counts none. */
async function report(usage: object | undefined = { untilMs: clock.nowMs }, id = VERIFIER) {
  const status = {
    ...{ id, host: 'node-1', version: '1', protocol: 1, startedAt: 1, reportedAt: clock.nowMs },
    ...{ keysInMemory: 0, verdicts: { memory: 0, redis: 0 }, apis: [], apisNotShown: 0, usage },
  };
  await (await redis()).zadd(verifierIds, 0, id);
  await (await redis()).set(verifierStatus(id), JSON.stringify(status));
}
let created = 0;
async function newKey(keyId: string, fields: object = {}) {
  const client = await redis();
  await client.hset(recordKey(API, keyId), { p: keyId, c: clock.nowMs, e: '1', n: 'Ada', ...fields });
  await client.zadd(apiKeys(API).index, ++created, keyId);
  await client.hset(apiKeys(API).head, { n: created });
}
const used = async (keyId: string, atMs = clock.nowMs) =>
  (await redis()).hset(usageKey(API, keyId), 't', atMs);
const write = (keyId: string, fields: object) =>
  new RedisChangeLog(nodes, writer(), 0, () => clock.nowMs).write({
    ...{ apiId: API, operation: 'update', keyId, fields },
  });
/** Lets so many days pass, in each of which the verifier reports and all keys are visited. */
async function days(count: number, during: () => Promise<unknown> = report) {
  for (let day = 0; day < count; day++) {
    clock.nowMs += DAY;
    await during();
    await visitAll();
  }
}
async function visitAll() {
  for (let page = 0; page < 5; page++) await rules.visit(API);
}
const isEnabled = async (keyId: string) => (await (await redis()).hget(recordKey(API, keyId), 'e')) === '1';
const eventsOf = async (keyId: string) => (await newAudit().list('done', { keyId }, 10)).events;
const noticesNow = async () =>
  (await (await redis()).xrange(noticeStream, '-', '+')).map(([, fields]) => JSON.parse(fields[1] ?? ''));

beforeEach(async () => {
  const client = await redis();
  await client.flushall();
  await client.hset(webhookEndpoints, 'endpoint_1', '{}');
  await apis().create({ apiId: API, name: 'Shop', disableUnusedAfterMs: 30 * DAY });
  await report();
  rules = newRules();
  disabledCount = 0;
});

test('tells of an unused key, then disables it', async () => {
  await newKey('key_a');
  await newKey('key_used');
  await newKey('key_off', { e: '0' });
  const startedMs = clock.nowMs;
  await days(22, async () => [await report(), await used('key_used')]);
  expect(await noticesNow()).toEqual([]);
  await days(1, async () => [await report(), await used('key_used')]);
  const [notice, ...others] = await noticesNow();
  expect(others).toEqual([]);
  expect(notice).toEqual({
    ...{ type: 'key.unused', time: clock.nowMs },
    data: { apiId: API, keyId: 'key_a', name: 'Ada', disablesAt: startedMs + 30 * DAY },
  });
  await days(6, async () => [await report(), await used('key_used')]);
  expect([await isEnabled('key_a'), await noticesNow()]).toEqual([true, [notice]]);
  await days(2, async () => [await report(), await used('key_used')]);
  expect(await Promise.all(['key_a', 'key_used', 'key_off'].map(isEnabled))).toEqual([false, true, false]);
  expect(await eventsOf('key_a')).toMatchObject([
    {
      ...{ operation: 'rules.disableUnused', outcome: 'OK', by: { address: 'keyfence' }, sequence: 1 },
      ...{ on: { apiId: API, keyId: 'key_a' }, before: { enabled: true } },
      after: { enabled: false, unused: { lastUse: startedMs, disableUnusedAfterMs: 30 * DAY } },
    },
  ]);
  expect(await eventsOf('key_off')).toEqual([]);
  expect(disabledCount).toBe(1);
  expect(await (await redis()).exists(unusedKeys(API))).toBe(0);
});

test('gives an enabled key a fresh period', async () => {
  await newKey('key_a');
  await days(31);
  expect(await isEnabled('key_a')).toBe(false);
  await write('key_a', { e: '1' });
  await days(29);
  expect(await isEnabled('key_a')).toBe(true);
  await days(2);
  expect(await isEnabled('key_a')).toBe(false);
  expect(await eventsOf('key_a')).toHaveLength(2);
});

test('waits while the identity of a key is disabled', async () => {
  await newKey('key_a', { o: 'ada' });
  const identity = (fields: object) => async () =>
    (await redis()).hset(recordKey(SHARED_LOG, identityIdOf('ada')), { p: 'x', ...fields });
  await identity({ e: '0', u: clock.nowMs })();
  await days(50);
  expect([await isEnabled('key_a'), await noticesNow()]).toEqual([true, []]);
  await identity({ e: '1', u: clock.nowMs })();
  await days(29);
  expect(await isEnabled('key_a')).toBe(true);
  await days(1);
  expect(await isEnabled('key_a')).toBe(false);
});

test('begins anew when the rule is set', async () => {
  await newKey('key_a');
  await days(29);
  await apis().update(API, { disableUnusedAfterMs: 10 * DAY });
  await days(9);
  expect(await isEnabled('key_a')).toBe(true);
  await apis().update(API, { disableUnusedAfterMs: null });
  await days(9);
  expect(await isEnabled('key_a')).toBe(true);
  expect(await (await redis()).hmget(apiKeys(API).head, 'unused', 'unusedSince')).toEqual([null, null]);
});

test.each([
  ['has not reported its usage', { untilMs: clock.nowMs }],
  ['counts no usage', undefined],
])('disables nothing if a verifier %s', async (_why, usage) => {
  await newKey('key_a');
  await report(usage ?? undefined, `verifier_${'2'.repeat(20)}`);
  if (!usage) await (await redis()).set(verifierStatus(`verifier_${'2'.repeat(20)}`), await withoutUsage());
  await days(50);
  expect(await isEnabled('key_a')).toBe(true);
  // A verifier that has gone without a word may come back with what it counted.
  await (await redis()).del(verifierStatus(`verifier_${'2'.repeat(20)}`));
  await days(1);
  expect(await isEnabled('key_a')).toBe(true);
  await (await redis()).set(verifierStatus(`verifier_${'2'.repeat(20)}`), 'stopped');
  await days(1);
  expect(await isEnabled('key_a')).toBe(false);
});
async function withoutUsage() {
  const text = (await (await redis()).get(verifierStatus(VERIFIER))) ?? '';
  const { usage: _, ...status } = JSON.parse(text);
  return JSON.stringify({ ...status, id: `verifier_${'2'.repeat(20)}` });
}

test('disables nothing if no verifier reports', async () => {
  await newKey('key_a');
  await (await redis()).del(verifierStatus(VERIFIER));
  await days(50, async () => undefined);
  expect(await isEnabled('key_a')).toBe(true);
});

test('counts a time when usage was lost as use', async () => {
  await newKey('key_a');
  await days(20);
  const lostMs = clock.nowMs;
  await report({ untilMs: clock.nowMs, lostMs });
  await fleet.look();
  await days(1);
  // The loss is known after the verifier is gone, and to other control planes.
  rules = newRules();
  await days(28);
  expect(await isEnabled('key_a')).toBe(true);
  await days(2);
  expect(await isEnabled('key_a')).toBe(false);
});

test('a kill between any two steps doubles nothing', async () => {
  await newKey('key_a');
  await days(30);
  const noted = `1 ${clock.nowMs} ${clock.nowMs - 30 * DAY} ${30 * DAY}`;
  expect(await eventsOf('key_a')).toHaveLength(1);
  // Killed before the note was forgotten: the event is there.
  await (await redis()).hset(unusedKeys(API), 'key_a', noted);
  rules = newRules();
  await visitAll();
  expect(await eventsOf('key_a')).toHaveLength(1);
  expect(await (await redis()).exists(unusedKeys(API))).toBe(0);
  // Killed before the event was recorded.
  await (await redis()).del(auditStream('done'), auditKeyIndex('key_a'));
  await (await redis()).hset(unusedKeys(API), 'key_a', noted);
  rules = newRules();
  await visitAll();
  expect(await eventsOf('key_a')).toMatchObject([{ operation: 'rules.disableUnused', sequence: 1 }]);
  expect(await (await redis()).hget(apiKeys(API).head, 's')).toBe('1');
});

test('records a disable although its rule is gone', async () => {
  await newKey('key_a');
  await days(30);
  await (await redis()).del(auditStream('done'), auditKeyIndex('key_a'));
  await (await redis()).hset(unusedKeys(API), 'key_a', `1 ${clock.nowMs} 0 ${30 * DAY}`);
  await apis().update(API, { disableUnusedAfterMs: null });
  const due = new DueKeys(nodes);
  const hasRules = async () => (await due.read(API, clock.nowMs))?.hasRules;
  expect(await hasRules()).toBe(true);
  rules = newRules();
  await visitAll();
  expect(await eventsOf('key_a')).toMatchObject([{ operation: 'rules.disableUnused', sequence: 1 }]);
  expect(await hasRules()).toBe(false);
});

test('a use between look and disable saves the key', async () => {
  await newKey('key_a');
  clock.nowMs += 31 * DAY;
  await report();
  // The use is reported while the control plane asks how far usage is known.
  const { usageExtent } = WatchedFleet.prototype;
  fleet.usageExtent = async () => {
    await used('key_a');
    return usageExtent.call(fleet);
  };
  await visitAll();
  expect(await isEnabled('key_a')).toBe(true);
  expect(await eventsOf('key_a')).toEqual([]);
});

test('keeps usage as long as the rule looks back', async () => {
  await apis().update(API, { disableUnusedAfterMs: 90 * DAY });
  await newKey('key_a');
  await used('key_a');
  await (await redis()).pexpire(usageKey(API, 'key_a'), 32 * DAY);
  await rules.visit(API);
  expect(await (await redis()).pttl(usageKey(API, 'key_a'))).toBeGreaterThan(100 * DAY);
});

test('begins anew if no control plane looked for long', async () => {
  await newKey('key_a');
  await days(1);
  clock.nowMs += 40 * DAY;
  await report();
  await visitAll();
  expect(await isEnabled('key_a')).toBe(true);
  await days(29);
  expect(await isEnabled('key_a')).toBe(true);
  await days(1);
  expect(await isEnabled('key_a')).toBe(false);
});

test('goes through all keys, 200 at a visit', async () => {
  for (let i = 0; i < 450; i++) await newKey(`key_${i}`);
  clock.nowMs += 30 * DAY;
  await report();
  const disabled = async () => {
    const all = await Promise.all(Array.from({ length: 450 }, (_, i) => isEnabled(`key_${i}`)));
    return all.filter((enabled) => !enabled).length;
  };
  for (const count of [200, 400, 450, 450]) {
    await rules.visit(API);
    expect(await disabled()).toBe(count);
  }
});

test('findings tell what breaks or stops the rules', async () => {
  await apis().update(API, { maxLifetimeMs: 90 * DAY });
  await newKey('key_a');
  await newKey('key_b', { x: clock.nowMs + 91 * DAY });
  await newKey('key_c', { x: clock.nowMs + 80 * DAY });
  await newKey('key_off', { e: '0' });
  await visitAll();
  const change = async () => (await examineFleet(nodes, systemClock))[0]?.change;
  expect(await change()).toMatch(/^2 keys of the API shop live longer than its maxLifetimeMs allows/);
  await report({ untilMs: clock.nowMs - 3 * HOUR });
  expect(await change()).toContain(
    `${VERIFIER} on node-1 has not reported its usage since ${new Date(clock.nowMs - 3 * HOUR).toISOString()}, so disableUnusedAfterMs disables no keys of shop`,
  );
  await (await redis()).set(
    verifierStatus(VERIFIER),
    (await withoutUsage()).replace(/verifier_2+/, VERIFIER),
  );
  expect(await change()).toMatch(/counts no usage, so disableUnusedAfterMs .* set USAGE_PERIOD_MS above 0/);
  await apis().update(API, { maxLifetimeMs: null, disableUnusedAfterMs: null });
  expect(await change()).toBeUndefined();
});

test('works in a fleet without webhook endpoints', async () => {
  const running = await Fleet.start({ env: { USAGE_PERIOD_MS: '50', STATUS_PERIOD_MS: '100' } });
  try {
    await running.addControlPlane();
    const [idle, busy] = await Promise.all([
      ...[1, 2].map(() => running.ok('keys.createKey', { apiId: API })),
    ]);
    expect(await running.verdict(busy.key)).toBe('VALID');
    expect(await running.verdict(idle.key)).toBe('VALID');
    const isReported = async (keyId: string) => 'lastUsedAt' in (await running.ok('keys.getKey', { keyId }));
    await running.until(async () => (await isReported(busy.keyId)) && (await isReported(idle.keyId)));
    const longAgo = Date.now() - 50 * DAY;
    for (const { keyId } of [idle, busy]) await running.client.hset(recordKey(API, keyId), { c: longAgo });
    await running.client.hset(usageKey(API, idle.keyId), { t: longAgo });
    await running.client.hset(apiKeys(API).head, { unused: 30 * DAY, unusedSince: longAgo });
    await running.until(async () => !(await running.ok('keys.getKey', { keyId: idle.keyId })).enabled);
    await running.until(async () => (await running.verdict(idle.key)) === 'DISABLED');
    expect(await running.verdict(busy.key)).toBe('VALID');
    const audited = async () => (await running.ok('audit.listEvents', { keyId: idle.keyId })).events;
    await running.until(async () => (await audited())[0]?.operation === 'rules.disableUnused');
    await running.ok('keys.updateKey', { keyId: idle.keyId, enabled: true });
    expect(await running.verdict(idle.key)).toBe('VALID');
    const events = await audited();
    expect(events.map(({ operation }: { operation: string }) => operation)).toEqual([
      ...['keys.updateKey', 'rules.disableUnused', 'keys.createKey'],
    ]);
  } finally {
    await running.stop();
  }
});
