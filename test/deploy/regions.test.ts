import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../harness/waiting.ts';

let child: ChildProcess;
let output = '';

beforeAll(async () => {
  // Seven ports in a row, below those that the system gives away.
  const env = { ...process.env, PORT: String(20_000 + (process.pid % 1000) * 10) };
  child = spawn('npm', ['run', '--silent', 'regions'], { env, detached: true });
  child.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  await eventually(() => output.includes('Ctrl-C stops'), 'no regions are ready');
});

afterAll(async () => {
  if (child.exitCode !== null) return;
  const exit = once(child, 'exit');
  process.kill(-(child.pid ?? 0), 'SIGINT'); // as Ctrl-C does, to the whole group
  await exit;
});

test('npm run regions: what it prints works as it stands', async () => {
  const walk = output.slice(output.indexOf('  ROOT_KEY='), output.indexOf('Ctrl-C'));
  const { stdout } = await promisify(execFile)('sh', ['-c', walk]);
  const codes = stdout.match(/"(?:code|state)":"\w+"|"durable":\w+/g);
  expect(codes).toEqual([
    ...['"code":"VALID"', '"code":"VALID"', '"code":"VALID"'],
    ...['"state":"complete"', '"durable":true', '"code":"DISABLED"'],
  ]);
});
