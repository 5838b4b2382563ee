import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { exactTime } from '../../../../control-plane/clients/client/exact-time.ts';

test('reads each time that there is, as the calendar has it', () => {
  const times = fc.integer({ min: Date.UTC(0, 0, 1), max: Date.UTC(9999, 11, 31) });
  fc.assert(
    fc.property(times, (ms) => {
      expect(exactTime(new Date(ms).toISOString())).toBe(ms);
    }),
  );
  expect(exactTime('2028-02-29T12:00:00+01:30')).toBe(Date.UTC(2028, 1, 29, 10, 30));
  expect(exactTime('2028-02-29t12:00:00.123456789-01:30')).toBe(Date.UTC(2028, 1, 29, 13, 30, 0, 123));
  expect(exactTime('1990-12-31 15:59:59z')).toBe(Date.UTC(1990, 11, 31, 15, 59, 59));
});

test('a time that does not exist is no other time', () => {
  const wrong =
    '2030-13-01T00:00:00Z 2030-00-01T00:00:00Z 2030-06-31T00:00:00Z 2030-02-29T00:00:00Z 2030-06-00T00:00:00Z 2030-06-30T24:00:00Z 2030-06-30T24:60:00Z 2030-06-30T23:60:00Z 2030-06-30T23:59:60Z 2030-06-30T00:00:00+25:00 2030-06-30T00:00:00+24:00 2030-06-30T00:00:00+01:60 2030-06-30T00:00:00 2030-06-30 2030-06-30T00:00Z 30-06-30T00:00:00Z 2030-6-3T00:00:00Z 2030-06-30T00:00:00.Z 1e12 NaN Infinity +012030-06-30T00:00:00Z 12030-06-30T00:00:00Z 2030-W01-1T00:00:00Z';
  for (const text of [...wrong.split(' '), '', ' ', '2030-06-30T00:00:00Z ', 'Jun 30 2030', 'now', 'never'])
    expect(exactTime(text), text).toBeUndefined();
});

test('times of files and objects are read nowhere else', () => {
  for (const file of ['clients/declared/files.ts', 'clients/operator/reconcile-key.ts'])
    expect(readFileSync(new URL(`../../../../control-plane/${file}`, import.meta.url), 'utf8')).not.toMatch(
      /Date\.parse|new Date\(/,
    );
});
