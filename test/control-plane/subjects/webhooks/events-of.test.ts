import { expect, test } from 'vitest';
import type { ListedEvent } from '../../../../control-plane/core/schema/audit-event.ts';
import { letsPass, type OperationEvent } from '../../../../control-plane/core/schema/event-types.ts';
import { eventsOf } from '../../../../control-plane/subjects/webhooks/events-of.ts';

const types: Readonly<Record<string, OperationEvent>> = {
  'keys.updateKey': { changed: 'key.updated', disabled: 'key.disabled', enabled: 'key.enabled' },
  'rootKeys.updateRootKey': { disabled: 'root_key.disabled', enabled: 'root_key.enabled' },
};
const event = (fields: Partial<ListedEvent>): ListedEvent => ({
  ...{ id: '1-0', time: 1, requestId: 'r', operation: 'keys.updateKey', outcome: 'OK' },
  ...{ by: { rootKeyId: 'root_1', address: '192.0.2.1' }, on: { apiId: 'shop', keyId: 'key_1' } },
  ...fields,
});
const eventsIn = (fields: Partial<ListedEvent>) => eventsOf(event(fields), (operation) => types[operation]);

test('a change waits until done, naming its maker', () => {
  const [sent, ...others] = eventsIn({ after: { name: 'Ada' }, sequence: 7 });
  expect(others).toEqual([]);
  expect(sent).toEqual({
    ...{ type: 'key.updated', time: 1, change: { keyId: 'key_1', sequence: 7 } },
    data: {
      ...{ apiId: 'shop', keyId: 'key_1', operation: 'keys.updateKey', requestId: 'r' },
      ...{ rootKeyId: 'root_1', outcome: 'OK', after: { name: 'Ada' } },
    },
  });
  expect(JSON.stringify(sent)).not.toContain('192.0.2.1');
});

test('a repeated disable is one again', () => {
  const again = { before: { enabled: false }, after: { enabled: false } };
  expect(eventsIn(again).map(({ type }) => type)).toEqual(['key.disabled']);
  expect(eventsIn({ after: { enabled: true } }).map(({ type }) => type)).toEqual(['key.enabled']);
});

test('a call cut by an outage says nobody knows', () => {
  const [sent] = eventsIn({ outcome: 'SERVICE_UNAVAILABLE' });
  expect(sent?.data).toMatchObject({ outcome: 'UNKNOWN' });
  expect(sent?.change).toBeUndefined();
});

test('a key disabled for a leak has two events', () => {
  const leak = { operation: 'leaks.report', after: { leak: { url: 'https://example.com' } } };
  expect(eventsIn(leak).map(({ type }) => type)).toEqual(['key.leaked']);
  const disabled = { ...leak, after: { ...leak.after, enabled: false }, sequence: 3 };
  expect(eventsIn(disabled).map(({ type }) => type)).toEqual(['key.leaked', 'key.disabled']);
  const ofRootKey = { ...leak, on: { rootKeyId: 'root_2' } };
  expect(eventsIn(ofRootKey).map(({ type, data }) => [type, data['rootKeyId']])).toEqual([
    ['root_key.leaked', 'root_2'],
  ]);
});

test('a key disabled as unused has an event', () => {
  const unused = { operation: 'rules.disableUnused', after: { enabled: false, unused: {} }, sequence: 3 };
  const [sent, ...others] = eventsIn(unused);
  expect([sent?.type, sent?.change?.sequence, others]).toEqual(['key.disabled', 3, []]);
});

test('calls without a subject have no event', () => {
  expect(eventsIn({ on: { apiId: 'shop' } })).toEqual([]);
  expect(eventsIn({ operation: 'keys.never' })).toEqual([]);
});

test('tells the caller from the changed root key', () => {
  const [sent] = eventsIn({
    ...{ operation: 'rootKeys.updateRootKey', on: { rootKeyId: 'root_2' }, after: { enabled: true } },
  });
  expect(sent).toMatchObject({ type: 'root_key.enabled', data: { rootKeyId: 'root_2', by: 'root_1' } });
});

test('leaves out very large changed fields', () => {
  const [sent] = eventsIn({ after: { permissions: 'x'.repeat(40_000) } });
  expect(sent?.data).not.toHaveProperty('after');
});

test('filters let a type, a group or all pass', () => {
  expect(letsPass(['key.*'], 'key.disabled')).toBe(true);
  expect(letsPass(['key.*'], 'root_key.disabled')).toBe(false);
  expect(letsPass(['key.disabled'], 'key.enabled')).toBe(false);
  expect(letsPass(['identity.*', '*'], 'verifier.lost')).toBe(true);
});

test('a refused history is told of its API', () => {
  const after = { sequence: 1, lostSequence: 2 };
  const [sent] = eventsIn({ operation: 'rules.refuseHistory', on: { apiId: 'shop' }, after });
  expect(sent).toMatchObject({ type: 'api.history_refused', data: { apiId: 'shop', after } });
});
