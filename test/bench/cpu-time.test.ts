import { expect, test } from 'vitest';
import { costOf } from '../../bench/costs/cpu-time.ts';

test('the cost of tests is that of all their processes', async () => {
  const burn = 'for (let i = 0; i < 4e8; i++);';
  const child = `require('node:child_process').spawnSync(process.execPath, ['-e', '${burn}'])`;
  const alone = await costOf([process.execPath, '-e', burn]);
  const both = await costOf([process.execPath, '-e', `${burn} ${child}; process.exit(3)`]);
  expect(both.status).toBe(3);
  expect(both.cpuS / alone.cpuS).toBeGreaterThan(1.5);
});
