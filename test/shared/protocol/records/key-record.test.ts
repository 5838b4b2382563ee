import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  auditedFields,
  decodeState,
  KEY_FIELDS,
  KEY_LETTERS,
  type KeyPatch,
  keyFields,
  RECORD_FACTS,
  storedFields,
} from '../../../../shared/protocol/records/key-record.ts';

test('every field has a letter of its own', () => {
  const letters = [...KEY_LETTERS, ...Object.keys(RECORD_FACTS)];
  expect(new Set(letters).size).toBe(letters.length);
});

const patches: fc.Arbitrary<KeyPatch> = fc.record(
  {
    enabled: fc.boolean(),
    expires: fc.option(fc.integer({ min: 1, max: 8.64e15 })),
    name: fc.option(fc.string({ unit: 'grapheme', minLength: 1 })),
    externalId: fc.option(fc.string({ unit: 'grapheme', minLength: 1 })),
    meta: fc.option(fc.dictionary(fc.string(), fc.jsonValue())),
    environment: fc.option(fc.string({ unit: 'grapheme', minLength: 1 })),
  },
  { requiredKeys: [] },
);

test('reads set fields back and no cleared ones', () => {
  fc.assert(
    fc.property(patches, (patch) => {
      const there = Object.entries(patch).filter(([, value]) => value !== null);
      // Compared as JSON, which has neither -0 nor prototypes.
      const expected = JSON.parse(JSON.stringify({ enabled: false, meta: {}, ...Object.fromEntries(there) }));
      expect(JSON.parse(JSON.stringify(keyFields(storedFields(patch))))).toEqual(expected);
    }),
  );
});

test('changes and audits only what is given', () => {
  const summaryOf = (text: string) => ({ of: text });
  const audited = (patch: KeyPatch) => auditedFields(storedFields(patch), summaryOf);
  expect(storedFields({})).toEqual({});
  expect(audited({})).toEqual({});
  expect(audited({ enabled: false, expires: 9, name: 'Ada', externalId: 'ada', meta: { a: 1 } })).toEqual({
    enabled: false,
    expires: 9,
    name: 'Ada',
    externalId: 'ada',
    meta: { of: '{"a":1}' },
  });
  expect(audited({ expires: null, name: null, externalId: null, meta: null })).toEqual({
    expires: null,
    name: null,
    externalId: null,
    meta: { of: '{}' },
  });
});

test('reads a state with more or fewer fields', () => {
  const empty = {
    flag: true,
    time: 0,
    text: '',
    object: '{}',
    limit: '',
    limits: '',
    concurrency: '',
    slugs: '',
    ranges: '',
    origins: '',
    apis: '',
  };
  const none = {
    ...Object.fromEntries(Object.entries(KEY_FIELDS).map(([name, { kind }]) => [name, empty[kind]])),
    pool: '',
    firstId: '',
  };
  expect(decodeState(['1'])).toEqual(none);
  const stored = ['1', '9', 'Ada', 'ada', '{"a":1}', 'live', '', '', 'a b'];
  const read = { expires: 9, name: 'Ada', externalId: 'ada', meta: '{"a":1}', environment: 'live' };
  const later = [...stored, ...Array(KEY_LETTERS.length - stored.length).fill(''), 'of a later version'];
  expect(decodeState(later)).toEqual({ ...none, ...read, permissions: 'a b' });
  expect(Object.keys(decodeState(['1']))).toEqual([...Object.keys(KEY_FIELDS), 'pool', 'firstId']);
});
