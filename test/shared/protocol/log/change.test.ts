import fc from 'fast-check';
import { expect, test } from 'vitest';
import { effectOf, parsePublished } from '../../../../shared/protocol/log/change.ts';
import { KEY_FIELDS, KEY_LETTERS } from '../../../../shared/protocol/records/key-record.ts';

const hash = fc.stringMatching(/^[0-9a-f]{40}$/);

test('reads a change back whatever it holds', () => {
  const change = fc.record({
    sequence: fc.integer({ min: 1, max: 999_999_999_999_999 }),
    previousHash: fc.oneof(fc.constant(''), hash),
    hash,
    keyId: fc.stringMatching(/^[A-Za-z0-9_]{0,40}$/),
    payload: fc.string({ unit: 'binary' }),
  });
  fc.assert(
    fc.property(change, (c) => {
      expect(parsePublished([c.sequence, c.previousHash, c.hash, c.keyId, c.payload].join('|'))).toEqual(c);
    }),
  );
});

test('refuses a malformed message without throwing', () => {
  for (const message of ['', '|||', '1|x|y|z|', `-1||${'0'.repeat(40)}||`, `1||${'0'.repeat(39)}||`]) {
    expect(parsePublished(message)).toBeUndefined();
  }
  fc.assert(fc.property(fc.string(), (text) => void parsePublished(text)));
});

test('a damaged payload is an error without effect', () => {
  const change = { sequence: 1, hash: '', keyId: 'k' };
  expect(effectOf({ ...change, payload: '' })).toEqual({ kind: 'nothing' });
  for (const payload of ['{', '{}', '["set"]', '["set",""]', '["forget"]', '["other","p"]', '[1]', 'null']) {
    expect(() => effectOf({ ...change, payload })).toThrow();
  }
});

test('refuses a state of a later protocol', () => {
  const effect = (kind: string) =>
    effectOf({
      sequence: 1,
      hash: '',
      keyId: 'k',
      payload: JSON.stringify([kind, 'hash', '1', ...KEY_LETTERS.slice(1).map(() => '')]),
    });
  expect(effect('set')).toMatchObject({ kind: 'set', secretHash: 'hash', state: { enabled: true } });
  for (const kind of ['set:', 'set2', 'set ', 'reset', 'forget:2']) expect(() => effect(kind)).toThrow();
});

test('a state with too few fields is none', () => {
  const fields = KEY_LETTERS.slice(1).map(() => '');
  const effect = (state: readonly string[]) =>
    effectOf({
      sequence: 1,
      hash: '',
      keyId: 'k',
      payload: JSON.stringify(['set', 'hash pool_1', ...state]),
    });
  expect(effect(['1', ...fields])).toMatchObject({ kind: 'set' });
  expect(effect(fields)).toEqual({ kind: 'forget', secretHash: 'hash', pool: 'pool_1', firstId: '' });
  expect(effect(['1', ...fields, 'of a later one'])).toMatchObject({ kind: 'set' });
});

test('a change carries the whole key in order', () => {
  const text = fc.string({ unit: 'grapheme' });
  const kinds = {
    flag: fc.boolean(),
    time: fc.nat(),
    text,
    object: fc.jsonValue().map((value) => JSON.stringify({ value })),
    limit: fc.constantFrom('', '{"limit":1,"duration":1000,"async":true}'),
    limits: fc.constantFrom('', '[{"name":"a","limit":1,"duration":1000,"async":true}]'),
    concurrency: fc.constantFrom('', '[{"name":"b","limit":1}]'),
    slugs: fc.constantFrom('', 'a b.c'),
    ranges: fc.constantFrom('', '10.0.0.0/8 ::1'),
    origins: fc.constantFrom('', 'https://*.example.com'),
    apis: fc.constantFrom('', 'books shop'),
  };
  const rows = Object.entries(KEY_FIELDS);
  const state = fc.record({
    ...Object.fromEntries(rows.map(([name, { kind }]) => [name, kinds[kind]])),
    pool: fc.constantFrom('', 'pool_1'),
    firstId: fc.constantFrom('', 'key_1'),
  });
  const written = (value: unknown) =>
    typeof value === 'boolean' ? String(Number(value)) : String(value || '');
  fc.assert(
    fc.property(state, (s: Readonly<Record<string, unknown>>) => {
      const fields = rows.map(([name]) => written(s[name]));
      const payload = JSON.stringify(['set', `hash ${s['pool']} ${s['firstId']}`.trimEnd(), ...fields]);
      const effect = effectOf({ sequence: 1, hash: '', keyId: 'k', payload });
      expect(effect).toEqual({ kind: 'set', secretHash: 'hash', state: s });
    }),
  );
});
