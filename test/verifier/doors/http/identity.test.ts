import { expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { Entry } from '../../../../shared/protocol/follower/key-cache.ts';
import { Lease } from '../../../../shared/protocol/follower/lease.ts';
import { decodeState } from '../../../../shared/protocol/records/key-record.ts';
import { identityHeaders, isIdentityHeader } from '../../../../verifier/doors/http/gateway-answer.ts';
import { noPools } from '../../../harness/no-credits.ts';

const epoch = {
  apiId: 'shop',
  lease: new Lease(systemClock),
  companion: noPools,
  current: true,
  used: false,
  obeyedAtMs: 0,
};
const headersOf = (state: { name?: string; externalId?: string; meta?: string }, withMeta = true) =>
  Object.fromEntries(
    identityHeaders(
      { code: 'VALID', entry: new Entry(epoch, 'key_1', { ...decodeState(['1']), ...state }) },
      { withMeta },
    ),
  );

test('every identity header is there, or empty', () => {
  const plain = { 'X-Key-Id': 'key_1', 'X-Key-Api-Id': 'shop', 'X-Key-Name': '', 'X-Key-External-Id': '' };
  expect(headersOf({}, false)).toEqual(plain);
  expect(headersOf({})).toEqual({ ...plain, 'X-Key-Meta': '{}' });
  expect(identityHeaders({ code: 'ANONYMOUS' }, { withMeta: true })).toEqual(
    ['X-Key-Id', 'X-Key-Api-Id', 'X-Key-Name', 'X-Key-External-Id', 'X-Key-Meta'].map((name) => [name, '']),
  );
});

test('any name and external id is visible ASCII in its header and can be decoded', () => {
  for (const text of [
    'Ada',
    'Ada Lovelace',
    ' Zoë\r\nX-Key-Id: key_2',
    '100%',
    '%41',
    '日本語',
    '😀',
    '\0\x7f',
  ]) {
    const { 'X-Key-Name': name = '', 'X-Key-External-Id': owner = '' } = headersOf({
      name: text,
      externalId: text,
    });
    expect(name).toMatch(/^[\x21-\x7e]+$/);
    expect(decodeURIComponent(name)).toBe(text);
    expect(owner).toBe(name);
  }
  expect(headersOf({ name: 'Ada/1:ok,"x"' })['X-Key-Name']).toBe('Ada/1:ok,"x"');
});

test('half a surrogate pair in a name is harmless', () => {
  expect(decodeURIComponent(headersOf({ name: 'a\ud800' })['X-Key-Name'] ?? '')).toBe('a\ufffd');
});

test('meta is ASCII JSON of 2 KiB at most or empty', () => {
  const meta = { plan: '日本', mood: '😀', del: '\x7f' };
  const header = headersOf({ meta: JSON.stringify(meta) })['X-Key-Meta'] ?? '';
  expect(header).toMatch(/^[\x20-\x7e]+$/);
  expect(JSON.parse(header)).toEqual(meta);
  const longest = `{"a":"${'x'.repeat(2048 - 8)}"}`;
  expect(headersOf({ meta: longest })['X-Key-Meta']).toBe(longest);
  expect(headersOf({ meta: longest.replace('x', 'xx') })['X-Key-Meta']).toBe('');
});

test('knows a client X-Key-* header in any case', () => {
  for (const name of ['X-Key-Id', 'x-key-name', 'X-KEY-ANYTHING', 'x_key_id', 'X-Key_Id'])
    expect(isIdentityHeader(name)).toBe(true);
  for (const name of ['x-api-key', 'x-keys-id', 'my-x-key-id']) expect(isIdentityHeader(name)).toBe(false);
});

test('meta is measured as sent, escapes included', () => {
  const fits = JSON.stringify({ a: '日'.repeat(340) });
  expect(headersOf({ meta: fits })['X-Key-Meta']).toHaveLength(2048);
  expect(headersOf({ meta: JSON.stringify({ a: '日'.repeat(341) }) })['X-Key-Meta']).toBe('');
});
