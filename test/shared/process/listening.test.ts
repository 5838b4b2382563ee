import { spawn } from 'node:child_process';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { COMPILED } from '../../harness/processes.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const ROOT_KEY = `root-key-${'0123456789'.repeat(3)}`;
let taken: Server;
let port: string;

beforeAll(async () => {
  taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  port = String((taken.address() as { port: number }).port);
});
afterAll(() => taken.close());

function ends(file: string, env: Record<string, string>): Promise<{ status: number | null; output: string }> {
  const own = {
    PATH: process.env['PATH'] ?? '',
    ...COMPILED,
    PORT: '0',
    ADMIN_PORT: '0',
    REDIS_URL: 'redis://127.0.0.1:1',
  };
  const child = spawn(process.execPath, [file], { cwd: ROOT, env: { ...own, LOG_LEVEL: 'silent', ...env } });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  return new Promise((resolve) => child.once('close', (status) => resolve({ status, output })));
}

test.each([
  ['control-plane/main.ts', 'PORT', { ROOT_KEY }],
  ['control-plane/main.ts', 'ADMIN_PORT', { ROOT_KEY }],
  ['verifier/main.ts', 'PORT', {}],
  ['verifier/main.ts', 'ADMIN_PORT', {}],
  ['verifier/main.ts', 'PROXY_PORT', { UPSTREAM_URL: 'http://127.0.0.1:9', PROXY_API_ID: 'shop' }],
  ['verifier/main.ts', 'EXT_AUTHZ_GRPC_PORT', {}],
])('%s: a %s in use is named with a fix', async (file, setting, more) => {
  const { status, output } = await ends(file, { ...more, [setting]: port });
  expect(output).toBe(
    `cannot listen:\n  ${setting}: 127.0.0.1:${port} is in use by another process: stop that process, or set ${setting} to another value\n`,
  );
  expect(status).toBe(1);
});

test('refuses an address this machine lacks', async () => {
  const { status, output } = await ends('verifier/main.ts', { HOST: '192.0.2.1' });
  expect(output).toMatch(
    /^cannot listen:\n {2}PORT: 192\.0\.2\.1:0 cannot be used \(EADDRNOTAVAIL\): this machine has no such address\n$/,
  );
  expect(status).toBe(78);
});

test('an address may have the brackets of a URL', async () => {
  const { output } = await ends('verifier/main.ts', { ADMIN_HOST: '[::2]' });
  expect(output).toMatch(/^cannot listen:\n {2}ADMIN_PORT: ::2:0 cannot be used \(EADDRNOTAVAIL\)/);
  const taken6 = createServer();
  await new Promise<void>((resolve) => taken6.listen(0, '::1', resolve));
  const PORT = String((taken6.address() as { port: number }).port);
  for (const file of ['control-plane/main.ts', 'verifier/main.ts'])
    expect((await ends(file, { ROOT_KEY, HOST: '[::1]', PORT })).output).toContain(
      `PORT: ::1:${PORT} is in use by another process`,
    );
  taken6.close();
});
