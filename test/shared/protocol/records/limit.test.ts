import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LONGEST_MS, type Period } from '../../../../shared/protocol/records/calendar.ts';
import {
  LIMIT_FIELDS,
  limitFault,
  limitOfText,
  limitText,
  type NamedLimit,
  wholeNamedLimit,
} from '../../../../shared/protocol/records/limit.ts';

const more = {
  limit: fc.integer({ min: 1, max: 1_000_000_000 }),
  async: fc.boolean(),
  autoApply: fc.boolean(),
};
const limits: fc.Arbitrary<NamedLimit> = fc
  .oneof(
    fc.record({ ...more, duration: fc.integer({ min: 1000, max: 31 * 86_400_000 }) }),
    fc.record(
      {
        ...{ ...more, interval: fc.constantFrom(...(Object.keys(LONGEST_MS) as Period[])) },
        anchor: fc.record({ offsetMinutes: fc.integer({ min: -720, max: 840 }) }),
        thresholds: fc.constant([80, 95]),
      },
      { requiredKeys: ['limit', 'interval'] },
    ),
  )
  .map((limit) => ({ name: 'calls', ...limit }));

test('no field of a limit is lost in its text', () => {
  fc.assert(
    fc.property(limits, (limit) => {
      const entered = limitOfText(limitText(limit), JSON.parse);
      expect(entered && wholeNamedLimit({ name: 'calls', ...entered })).toEqual(wholeNamedLimit(limit));
    }),
  );
});

test('what is stored may be sent back', () => {
  fc.assert(
    fc.property(limits, (limit) => {
      const stored = wholeNamedLimit(limit);
      expect(limitFault(stored)).toBeUndefined();
      expect(wholeNamedLimit(stored)).toEqual(stored);
    }),
  );
});

test('the fields have one order in Redis', () => {
  const names = Object.keys(LIMIT_FIELDS);
  fc.assert(
    fc.property(limits, (limit) => {
      const stored = Object.keys(wholeNamedLimit({ per: 'identity', ...limit }));
      expect(stored).toEqual(names.filter((name) => stored.includes(name)));
    }),
  );
  const shuffled = { per: 'identity', autoApply: true, limit: 1, duration: 1000, name: 'calls' } as const;
  expect(JSON.stringify(wholeNamedLimit(shuffled))).toBe(
    '{"name":"calls","limit":1,"duration":1000,"async":true,"autoApply":true,"per":"identity"}',
  );
});

test.each(['', '5', '5/', '5/1y', '/1s', '5/1s exakt', '5/month{}', '5/1s {"a":1'])(
  '%j is no limit',
  (text) => {
    expect(limitOfText(text, JSON.parse)).toBeUndefined();
  },
);
