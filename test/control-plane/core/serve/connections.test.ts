import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Wire } from '../../../harness/wire.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { REQUEST_TIMEOUT_MS: '1000' } });
});
afterAll(() => fleet.stop());

test.each([
  ['head', 'POST /v1/keys.createKey HTTP/1.1\r\nHost: a\r\n'],
  [
    'body',
    `POST /v1/keys.createKey HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ROOT_KEY}\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"apiId`,
  ],
])('a request whose %s stalls is 408 and ends', async (_, text) => {
  const wire = new Wire(fleet.controlPlanes[0]?.address ?? '');
  wire.send(text);
  expect(await wire.rest()).toMatch(/^HTTP\/1\.1 408 .*"code":"REQUEST_TIMEOUT"/s);
  wire.close();
  expect((await fleet.admin('apis.listApis')).status).toBe(200);
});

test('refuses a head over 16 KiB, and none below', async () => {
  for (const [bytes, status] of [
    [15_000, 200],
    [17_000, 431],
  ] as const) {
    const wire = new Wire(fleet.controlPlanes[0]?.address ?? '');
    const head = `GET /v1/apis.listApis HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ROOT_KEY}\r\n`;
    wire.send(`${head}Connection: close\r\nX: ${'a'.repeat(bytes)}\r\n\r\n`);
    expect(await wire.rest()).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    wire.close();
  }
});

test('clients that ask for a tunnel hold nothing', async () => {
  const { address = '' } = fleet.controlPlanes[0] ?? {};
  const tunnel = 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n';
  for (let i = 0; i < 50; i++) {
    const wire = new Wire(address);
    wire.send(tunnel);
    wire.socket.resetAndDestroy();
  }
  const waiting = new Wire(address);
  const closed = new Promise((resolve) => waiting.socket.once('close', resolve));
  expect(await waiting.send(tunnel).rest()).toContain('"code":"NOT_FOUND"');
  // Its own side stays open until it hears that ours is closed for good.
  const writing = setInterval(() => waiting.socket.write('more'), 10);
  await closed;
  clearInterval(writing);
  expect((await fleet.admin('apis.listApis')).status).toBe(200);
});
