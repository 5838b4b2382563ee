import { execFileSync, spawnSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ACCEPTED, type Accepted } from './accepted.ts';
import { filesOf } from './copy.ts';
import { mutate, type Tried } from './mutate.ts';
import { mutantsOf, plant, shown } from './plant.ts';
import { TestProcess } from './test-process.ts';
import { testsOf } from './tests-of.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

describe('what is planted', () => {
  const plantedIn = (file: string, text: string) =>
    mutantsOf(file, text).map((mutant) => shown(text, mutant).after);

  test('in TypeScript is code turned or left out', () => {
    const mutated = (text: string) => plantedIn('a.ts', text);
    expect(mutated('f(a < 3);')).toEqual([';', 'f(a <= 3);', 'f(a > 3);', 'f(a < 4);']);
    expect(mutated('const b = !x && y.every(z);')).toEqual(
      expect.arrayContaining([
        'const b = x && y.every(z);',
        'const b = !x || y.every(z);',
        'const b = !x && y.some(z);',
      ]),
    );
    expect(mutated('if (a) throw b;')).toEqual(['if (true) throw b;', 'if (false) throw b;', 'if (a) ;']);
    expect(mutated('const a = { b: 1, ...c };')).toEqual(
      expect.arrayContaining(['const a = { ...c };', 'const a = { b: 1, };', 'const a = { b: 0, ...c };']),
    );
    expect(mutated('const a = /^b{1,8}$/i;')).toEqual([
      'const a = /b{1,8}$/i;',
      'const a = /^b{1,9}$/i;',
      'const a = /^b{1,8}/i;',
      'const a = /^b{1,8}$/;',
    ]);
    expect(mutated('call(a, b);')).toEqual([';', 'call(a);']);
  });

  test('in TypeScript is nothing in types or prose', () => {
    const text = [
      "import a from 'b';",
      "type C = 'd' | 1;",
      'function e(f: 1 | 2): void {}',
      "const g = 'Some prose.';",
      'log.debug(1 < 2);',
      'const h = { examples: [1] };',
    ].join('\n');
    expect(plantedIn('a.ts', text)).toEqual([]);
  });

  test('in Lua is code turned or left out', () => {
    const mutated = (text: string) => plantedIn('a.lua', text);
    expect(mutated("if a == 'b' then return -1 end -- c == 1")).toEqual([
      'if true then return -1 end -- c == 1',
      'if false then return -1 end -- c == 1',
      "if a ~= 'b' then return -1 end -- c == 1",
      "if a == '' then return -1 end -- c == 1",
      "if a == 'b' then return -2 end -- c == 1",
    ]);
    expect(mutated("  redis.call('DEL', KEYS[1])")).toEqual(['', "redis.call('DEL', KEYS[2])"]);
  });

  test('is one place and no other text', () => {
    for (const file of ['control-plane/core/callers/root-permissions.ts', 'shared/protocol/log/change.lua']) {
      const text = readFileSync(join(ROOT, file), 'utf8');
      const mutants = mutantsOf(file, text);
      expect(mutants.length).toBeGreaterThan(20);
      for (const mutant of mutants) {
        const changed = plant(text, mutant);
        expect(changed).not.toBe(text);
        expect(changed.slice(0, mutant.start)).toBe(text.slice(0, mutant.start));
        expect(changed.slice(mutant.start + mutant.to.length)).toBe(text.slice(mutant.end));
      }
    }
  });
});

