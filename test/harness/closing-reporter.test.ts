import { expect, test } from 'vitest';
import { slowest } from './closing-reporter.ts';

test('names the slowest five of many files', () => {
  const files = [300, 62_040, 100, 5000, 400, 200].map((ms) => ({ name: `${ms}.test.ts`, ms }));
  expect(slowest(files)).toBe(
    [
      'The slowest files:',
      '   62.0 s  62040.test.ts',
      '    5.0 s  5000.test.ts',
      '    0.4 s  400.test.ts',
      '    0.3 s  300.test.ts',
      '    0.2 s  200.test.ts',
    ].join('\n'),
  );
  expect(slowest(files.slice(1)), 'all are seen anyway').toBe('');
});
