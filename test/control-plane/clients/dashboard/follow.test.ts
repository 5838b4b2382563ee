import { expect, test, vi } from 'vitest';

/** Not by its name: it needs the types of a browser. */
const FOLLOW = '../../../../control-plane/clients/dashboard/changes/follow.ts';

test('a change that waited for tokens is not called fenced', async () => {
  vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:9/dashboard/' });
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('nobody')));
  const { follow } = await import(FOLLOW);
  const propagation = {
    ...{ state: 'pending', tokens: 'pending', by: 'acks', sequence: 1, durable: true },
    ...{ verifiers: 2, waitedMs: 1, completeBy: Date.now() - 1000 },
  };
  const progress = async () => ({ propagation });
  const send = async () => ({ keyId: 'k', headline: '', propagation, undo: undefined, progress });
  const states: unknown[] = [];
  for await (const { by } of follow(undefined, send)) states.push(by);
  vi.unstubAllGlobals();
  expect(states).toEqual([undefined, 'acks']);
});

test('a change that was overtaken stays so while it is followed', async () => {
  vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:9/dashboard/' });
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('nobody')));
  const { follow } = await import(FOLLOW);
  const pending = { state: 'pending', sequence: 3, durable: true, verifiers: 1, waitedMs: 100 };
  // Only the answer to the change itself tells it.
  const progress = async () => ({ propagation: { ...pending, state: 'complete', by: 'acks' } });
  const send = async () => ({
    ...{ keyId: 'k', headline: '', undo: undefined, progress },
    propagation: { ...pending, overtakenBy: 4 },
  });
  const told: unknown[] = [];
  for await (const { propagation } of follow(undefined, send)) told.push(propagation.overtakenBy);
  vi.unstubAllGlobals();
  expect(told).toEqual([4, 4]);
});
