import { expect, test } from 'vitest';
import { CODES, COUNTERS, KINDS } from '../../../../control-plane/clients/dashboard/api/verdicts.ts';
import { USAGE_COLUMNS } from '../../../../shared/protocol/records/usage.ts';
import { VERDICT_CODES } from '../../../../shared/rules/verdict-codes.ts';

test('knows every verdict and draws none alike', () => {
  expect(CODES).toEqual(VERDICT_CODES);
  expect(COUNTERS.map(({ field }) => field)).toEqual(USAGE_COLUMNS.map(({ field }) => field));
  const kinds = Object.values(KINDS);
  expect(new Set(kinds.map(({ tone }) => tone)).size).toBe(kinds.length);
  expect(new Set(kinds.map(({ name }) => name)).size).toBe(kinds.length);
});
