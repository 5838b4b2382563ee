import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECTS, testsByProject } from './projects.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const textOf = (file: string) => readFileSync(join(ROOT, file), 'utf8');

test('every test file is in one project', () => {
  const files = Object.values(testsByProject()).flat();
  expect(files.toSorted()).toEqual(globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted());
  expect(new Set(files).size).toBe(files.length);
});

test('npm test needs nothing but Node and Redis', () => {
  const { redis, system } = testsByProject();
  expect(redis).toContain('test/readme.test.ts');
  expect(system, 'may be skipped').toContain('test/control-plane/clients/cli/terminal.test.ts');
  expect(system, 'openssl makes its certificates').toContain('test/verifier/doors/http/tls.test.ts');
});

test('CI runs every project', () => {
  const { scripts } = JSON.parse(textOf('package.json'));
  const runs = textOf('.ci/run').matchAll(/^(?:\w+=\w+ )?run .*npm run ([\w:]+)(.*)$/gm);
  const projects = [...runs].flatMap(([, name = '', more]) =>
    `${scripts[name]}${more}`.match(/(?<=--project )\w+/g),
  );
  expect(projects.toSorted()).toEqual(PROJECTS.toSorted());
});

test('no unit test starts a server', () => {
  const { unit, redis, system, proof } = testsByProject();
  expect(unit).toContain('test/shared/rules/key-format.test.ts');
  expect(redis).toContain('test/control-plane/core/keys/listing.test.ts');
  expect(system).toContain('test/end-to-end/lifecycle.test.ts');
  expect(proof).toContain('test/proof/simulation/simulation.test.ts');
  expect(Math.min(...[unit, redis, system, proof].map(({ length }) => length))).toBeGreaterThan(5);
});
