import { spawnSync } from 'node:child_process';
import { existsSync, openSync } from 'node:fs';
import { expect, test } from 'vitest';
import { HOLDS_MS_MAX } from '../../harness/waiting.ts';

test.skipIf(!existsSync('/dev/full'))('a full disk ends or delays no process', () => {
  const file = new URL('../../../shared/process/log.ts', import.meta.url).href;
  const program = `const { createLogger } = await import('${file}'); const log = createLogger('verifier', 'info');
    log.info('first'); await new Promise(setImmediate); log.fatal('second'); log.info('third');
    process.once('beforeExit', () => process.stderr.write('still here'));`;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
    timeout: HOLDS_MS_MAX,
    killSignal: 'SIGKILL',
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: 'still here' });
});
