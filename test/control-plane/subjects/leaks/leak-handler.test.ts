import { expect, test } from 'vitest';
import { unavailable } from '#shared/rules/errors.ts';
import type { AuditEvent } from '../../../../control-plane/core/schema/audit-event.ts';
import { LeakHandler } from '../../../../control-plane/subjects/leaks/leaks.ts';
import type { Write } from '../../../../shared/protocol/log/change-log-port.ts';
import type { BatchEvents } from '../../../../shared/protocol/writer/writer.ts';

const at = { secret: 'shop_x', type: 'shop_key', url: 'https://github.example', source: 'content' };
const arrival = { time: 1, requestId: 'r', by: { address: '127.0.0.1' } };
const key = (keyId: string, apiId = 'shop') => ({ kind: 'key', at, apiId, keyId, enabled: true }) as const;

/** A handler whose changes end as `apply` says, with what it recorded. */
function handling(
  apply: (writes: readonly Write[], waitMs?: number, events?: BatchEvents) => Promise<object>,
  noteLeak: () => Promise<void> = async () => undefined,
) {
  const recorded: AuditEvent[] = [];
  const handler = new LeakHandler({
    policy: 'disable',
    changeWriter: { applyAll: apply as never, remainingTime: (waitMs) => () => waitMs },
    keys: { noteLeak },
    rootKeys: { setEnabled: async () => undefined },
    publishedRootKeys: { publish: () => Promise.reject(new Error('there was no root key')) },
    audit: {
      record: async (_kind, event) => void recorded.push(event),
      recordAll: async (_kind, events) => void recorded.push(...events),
    },
    log: { warn: () => undefined },
  });
  return { handler, recorded };
}

test('where nobody knows whether a key was disabled, the audit log says that it may have been, and the report fails', async () => {
  const { handler, recorded } = handling(async (writes, _waitMs, events) => {
    events?.onUnknown?.(writes);
    throw unavailable('no answer');
  });
  await expect(handler.tell([key('key_1')], arrival)).rejects.toMatchObject({
    code: 'SERVICE_UNAVAILABLE',
  });
  // `refused-since` disables it again after a restore.
  expect(recorded).toMatchObject([
    { outcome: 'SERVICE_UNAVAILABLE', on: { apiId: 'shop', keyId: 'key_1' }, after: { enabled: false } },
  ]);
});

test('a key is disabled although it cannot be marked', async () => {
  const written: string[] = [];
  const { handler } = handling(
    async (writes) => {
      written.push(...writes.map(({ keyId }) => keyId));
      return { outcomes: [] };
    },
    () => Promise.reject(unavailable('no replica')),
  );
  await expect(handler.tell([key('key_1')], arrival)).rejects.toMatchObject({
    code: 'SERVICE_UNAVAILABLE',
  });
  expect(written).toEqual(['key_1']);
});

test('a key that was deleted meanwhile is no failure, and any other refusal is', async () => {
  const failing = (code: string) =>
    handling(async () => ({ outcomes: [{ keyId: 'key_1', failure: { code } }] })).handler.tell(
      [key('key_1')],
      arrival,
    );
  await expect(failing('NOT_FOUND')).resolves.toBeUndefined();
  await expect(failing('CONFLICT')).rejects.toMatchObject({ code: 'CONFLICT' });
});

test('keys of each API are changed together, all of them within 20 s', async () => {
  const calls: unknown[] = [];
  const { handler } = handling(async (writes, waitMs) => {
    calls.push([writes.map(({ apiId, keyId, fields }) => [apiId, keyId, fields]), waitMs]);
    return { outcomes: [] };
  });
  const leaked = [key('key_1'), key('key_2', 'billing'), key('key_3'), key('key_1')];
  await handler.tell(leaked, arrival);
  const off = { e: '0' };
  expect(calls).toEqual([
    [
      [
        ['shop', 'key_1', off],
        ['shop', 'key_3', off],
      ],
      20_000,
    ],
    [[['billing', 'key_2', off]], 20_000],
  ]);
});
