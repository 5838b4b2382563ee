import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AuditEvent } from '../../../../control-plane/core/schema/audit-event.ts';
import { Audit } from '../../../../control-plane/subjects/audit/audit.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import type { Run } from '../../../../shared/redis/script.ts';
import { unavailable } from '../../../../shared/rules/errors.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { PATIENT } from '../../../harness/waiting.ts';

let fleet: Fleet;
let nodes: RedisNodes;
const log = createLogger('control-plane', 'silent');
beforeAll(async () => {
  fleet = new Fleet();
  await fleet.startRedis();
  nodes = new RedisNodes(redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT }), systemClock, log);
});
afterAll(async () => {
  await nodes.close();
  await fleet.stop();
});

/** Counts runs of the script, and fails as many as asked. */
class CountingWriter extends DurableWriter {
  runs = 0;
  failing = 0;

  override send<T>(run: Run<T>, lane?: string) {
    this.runs++;
    if (this.failing-- > 0) return Promise.reject(unavailable('not now'));
    return super.send(run, lane);
  }
}

const event = (requestId: string): AuditEvent => ({
  ...{ time: 1, requestId, operation: 'keys.updateKey', outcome: 'OK' },
  ...{ by: { address: '::1' }, on: {} },
});

function parts() {
  const writer = new CountingWriter(nodes, 0);
  const counted: Record<string, number> = {};
  const audit = new Audit({
    ...{ nodes, writer, clock: systemClock, log },
    limits: { eventsMax: { done: 1000, refused: 1000 }, waitingMax: 1000 },
    onCount: (kind, result, events) => {
      counted[`${kind} ${result}`] = (counted[`${kind} ${result}`] ?? 0) + events;
    },
  });
  const listed = async () => (await audit.list('done', {}, 200)).events.map(({ requestId }) => requestId);
  return { writer, counted, audit, listed };
}

test('writes events of one turn together, in order', async () => {
  const { writer, counted, audit, listed } = parts();
  const names = Array.from({ length: 120 }, (_, i) => `one ${i}`);
  await Promise.all([
    ...names.map((name) => audit.record('done', event(name))),
    audit.record('refused', event('x')),
  ]);
  expect([writer.runs, counted]).toEqual([4, { 'done written': 120, 'refused written': 1 }]);
  expect(await listed()).toEqual(names.toReversed());
  await audit.record('done', event('later'));
  expect((await listed())[0]).toBe('later');
});

test('keeps unwritten events and lists them once', async () => {
  await fleet.client.flushall();
  const { writer, counted, audit, listed } = parts();
  writer.failing = 2;
  const names = Array.from({ length: 60 }, (_, i) => `two ${i}`);
  await audit.recordAll('done', names.map(event));
  expect(audit.waiting).toBe(60);
  await fleet.until(() => audit.waiting === 0);
  expect(counted).toEqual({ 'done late': 60 });
  expect(await listed()).toEqual(names.toReversed());
});

test('a call waits until Redis takes its event', async () => {
  await fleet.client.flushall();
  const { writer, counted, audit, listed } = parts();
  writer.failing = 2;
  await audit.record('done', event('first'));
  expect(audit.waiting).toBe(0);
  await audit.record('done', event('second'));
  expect(await listed()).toEqual(['second', 'first']);
  expect(counted).toEqual({ 'done late': 1, 'done written': 1 });
});

test('bounds the wait for Redis, keeping the order', async () => {
  await fleet.client.flushall();
  const { writer, audit, listed } = parts();
  writer.failing = Number.POSITIVE_INFINITY;
  await audit.record('done', event('first'));
  expect(audit.waiting).toBe(1);
  writer.failing = 0;
  await Promise.all([audit.record('done', event('second')), audit.record('done', event('third'))]);
  expect(audit.waiting).toBe(0);
  expect(await listed()).toEqual(['third', 'second', 'first']);
});
