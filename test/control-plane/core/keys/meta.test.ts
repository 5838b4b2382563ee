import { expect, test } from 'vitest';
import { parseExactly } from '#shared/rules/json.ts';
import { checkMeta } from '../../../../control-plane/core/schema/key-fields.ts';

test('refuses a number that JSON cannot hold', () => {
  for (const text of ['{"a":1e400}', '{"a":[{"b":-1e400}]}'])
    expect(() => checkMeta(JSON.parse(text))).toThrow('meta: must have no number that would change');
  for (const text of [
    ...['{"a":9007199254740993}', '{"a":[{"b":-12345678901234567890}]}', '{"a":9007199254740993.0}'],
    ...['{"a":90071992547409930e-1}', '{"a":9007199254740993E+0}', '{"a":1e-400}'],
  ])
    expect(() => checkMeta(parseExactly(text, () => Infinity) as object)).toThrow(
      'send such a number as a string',
    );
  for (const text of [
    ...['{"a":9007199254740992}', '{"a":-9007199254740991,"b":0.12345678901234567}', '{"a":1.50e3,"b":0e5}'],
    // What JSON writes of a number beyond 53 bits can be sent back.
    ...[JSON.stringify({ a: 2 ** 60, b: 1e21, c: 2 ** 61 + 4096 }), '{"a":-0}'],
  ])
    expect(checkMeta(parseExactly(text, () => Infinity) as object)).toBeUndefined();
  expect(checkMeta(JSON.parse('{"a":[1e308,null,"1e400"]}'))).toBeUndefined();
});
