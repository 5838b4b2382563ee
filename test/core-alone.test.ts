import { execFile } from 'node:child_process';
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../deploy/dev/redis-server.ts';
import { ROOT } from './harness/built.ts';
import { importsOf, reachedFrom } from './harness/imports.ts';
import { scratch } from './harness/scratch.ts';

/** A copy of the tree that has the core and its ground, and no extra. */
const run = promisify(execFile);
const KEPT = [
  ...[
    'shared/process',
    'shared/redis',
    'shared/rules',
    'shared/protocol',
    'verifier/core',
    'control-plane/core',
  ],
  ...['test/core-alone', 'package.json', 'tsconfig.json'],
];
/** In place of what counts credits: scripts of the log include it, and write no credits with it. */
const PLUG = `local function sharingOf() return function() return {} end, function() end end
local function changeCredits() error('nothing counts credits here') end
`;
let folder: string;
let redis: RedisServer;

beforeAll(async () => {
  folder = scratch('core-alone');
  for (const name of [...KEPT, ...globSync('shared/*.ts', { cwd: ROOT })])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  mkdirSync(join(folder, 'shared/metering'));
  writeFileSync(join(folder, 'shared/metering/plug.lua'), PLUG);
  redis = await startRedis(join(folder, 'redis'));
});
afterAll(async () => {
  await redis?.stop();
  rmSync(folder, { recursive: true });
});

test('compiles', async () => {
  const { stdout } = await run(join(ROOT, 'node_modules/.bin/tsc'), [], { cwd: folder }).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe('');
});

test('creates a key, verifies it, disables it and refuses it', async () => {
  const { stdout } = await run(process.execPath, [join(folder, 'test/core-alone/walk.ts')], {
    env: { REDIS_URL: redis.url },
  });
  expect(stdout.trim()).toBe('VALID VALID complete DISABLED NOT_FOUND');
});

/** Tests of the core that reach nothing else of the program, and start none of its processes. */
function ownTests(): { tests: string[]; needed: Set<string> } {
  const names = globSync('{shared,verifier,control-plane,deploy,test}/**/*.ts', { cwd: ROOT });
  const imports = importsOf(new Map(names.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')])));
  const isMissing = (name: string) =>
    name === 'test/harness/built.ts' ||
    (/^(shared|verifier|control-plane)\/.*\//.test(name) &&
      !KEPT.some((kept) => name.startsWith(`${kept}/`)));
  const tests = names.filter(
    (name) =>
      /^test\/(shared\/protocol|verifier\/core|control-plane\/core)\/.*\.test\.ts$/.test(name) &&
      ![...reachedFrom(imports, name)].some(isMissing),
  );
  const needed = new Set(tests.flatMap((name) => [name, ...reachedFrom(imports, name)]));
  return { tests, needed };
}

test('passes its own tests', async () => {
  const { tests, needed } = ownTests();
  expect(tests.length).toBeGreaterThan(10);
  for (const name of [...needed].filter((each) => /^(test|deploy)\//.test(each)))
    cpSync(join(ROOT, name), join(folder, name));
  writeFileSync(
    join(folder, 'vitest.config.ts'),
    'export default { test: { testTimeout: 300_000, hookTimeout: 300_000 } };\n',
  );
  const { stdout } = await run(
    process.execPath,
    [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--root', folder, ...tests],
    { env: { PATH: process.env['PATH'], HOME: process.env['HOME'], NO_COLOR: '1' } },
  ).catch((error: { stdout: string }) => error);
  expect(stdout).toMatch(/Test Files +\d+ passed \(/);
});
