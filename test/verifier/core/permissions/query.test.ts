import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ownPermissionsOf } from '../../../../shared/protocol/follower/permissions.ts';
import {
  allows,
  DEPTH_MAX,
  LEAVES_MAX,
  QUERY_LENGTH_MAX,
} from '../../../../shared/rules/permission-query.ts';
import { readQuery } from '../../../../verifier/core/question.ts';

/** The answer for a key with these permissions; a text tells why the query is none. */
function answer(given: unknown, ...granted: string[]): boolean | string {
  const read = readQuery(given);
  return 'fault' in read ? read.fault : allows(new Set(granted), read.query);
}

/** A query in its two forms, and what it must answer, worked out by the words of the language. */
interface Both {
  readonly text: string;
  readonly json: unknown;
  readonly holds: (granted: ReadonlySet<string>) => boolean;
}

const SLUGS = ['a', 'b.c', 'd:e-f', 'and', 'OR', '*', 'x_1'];
const leaf: fc.Arbitrary<Both> = fc
  .constantFrom(...SLUGS.filter((slug) => !/^(?:and|or)$/i.test(slug)))
  .map((slug) => ({ text: slug, json: slug, holds: (granted) => granted.has(slug) }));
const query = fc.letrec<{ any: Both }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    leaf,
    fc
      .record({
        isAnd: fc.boolean(),
        small: fc.boolean(),
        space: fc.constantFrom(' ', '  ', '\t', '\r\n'),
        parts: fc.array(tie('any'), { minLength: 1, maxLength: 3 }),
      })
      .map(({ isAnd, small, space, parts }) => {
        const word = isAnd ? 'AND' : 'OR';
        const operator = small ? word.toLowerCase() : word;
        const inner = parts.map(({ text }) => (/[^\w.:*-]/.test(text) ? `(${text})` : text));
        return {
          text: inner.join(`${space}${operator}${space}`),
          json: { [isAnd ? 'and' : 'or']: parts.map(({ json }) => json) },
          holds: (granted: ReadonlySet<string>) =>
            isAnd ? parts.every(({ holds }) => holds(granted)) : parts.some(({ holds }) => holds(granted)),
        };
      }),
  ),
})).any;

test('a query allows just what it asks for', () => {
  fc.assert(
    fc.property(query, fc.subarray(SLUGS), ({ text, json, holds }, granted) => {
      const expected = holds(new Set(granted));
      expect(answer(json, ...granted)).toBe(expected);
      if (text.length <= QUERY_LENGTH_MAX) expect(answer(text, ...granted)).toBe(expected);
    }),
    { numRuns: 2000 },
  );
});

describe('a text', () => {
  test('is one permission, none stands for another', () => {
    expect(answer('files.read', 'files.read')).toBe(true);
    for (const other of ['files.Read', 'files', 'files.*', '*', 'files.read.all'])
      expect(answer('files.read', other)).toBe(false);
    expect(answer('files.*', 'files.*')).toBe(true);
    expect(answer('files.*', 'files.read')).toBe(false);
    expect(answer('files.read')).toBe(false);
  });

  test('alone may be called as an operator is', () => {
    expect([answer('AND', 'AND'), answer('or', 'or'), answer('AND', 'and')]).toEqual([true, true, false]);
  });

  test('has AND before OR, parentheses before both', () => {
    expect(answer('a OR b AND c', 'a')).toBe(true);
    expect(answer('(a OR b) AND c', 'a')).toBe(false);
    expect(answer('a AND b OR c', 'c')).toBe(true);
    expect(answer('a AND (b OR c)', 'c')).toBe(false);
    expect(answer('((a))AND(b)', 'a', 'b')).toBe(true);
    expect(answer('orders.read AND android', 'orders.read', 'android')).toBe(true);
  });

  const SLUG_RULE = /^permissions must match /;
  test.each([
    ['', /^expected a permission/],
    ['  ', /^expected a permission/],
    ['a b', /^expected AND, OR or the end/],
    ['a AND', /^expected a permission/],
    ['AND a', /^expected a permission/],
    ['a AND OR b', /^expected a permission/],
    ['a OR OR b', /^expected a permission/],
    ['()', /^expected a permission/],
    ['(a', /^a parenthesis is not closed/],
    ['(a b)', /^a parenthesis is not closed/],
    ['a)', /^expected AND, OR or the end/],
    ['a AND (b OR c))', /^expected AND, OR or the end/],
    ['a(b)', /^expected AND, OR or the end/],
    ['a && b', SLUG_RULE],
    ['NOT a!', SLUG_RULE],
    ['a/b', SLUG_RULE],
    ['clé', SLUG_RULE],
    ['a\u00a0AND b', SLUG_RULE],
    ['a\0', SLUG_RULE],
    ['x'.repeat(101), SLUG_RULE],
    [`a AND ${'x'.repeat(101)}`, SLUG_RULE],
    ['x '.repeat(501), /^must have at most 1000 characters$/],
  ])('that is none says the rule: %j', (text, fault) => {
    expect(answer(text, 'a', 'b')).toMatch(fault);
    // Again, should it have been remembered.
    expect(answer(text, 'a', 'b')).toMatch(fault);
  });
});

