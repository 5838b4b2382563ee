import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { freePort } from '../../../harness/ports.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
/** Beside the project's libraries, which it imports. */
const FILE = join(ROOT, `node_modules/.consumer-${process.pid}.mjs`);
let fleet: Fleet;
let consumer: ChildProcess | undefined;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
});
afterAll(async () => {
  consumer?.kill();
  rmSync(FILE, { force: true });
  await fleet.stop();
});

test('the sample consumer takes only signed events', async () => {
  const page = readFileSync(join(ROOT, 'control-plane/subjects/webhooks/README.md'), 'utf8');
  const [, code = ''] = /```js\n([\s\S]*?)```/.exec(page) ?? [];
  expect(code).toContain('new Webhook(process.env.SIGNING_SECRET)');
  writeFileSync(FILE, code);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/hook`;
  const { endpointId, secret } = await fleet.ok('webhooks.createEndpoint', { url });
  consumer = spawn(process.execPath, [FILE], {
    env: { PATH: process.env['PATH'] ?? '', SIGNING_SECRET: secret, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  consumer.stdout?.on('data', (chunk) => {
    output += chunk;
  });
  await fleet.until(async () => (await fleet.ok('webhooks.test', { endpointId })).delivered);
  await fleet.until(() => output.includes("webhook.test { endpointId: 'endpoint_"));
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.until(() => output.includes(keyId));
  const { endpointId: other } = await fleet.ok('webhooks.createEndpoint', { url: `${url}?other` });
  expect(await fleet.ok('webhooks.test', { endpointId: other })).toMatchObject({
    delivered: false,
    status: 401,
  });
});
