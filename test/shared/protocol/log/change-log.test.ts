import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import type { Write } from '../../../../shared/protocol/log/change-log-port.ts';
import { BATCH_LANE, DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { setPointer } from '../../../../shared/protocol/log/new-key-record.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { eventually, PATIENT } from '../../../harness/waiting.ts';

let fleet: Fleet;
let nodes: RedisNodes;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
});
afterAll(async () => {
  await nodes.close();
  await fleet.stop();
});

test('a batch of changes lets other changes in', async () => {
  const created = await Promise.all(
    Array.from({ length: 100 }, () => fleet.ok('keys.createKey', { apiId: 'shop' })),
  );
  const [single = '', ...many] = created.map(({ keyId }) => String(keyId));
  const log = new RedisChangeLog(nodes, new DurableWriter(nodes, 0), 0, Date.now);
  const fields = { e: '0' };
  const disable = (keyId: string): Write => ({ apiId: 'shop', operation: 'update', keyId, fields });
  const sequenceOf = (outcome: object | undefined) =>
    outcome && 'sequence' in outcome ? Number(outcome.sequence) : Number.NaN;
  await log.writeAll([disable(single)]);
  const before = sequenceOf(await log.write(disable(single)));
  const connection = vi.spyOn(nodes, 'connection');
  const [outcomes, beside] = await Promise.all([log.writeAll(many.map(disable)), log.write(disable(single))]);
  expect(connection.mock.calls.filter(([, lane]) => lane === BATCH_LANE)).toHaveLength(1);
  const sequences = outcomes.map(sequenceOf);
  expect([...sequences, sequenceOf(beside)].sort((a, b) => a - b)).toEqual(
    many.map((_, i) => before + 1 + i).concat(before + 100),
  );
  expect(sequences).toEqual(sequences.toSorted((a, b) => a - b));
  // Two groups of 25 may be on their way before it.
  expect(sequenceOf(beside) - before).toBeLessThanOrEqual(51);
});

test('an import keeps no single write waiting', async () => {
  const writer = new DurableWriter(nodes, 0);
  await writer.sendAll([setPointer({ pointer: 'kf:i:first', value: 'shop' })]);
  const runs = Array.from({ length: 2000 }, (_, i) =>
    setPointer({ pointer: `kf:i:many${i}`, value: 'shop' }),
  );
  // One behind the other on one connection, it would never be first; beside it, it is unless the machine stands still.
  await eventually(async () => {
    const ended: string[] = [];
    await Promise.all([
      writer.sendAll(runs).then(() => ended.push('many')),
      writer.send(setPointer({ pointer: 'kf:i:single', value: 'shop' })).then(() => ended.push('single')),
    ]);
    return ended[0] === 'single';
  });
});
