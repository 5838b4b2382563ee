import { expect, test } from 'vitest';
import type { QueuedEntry, SourceEntry } from '../../../../control-plane/subjects/webhooks/outbox.ts';
import { Pump } from '../../../../control-plane/subjects/webhooks/pump.ts';
import { turns } from '../../../harness/waiting.ts';
import { SteppedClock } from './stepped-clock.ts';

/** A pump whose changes are complete when a test says so, with what it queued. */
function pumping(entries: readonly SourceEntry[], { enabled = true } = {}) {
  const queued: QueuedEntry[] = [];
  const complete = new Map<number, (receipt: object) => void>();
  let reads = 0;
  let parsed = 0;
  const end = new AbortController();
  const pump = new Pump({
    outbox: {
      read: async () => {
        if (reads++ === 0) return entries;
        await new Promise((resolve) => end.signal.addEventListener('abort', resolve, { once: true }));
        return [];
      },
      queue: async (parts: readonly QueuedEntry[]) => {
        queued.push(...parts);
        return new Map();
      },
    } as never,
    endpoints: async () => [
      {
        ...{
          endpointId: 'endpoint_1',
          url: 'https://example.com',
          events: ['*'],
          enabled,
          createdAt: 1,
        },
      },
    ],
    receipts: {
      of: (_data: object, { sequence }: { sequence: number }) =>
        new Promise<object>((resolve) => complete.set(sequence, resolve)),
    } as never,
    declared: (operation) => {
      parsed++;
      return operation === 'keys.createKey' ? 'key.created' : 'key.updated';
    },
    clock: new SteppedClock(),
    log: { error: () => undefined } as never,
    onQueued: () => undefined,
    onDropped: () => undefined,
  });
  const run = pump.run(end.signal);
  const sent = () => queued.flatMap(({ messages }) => messages.map(({ id, order }) => `${order} ${id}`));
  const stop = async () => {
    end.abort();
    await run;
  };
  return { complete, sent, stop, pump, queued, parsed: () => parsed };
}

const change = (n: number, keyId: string, sequence?: number): SourceEntry => ({
  ...{ source: 0, id: `${n}-0` },
  text: JSON.stringify({
    ...{ time: n, requestId: 'r', operation: 'keys.updateKey', outcome: 'OK', by: { address: 'a' } },
    ...{ on: { apiId: 'shop', keyId }, ...(sequence === undefined ? {} : { sequence }) },
  }),
});

test('an event waits only for those of its key', async () => {
  const entries = [change(1, 'a', 1), change(2, 'b', 2), change(3, 'a', 3), change(4, 'a'), change(5, 'c')];
  const { complete, sent, stop, pump } = pumping(entries);
  await turns();
  expect(sent()).toEqual(['c event_5-0-0']);
  complete.get(3)?.({});
  complete.get(2)?.({});
  await turns();
  expect(sent()).toEqual(['c event_5-0-0', 'b event_2-0-0']);
  expect(pump.open).toBe(3);
  complete.get(1)?.({});
  await turns();
  expect(sent().slice(2)).toEqual(['a event_1-0-0', 'a event_3-0-0', 'a event_4-0-0']);
  expect(pump.open).toBe(0);
  await stop();
});

test('an event waits for an entry about many keys', async () => {
  const many = { type: 'key.created', time: 3, data: { apiId: 'shop' }, keyIds: ['a', 'b'] };
  const entries: SourceEntry[] = [
    change(1, 'b', 1),
    { source: 1, id: '2-0', text: JSON.stringify(many) },
    change(3, 'a'),
  ];
  const { complete, sent, stop } = pumping(entries);
  await turns();
  expect(sent()).toEqual([]);
  complete.get(1)?.({});
  await turns();
  expect(sent()).toEqual(['b event_1-0-0', 'a event_n2-0-0', 'b event_n2-0-1', 'a event_3-0-0']);
  await stop();
});

test('settles entries at once without live endpoint', async () => {
  const entries = [change(1, 'a', 1), { ...change(2, 'b'), text: 'no JSON' }];
  const { queued, stop, pump, parsed } = pumping(entries, { enabled: false });
  await turns();
  expect(queued.map(({ id, messages }) => [id, messages])).toEqual([
    ['1-0', []],
    ['2-0', []],
  ]);
  expect([pump.open, parsed()]).toEqual([0, 0]);
  await stop();
});

test('passes over entries until an endpoint exists', async () => {
  const clock = new SteppedClock();
  const end = new AbortController();
  const calls: string[] = [];
  let endpoints: object[] = [];
  const pump = new Pump({
    outbox: {
      read: async () => {
        calls.push('read');
        if (calls.length > 2)
          await new Promise((resolve) => end.signal.addEventListener('abort', resolve, { once: true }));
        return calls.length === 1 ? [] : [change(calls.length, 'a')];
      },
      passOver: async () => {
        calls.push('pass over');
        return endpoints.length === 0;
      },
      queue: async () => new Map(),
    } as never,
    endpoints: async () => endpoints as never,
    receipts: {} as never,
    declared: () => 'key.updated',
    clock,
    log: { error: () => undefined } as never,
    onQueued: () => undefined,
    onDropped: () => undefined,
  });
  const run = pump.run(end.signal);
  await turns();
  // It first reads what an earlier sender did not settle, and then news; there is no endpoint that wants them.
  expect(calls).toEqual(['read', 'read', 'pass over']);
  await clock.pass(500);
  await turns();
  expect(calls.slice(3)).toEqual(['pass over']);
  endpoints = [{ endpointId: 'endpoint_1', events: ['*'], enabled: true }];
  await clock.pass(500);
  await turns();
  expect(calls.slice(4)).toEqual(['pass over', 'read']);
  end.abort();
  await run;
});
