import { expect, test } from 'vitest';
import { checkMeta } from '../../../control-plane/http/operations/meta.ts';

test('a number that JSON cannot hold is refused, not stored as null', () => {
  for (const text of ['{"a":1e400}', '{"a":[{"b":-1e400}]}'])
    expect(() => checkMeta(JSON.parse(text))).toThrow('meta: must have no number beyond 1.8e308');
  expect(checkMeta(JSON.parse('{"a":[1e308,null,"1e400"]}'))).toBeUndefined();
});
