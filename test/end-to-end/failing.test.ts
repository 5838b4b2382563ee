import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { scratch } from '../harness/scratch.ts';

const ROOT = join(import.meta.dirname, '..', '..');

test('a test that fails tells operation, answer, log', async () => {
  const folder = scratch('failing');
  const harness = join(ROOT, 'test/harness');
  try {
    writeFileSync(
      join(folder, 'vitest.config.ts'),
      `export default { test: { setupFiles: ['${harness}/as-found.ts'], include: ['failing.test.ts'] } };`,
    );
    writeFileSync(
      join(folder, 'failing.test.ts'),
      `import { expect, test } from 'vitest';
       import { Fleet } from '${harness}/fleet.ts';
       import { Process } from '${harness}/processes.ts';
       test('fails', async () => {
         const fleet = await Fleet.start();
         const own = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl });
         try {
           await own.start();
           await fleet.admin('keys.getKey', { keyId: 'key_00000000000000000000' });
           expect('planted').toBe('');
         } finally {
           await own.stop('SIGTERM');
           await fleet.stop();
         }
       });`,
    );
    const command = [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--root', folder];
    const run = promisify(execFile)(process.execPath, command, {
      cwd: ROOT,
      env: { ...process.env, NO_COLOR: '1' },
    });
    const { stderr } = await run.then(
      () => expect.unreachable('it must fail'),
      (error: { stderr: string }) => error,
    );
    expect(stderr).toMatch(
      /^The latest of calls:\n(?:.*\n)*? {2}GET \S+\/v1\/keys\.getKey\?keyId=\S+ → 404 \{/m,
    );
    for (const name of ['verifier', 'verifier/main.ts'])
      expect(stderr).toMatch(new RegExp(`^The latest of ${name}:\n {2}\\{"level":`, 'm'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
