import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

test('the last line of CI counts every report', () => {
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-count-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const report = (name: string, numPassedTests: number, numFailedTests: number) => {
    writeFileSync(join(folder, name), JSON.stringify({ numPassedTests, numFailedTests, testResults: [] }));
    return join(folder, name);
  };
  const count = (...args: string[]) => {
    const ended = spawnSync(process.execPath, ['.ci/count.mjs', ...args], { encoding: 'utf8' });
    return [ended.stdout.trim().split('\n').at(-1), ended.status];
  };
  const [unit, system] = [report('unit', 5, 0), report('system', 7, 0)];
  expect(count('0', '0', unit, system)).toEqual(['12 passed, 0 failed', 0]);
  expect(count('0', '1', unit, report('bad', 1, 2))).toEqual(['6 passed, 2 failed', 1]);
  expect(count('0', '0', unit, join(folder, 'none')), 'a run that left no report').toEqual([
    '5 passed, 1 failed',
    1,
  ]);
});
