import { globSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { testsByProject } from './projects.ts';

const ROOT = join(import.meta.dirname, '..', '..');

test('every test file is in one project', () => {
  const files = Object.values(testsByProject()).flat();
  expect(files.toSorted()).toEqual(globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted());
  expect(new Set(files).size).toBe(files.length);
});

test('no unit test starts a server', () => {
  const { unit, redis, system, proof } = testsByProject();
  expect(unit).toContain('test/shared/rules/key-format.test.ts');
  expect(redis).toContain('test/control-plane/keys/listing.test.ts');
  expect(system).toContain('test/end-to-end/lifecycle.test.ts');
  expect(proof).toContain('test/proof/simulation/simulation.test.ts');
  expect(Math.min(...[unit, redis, system, proof].map(({ length }) => length))).toBeGreaterThan(5);
});
