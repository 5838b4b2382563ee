import { expect, test, vi } from 'vitest';

/** Not by its name: it needs the types of a browser. */
const FOLLOW = '../../../control-plane/dashboard/changes/follow.ts';

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