describe('a run', () => {
  let project: string;
  beforeAll(() => {
    project = mkdtempSync(join(tmpdir(), 'keyfence-mutants-test-'));
    symlinkSync(join(ROOT, 'node_modules'), join(project, 'node_modules'));
    const files = {
      '.gitignore': 'node_modules\n',
      'package.json': '{"type":"module"}',
      // Without the declarations of Vitest and Node, which take the compiler five times as long as these few lines.
      'tsconfig.json': readFileSync(join(ROOT, 'tsconfig.json'), 'utf8')
        .replace(/"include": \[.*\]/, '"include": ["allowed.ts"]')
        .replace('"types": ["node"]', '"types": []'),
      'allowed.ts': 'export function allowed(n: number): boolean {\n  return n >= 0 && n < 3;\n}\n',
      'weak.test.ts': testText('expect([1, 9].map(allowed)).toEqual([true, false]);'),
      'strong.test.ts': testText('expect([-1, 0, 2, 3].map(allowed)).toEqual([false, true, true, false]);'),
      'broken.test.ts': testText('expect(allowed(1)).toBe(false);'),
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(project, name), text);
    mkdirSync(join(project, 'folder'));
    writeFileSync(join(project, 'folder', 'some.txt'), 'text');
    symlinkSync('folder', join(project, 'link'));
    execFileSync('git', ['init', '-q'], { cwd: project, stdio: 'ignore' });
  });
  afterAll(() => rmSync(project, { recursive: true, force: true }));

  const testText = (expectation: string) =>
    `import { expect, test } from 'vitest';\nimport { allowed } from './allowed.ts';\ntest('it', () => {\n  ${expectation}\n});\n`;
  const run = (
    tests: readonly string[],
    options: { accepted?: readonly Accepted[]; seed?: number; count?: number } = {},
  ) =>
    mutate({
      root: project,
      files: new Map([['allowed.ts', 'all']]),
      testsOf: () => tests,
      accepted: options.accepted ?? [],
      seed: options.seed ?? 1,
      count: options.count ?? 100,
      jobs: 1,
      tried: () => undefined,
    });
  const survivors = (tried: readonly Tried[]) =>
    tried.filter(({ fate }) => fate.kind === 'survived').map(({ after }) => after);
  const HOLE = { before: 'return n >= 0 && n < 3;', after: 'return n >= 0 && n <= 3;' };

  test('finds a hole in the tests, if there is one', async () => {
    const { tried: weak } = await run(['weak.test.ts']);
    expect(survivors(weak)).toContain(HOLE.after);
    expect(weak.some(({ fate }) => fate.kind === 'caught')).toBe(true);
    const { tried: strong } = await run(['weak.test.ts', 'strong.test.ts']);
    expect(survivors(strong)).toEqual([]);
    expect(strong).toHaveLength(weak.length);
  });

  test('leaves out what is accepted', async () => {
    const files = () =>
      readdirSync(project).map((name) =>
        name.endsWith('.ts') ? readFileSync(join(project, name), 'utf8') : name,
      );
    const before = files();
    const { tried } = await run(['weak.test.ts'], {
      accepted: [{ file: 'allowed.ts', ...HOLE, reason: 'it is only a test' }],
    });
    expect(survivors(tried)).not.toContain(HOLE.after);
    expect(tried.filter(({ fate }) => fate.kind === 'accepted').map(({ after }) => after)).toEqual([
      HOLE.after,
    ]);
    expect(files()).toEqual(before);
  });

  test('chooses by its seed', async () => {
    const chosen = async (seed: number) => {
      const { tried } = await run([], { seed, count: 4 });
      expect(tried).toHaveLength(4);
      expect(tried.every(({ fate }) => fate.kind === 'no tests' || fate.kind === 'refused by types')).toBe(
        true,
      );
      return tried.map(({ after }) => after);
    };
    const [one, again, other] = [await chosen(7), await chosen(7), await chosen(8)];
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
  });

  test('retries a killed test, or is undecided', async () => {
    const once = join(project, 'killed-once');
    const killed = (condition: string) =>
      `import { existsSync, writeFileSync } from 'node:fs';\nimport { expect, test } from 'vitest';\nimport { allowed } from './allowed.ts';\ntest('it', () => {\n  if (!allowed(0) && ${condition}) process.kill(process.pid, 'SIGKILL');\n  expect([-1, 0, 2, 3].map(allowed)).toEqual([false, true, true, false]);\n});\n`;
    writeFileSync(join(project, 'always.test.ts'), killed('true'));
    const always = await run(['always.test.ts']);
    const fates = always.tried.map(({ fate }) => fate.kind);
    expect(fates).toContain('not decided');
    expect(fates, 'those that leave allowed(0)').toContain('caught');
    expect(always.faults).toEqual([]);
    const [undecided] = always.tried.filter(({ fate }) => fate.kind === 'not decided');
    expect(undecided?.fate).toEqual({
      kind: 'not decided',
      reason: 'always.test.ts was killed (SIGKILL)',
    });
    const mark = JSON.stringify(once);
    const firstTime = `!existsSync(${mark}) && (writeFileSync(${mark}, ''), true)`;
    writeFileSync(join(project, 'once.test.ts'), killed(`(${firstTime})`));
    const again = await run(['once.test.ts']);
    expect(again.tried.map(({ fate }) => fate.kind)).not.toContain('not decided');
    expect(readdirSync(project)).toContain('killed-once');
  });

  test('goes on after its tests were killed', async () => {
    const started = await TestProcess.start(project);
    const [pid = 0] = childrenOf(process.pid);
    process.kill(pid, 'SIGKILL');
    const order = { file: 'strong.test.ts', changed: [] };
    expect(await started.run(order, 60_000)).toEqual({ killed: 'SIGKILL' });
    expect(started.hasEnded).toBe(true);
    expect(await started.run(order, 60_000)).toEqual({ killed: 'SIGKILL' });
    await started.stop();
  });

  test('leaves out tests that fail unmutated', async () => {
    const { tried, faults } = await run(['broken.test.ts', 'strong.test.ts'], { count: 3 });
    expect(faults).toEqual(['broken.test.ts fails: it, without any mutant']);
    expect(tried.map(({ fate }) => 'by' in fate && fate.by)).toEqual(new Array(3).fill('strong.test.ts: it'));
  });
});

