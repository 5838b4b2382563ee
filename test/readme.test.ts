import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { envOfStart, npmStartOrEnd } from './harness/npm-start.ts';

const readme = readFileSync(join(import.meta.dirname, '..', 'README.md'), 'utf8');

test("the README's quick start works as it stands", async () => {
  const [start, ...blocks] = [...readme.matchAll(/```sh\n([\s\S]*?)\n```/g)].map(([, block]) => block);
  expect(start).toBe('npm start');
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-readme-'));
  try {
    const env = await envOfStart(join(folder, '.keyfence'));
    const { child, output } = await npmStartOrEnd(env);
    try {
      expect(output).toContain('Keyfence is ready.');
      const walk = blocks
        .filter((block) => !block?.includes('docker compose'))
        .join('\n')
        .replaceAll('127.0.0.1:3000', `127.0.0.1:${env['CONTROL_PLANE_PORT']}`)
        .replaceAll('127.0.0.1:3001', `127.0.0.1:${env['VERIFIER_PORT']}`);
      const { stdout } = await promisify(execFile)('sh', ['-ec', walk], { cwd: folder, env });
      expect(stdout.match(/"(?:name|code|state)":"\w+"/g)).toEqual([
        ...['"code":"VALID"', '"name":"Ada"', '"state":"complete"'],
        ...['"code":"DISABLED"', '"name":"Ada"'],
      ]);
    } finally {
      // Ctrl-C reaches the whole foreground process group.
      const exited = once(child, 'exit');
      if (child.exitCode === null && process.kill(-(child.pid ?? 0), 'SIGINT')) await exited;
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
