import { afterEach, expect, test, vi } from 'vitest';
import { share } from './share.ts';

afterEach(() => vi.unstubAllEnvs());
const all = Array.from({ length: 10 }, (_, i) => i);

test('shares in turn take each thing once', () => {
  vi.stubEnv('SHARES', '');
  const shares = [7, 8, 9].map((turn) => share(all, 3, turn));
  expect(shares.flat().toSorted((a, b) => a - b)).toEqual(all);
  expect(share(all, 3, 10)).toEqual(shares[0]);
});

test('SHARES=all takes everything at once', () => {
  vi.stubEnv('SHARES', 'all');
  expect(share(all, 3)).toEqual(all);
});