/** The processes of tests that this one started. */
function childrenOf(pid: number): number[] {
  const lines = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n');
  return lines
    .map((line) => line.trim().split(/\s+/))
    .filter(([, parent, ...args]) => Number(parent) === pid && args.join(' ').includes('host.ts'))
    .map(([child]) => Number(child));
}

test('takes files, folders and lines, or refuses', async () => {
  const run = (...args: string[]) =>
    spawnSync(process.execPath, ['test/proof/mutants/run.ts', ...args], { cwd: ROOT, encoding: 'utf8' });
  // Lines that there are not hold no mutant.
  const none = run('control-plane/core/callers/root-permissions.ts:9998-9999', '--seed', '7');
  expect({ status: none.status, stderr: none.stderr }).toEqual({ status: 0, stderr: '' });
  expect(none.stdout).toMatch(/^seed 7\n.*\nall +0 +0 +0 +0 +0\b/s);
  for (const args of [['nowhere.ts'], ['README.md'], ['verifier', '--count', '0']]) {
    const { status, stderr } = run(...args);
    expect(status).toBe(2);
    expect(stderr).toMatch(/: (?:not found|no code of the project|a number from 1 up)\n\nnpm run mutants/);
  }
});

test('every file of the rules has watching tests', () => {
  const files = filesOf(ROOT);
  const sources = files.filter((file) =>
    /^(control-plane|verifier|shared)\/(?!clients\/dashboard\/).*(?<!\.d)\.(ts|lua)$/.test(file),
  );
  expect(sources.filter((file) => testsOf(ROOT, file, files).length === 0)).toEqual([]);
});

test('accepted mutants still exist, with a reason', () => {
  for (const { file, before, after, reason } of ACCEPTED) {
    const text = readFileSync(join(ROOT, file), 'utf8');
    const there = mutantsOf(file, text).map((mutant) => shown(text, mutant));
    expect(there, `${file}: ${before}`).toContainEqual({ before, after });
    expect(reason.length).toBeGreaterThan(15);
  }
});
