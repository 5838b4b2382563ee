import { expect, test } from 'vitest';
import { type NewRecord, recordRun } from '../../../../shared/protocol/log/new-key-record.ts';

const RECORD: NewRecord = {
  apiId: 'shop',
  keyId: 'key_1',
  secretHash: 'hash',
  start: 'shop_1',
  name: 'Ada',
  meta: {},
  externalId: 'ada',
  expires: 9,
  enabled: true,
  createdAt: 7,
  foreign: false,
};
const DIGEST = 8;
const digestOf = (record: NewRecord, createApi = true, leaseMs = 500) =>
  String(recordRun(record, createApi, leaseMs).args[DIGEST]);

test('has one digest only for equal keys', () => {
  const { name: _name, ...nameless } = RECORD;
  const { externalId: _owner, ...ownerless } = RECORD;
  const { expires: _expires, ...lasting } = RECORD;
  const others: NewRecord[] = [
    { ...RECORD, keyId: 'key_2' },
    { ...RECORD, secretHash: 'other' },
    { ...RECORD, start: 'shop_2' },
    { ...RECORD, name: 'Bob' },
    { ...RECORD, name: 'x' },
    { ...RECORD, meta: { a: 1 } },
    { ...RECORD, externalId: 'bob' },
    { ...RECORD, expires: 10 },
    { ...RECORD, enabled: false },
    { ...RECORD, createdAt: 8 },
    { ...RECORD, foreign: true },
    nameless,
    ownerless,
    lasting,
    // The same texts, one after the other, in other places.
    { ...nameless, name: 'Ada', externalId: 'adaAda' },
    { ...ownerless, externalId: 'a', name: 'daAda' },
  ];
  const digests = [RECORD, ...others].map((record) => digestOf(record));
  expect(new Set(digests).size).toBe(digests.length);
  for (const digest of digests) expect(digest).toMatch(/^[0-9a-f]{32}$/);
  // How the record is asked for, and what concerns its API alone, is no part of it.
  expect(digestOf(RECORD, false, 9)).toBe(digestOf(RECORD));
});