describe('an object', () => {
  const RULE = /^must be a permission, or an object whose only field is `and` or `or`, a non-empty list/;
  test.each([
    undefined,
    null,
    0,
    true,
    [],
    ['a'],
    {},
    { and: [] },
    { or: {} },
    { and: 'a' },
    { and: ['a'], or: ['b'] },
    { and: ['a'], extra: 1 },
    { not: ['a'] },
    { and: [null] },
    { or: ['a', undefined] },
    { or: ['a', ['b']] },
    { or: ['a', {}] },
  ])('that is none says the rule: %j', (given) => {
    expect(answer(given, 'a', 'b')).toMatch(RULE);
  });

  test('holds permissions, no texts of queries', () => {
    expect(answer({ and: ['a AND b'] }, 'a', 'b')).toMatch(/^permissions must match /);
    expect(answer({ or: ['a', ''] }, 'a')).toMatch(/^permissions must match /);
  });
});

describe('the limits', () => {
  const nested = (depth: number) => {
    let query: unknown = 'a';
    for (let i = 0; i < depth; i++) query = { or: ['b', query] };
    return query;
  };
  test('are what the documentation says', () => {
    expect([QUERY_LENGTH_MAX, LEAVES_MAX, DEPTH_MAX]).toEqual([1000, 100, 20]);
  });

  test('of depth hold in both forms', () => {
    const text = (depth: number) => `${'('.repeat(depth)}a${')'.repeat(depth)}`;
    for (const form of [text, nested]) {
      expect(answer(form(DEPTH_MAX), 'a')).toBe(true);
      expect(answer(form(DEPTH_MAX + 1), 'a')).toBe(`must have at most ${DEPTH_MAX} levels`);
    }
    expect(answer(nested(100_000), 'a')).toBe(`must have at most ${DEPTH_MAX} levels`);
  });

  test('of permissions count repeats, in both forms', () => {
    const list = (length: number) => Array.from({ length }, () => 'a');
    const forms = [(length: number) => list(length).join(' OR '), (length: number) => ({ or: list(length) })];
    for (const form of forms) {
      expect(answer(form(LEAVES_MAX), 'a')).toBe(true);
      expect(answer(form(LEAVES_MAX + 1), 'a')).toBe(`must name at most ${LEAVES_MAX} permissions`);
    }
  });
});

test('keys with equal permissions share their set', () => {
  const rights = ownPermissionsOf('a b.c');
  expect(rights).toMatchObject({ slugs: ['a', 'b.c'] });
  expect(ownPermissionsOf('a b.c')).toBe(rights);
  expect(ownPermissionsOf('a')).not.toBe(rights);
  expect(ownPermissionsOf('')).toBeUndefined();
});
