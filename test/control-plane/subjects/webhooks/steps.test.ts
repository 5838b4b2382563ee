import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { Audit } from '../../../../control-plane/subjects/audit/audit.ts';
import { WebhookEndpoints } from '../../../../control-plane/subjects/webhooks/endpoints.ts';
import { AddressRules, EventPoster } from '../../../../control-plane/subjects/webhooks/event-poster.ts';

import { WebhookSender } from '../../../../control-plane/subjects/webhooks/webhook-sender.ts';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { NameResolver } from '../../../../shared/process/name-resolver.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { webhookKeys, webhookSender } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { scratch } from '../../../harness/scratch.ts';
import { eventually, PATIENT } from '../../../harness/waiting.ts';
import { Receiver } from './receiver.ts';

const directory = scratch('test');
const log = createLogger('control-plane', 'silent');
const KEYS = ['key_a', 'key_b', 'key_c'];
const CHANGES = 4;
let server: RedisServer;
let nodes: RedisNodes;
let receiver: Receiver;

beforeAll(async () => {
  server = await startRedis(join(directory, 'redis'));
});
afterAll(async () => {
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});
beforeEach(async () => {
  nodes = newNodes();
  await (await nodes.connection('')).flushall();
  receiver = await Receiver.start();
});
afterEach(async () => {
  await receiver.stop();
  await nodes.close();
});

const newNodes = () => new RedisNodes(redisConfig({ REDIS_URL: server.url, ...PATIENT }), systemClock, log);

/** Redis as a process sees it that is killed at its command number `dies`: before the command, or before the reply. */
function dyingNodes(dies: number, when: 'before' | 'after') {
  const real = newNodes();
  let commands = 0;
  let isDead = false;
  const never = new Promise<never>(() => undefined);
  const dying = new Proxy(real, {
    get(target, name) {
      if (name !== 'run') return Reflect.get(target, name);
      return async (...args: Parameters<RedisNodes['run']>) => {
        if (isDead) return never;
        isDead = ++commands >= dies;
        if (isDead && when === 'before') return never;
        const reply = await target.run(...args);
        return isDead ? never : reply;
      };
    },
  });
  return { dying, isDead: () => isDead, close: () => real.close() };
}

function newSender(over: RedisNodes): WebhookSender {
  const clock = systemClock;
  return new WebhookSender({
    nodes: over,
    endpoints: new WebhookEndpoints(over, new DurableWriter(over, 0), clock),
    audit: { record: async () => undefined },
    poster: new EventPoster({
      ...{ rules: new AddressRules(['127.0.0.0/8']), clock, resolve: new NameResolver(clock).resolve },
    }),
    changeWriter: {
      status: async (_apiId, _keyId, sequence = 0) => ({
        ...{ state: 'complete', sequence, durable: true, verifiers: 1, waitedMs: 0 },
      }),
    },
    declared: () => 'key.updated',
    duties: [],
    queueMax: 1000,
    commandMsMax: 200, // a stop waits for a quarter of it
    clock,
    log,
    events: { onAttempt: () => undefined, onDropped: () => undefined },
  });
}

/** Records changes of several keys, one after the other of each. */
async function recordChanges(): Promise<void> {
  const audit = new Audit({
    nodes,
    writer: new DurableWriter(nodes, 0),
    clock: systemClock,
    limits: { eventsMax: { done: 1000, refused: 1000 }, waitingMax: 10 },
    onCount: () => undefined,
    log,
  });
  for (let sequence = 1; sequence <= CHANGES; sequence++)
    for (const keyId of KEYS)
      await audit.record('done', {
        ...{ time: 1, requestId: 'r', operation: 'keys.updateKey', outcome: 'OK' },
        ...{ by: { address: '127.0.0.1' }, on: { apiId: 'shop', keyId }, after: {}, sequence },
      });
}

for (const when of ['before', 'after'] as const)
  test(`no event is lost or out of order when the sender is killed at any of its steps, ${when} the command is carried out`, async () => {
    const writer = new DurableWriter(nodes, 0);
    const endpoints = new WebhookEndpoints(nodes, writer, systemClock);
    let hasDied = true;
    let rounds = 0;
    for (let dies = 1; hasDied; dies++, rounds++) {
      const { endpoint } = await endpoints.create({ url: receiver.url, events: ['*'] });
      receiver.received.length = 0;
      await recordChanges();
      const { dying, isDead, close } = dyingNodes(dies, when);
      const first = newSender(dying);
      void first.run();
      const { queue } = webhookKeys(endpoint.endpointId);
      const isAllDone = async () =>
        receiver.received.length >= KEYS.length * CHANGES &&
        (await (await nodes.connection('')).xlen(queue)) === 0;
      await eventually(async () => isDead() || (await isAllDone()));
      hasDied = isDead() && !(await isAllDone());
      await (await nodes.connection('')).del(webhookSender); // its term is over
      const second = newSender(nodes);
      void second.run();
      await eventually(isAllDone, `killed at step ${dies}: ${receiver.received.length} events came`);
      for (const keyId of KEYS) {
        const ofKey = receiver.received.filter(({ data }) => data.keyId === keyId);
        const unique = ofKey.filter((event, i) => ofKey.findIndex(({ id }) => id === event.id) === i);
        expect(unique.map(({ data }) => data.propagation.sequence)).toEqual([1, 2, 3, 4]);
      }
      await second.stop();
      void first.stop();
      await close();
      await endpoints.delete(endpoint.endpointId);
    }
    // Becoming the sender, its groups, its endpoints, reading, queueing, delivering and recording are steps.
    expect(rounds).toBeGreaterThan(10);
  });
