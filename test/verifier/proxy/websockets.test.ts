import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { eventually } from '../../harness/waiting.ts';
import type { Wire } from '../../harness/wire.ts';
import {
  answers,
  ask,
  BEARER,
  call,
  FAST_LANE,
  proxy,
  restart,
  upstream,
  useProxy,
  wire,
} from './proxy-world.ts';

useProxy();

describe('a WebSocket', () => {
  const handshake = (lines: readonly string[] = [BEARER], more = '') =>
    call(
      ['Connection: keep-alive, Upgrade', 'Upgrade: WebSocket', 'Sec-WebSocket-Key: abc', ...lines],
      more,
      'GET /live HTTP/1.1',
    );
  const SWITCHING =
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: def\r\n';
  let behind: Socket[];
  let heard: string;
  afterEach(() => {
    for (const socket of behind) socket.destroy();
  });

  /** Lets the API agree to every upgrade and say `hello`, then hands its side of the connection out. */
  function agree(head = `${SWITCHING}Upgrade: websocket\r\n\r\nhello`): void {
    [behind, heard] = [[], ''];
    upstream.server.on('upgrade', (incoming, socket: Socket) => {
      const { method = '', url = '', rawHeaders, headers, headersDistinct } = incoming;
      upstream.seen.push({ method, url, rawHeaders, headers, headersDistinct, body: '', aborted: false });
      socket.on('error', () => undefined).on('end', () => socket.end());
      socket.on('data', (chunk: Buffer) => {
        heard += chunk;
      });
      socket.write(head);
      behind.push(socket);
    });
  }
  async function opened(): Promise<[Wire, Socket]> {
    agree();
    const one = wire().send(handshake());
    await eventually(() => one.received.includes('hello'));
    const [socket] = behind;
    if (socket === undefined) throw new Error('the API has no connection');
    return [one, socket];
  }

  test('is joined to the API, which knows its key', async () => {
    agree();
    const one = wire().send(handshake([BEARER, 'X-Key-Id: admin'], 'early'));
    await eventually(() => one.received.endsWith('hello'));
    expect(one.received).toMatch(
      /^HTTP\/1\.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/,
    );
    expect(one.received).toContain('Sec-WebSocket-Accept: def\r\n');
    expect(upstream.seen[0]?.headers).toMatchObject({ 'sec-websocket-key': 'abc', 'x-key-id': 'key_good' });
    expect(upstream.seen[0]?.headers).not.toHaveProperty('authorization');
    one.send('ping');
    behind[0]?.write('pong');
    await eventually(() => heard === 'earlyping' && one.received.endsWith('pong'));
    expect(proxy.requestsInFlight).toBe(1);
  });

  test('refused by its key never reaches the API', async () => {
    agree();
    const refused = await wire()
      .send(handshake(['X-Api-Key: disabled']))
      .response();
    expect(JSON.parse(refused.body)).toMatchObject({ status: 401, code: 'DISABLED' });
    const down = await wire()
      .send(handshake(['X-Api-Key: down']))
      .response();
    expect(down.status).toBe(503);
    expect(upstream).toMatchObject({ seen: [], connections: 0 });
  });

  test('refused by the API is answered as it says', async () => {
    behind = [];
    upstream.server.on('upgrade', (_, socket: Socket) => {
      socket.end('HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno');
    });
    const one = wire().send(handshake([BEARER], 'GET /admin HTTP/1.1\r\nHost: x\r\n\r\n'));
    expect(await one.response()).toMatchObject({ status: 426, body: 'no', headers: { connection: 'close' } });
    await one.rest();
    expect(upstream.seen).toEqual([]);
    expect(proxy.requestsInFlight).toBe(0);
  });

  test('that the API turns into something else is 502', async () => {
    agree(`${SWITCHING}Upgrade: h2c\r\n\r\n`);
    expect((await wire().send(handshake()).response()).status).toBe(502);
    await restart({ url: 'http://127.0.0.1:1' });
    expect((await wire().send(handshake()).response()).status).toBe(502);
  });

  test('ends at both sides, after the last words', async () => {
    const [one, socket] = await opened();
    const gone = new Promise((resolve) => socket.once('close', resolve));
    one.socket.resetAndDestroy();
    await gone;
    behind = [];
    const other = wire().send(handshake());
    await eventually(() => behind.length === 1);
    const last = 'x'.repeat(1_000_000);
    behind[0]?.end(`${last}bye`);
    expect(await other.rest()).toMatch(/xbye$/);
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('whose key is disabled is cut', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const [one, socket] = await opened();
    answers.disabled.add('good');
    await one.rest();
    await eventually(() => socket.destroyed);
  });

  test('on which nothing moves is cut', async () => {
    await restart({ env: { WEBSOCKET_IDLE_MS: '1000' } });
    const [one, socket] = await opened();
    await one.rest();
    await eventually(() => socket.destroyed);
  });

  test('counts for the API and is cut at the close', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '1' } });
    const [one] = await opened();
    expect((await ask([BEARER])).status).toBe(503);
    await proxy.close(0);
    await one.rest();
  });

  test('waits for the request before it', async () => {
    agree();
    const one = wire()
      .send(call(['X-Api-Key: slow-good']))
      .send(handshake());
    if (!FAST_LANE) await eventually(() => upstream.seen.length === 1);
    await eventually(() => answers.asked.includes('slow-good'));
    answers.release();
    expect((await one.response()).body).toBe('ok');
    if (FAST_LANE) await eventually(() => /^HTTP\/1\.1 101 .*hello$/s.test(one.received));
    else expect((await one.response()).body).toBe('ok');
  });

  test('with a body is a plain request', async () => {
    agree();
    const body = await wire()
      .send(handshake([BEARER, 'Content-Length: 4'], 'body'))
      .response();
    expect(body.body).toBe('ok');
    const h2c = await wire().send(handshake().replace('WebSocket\r\n', 'h2c\r\n')).response();
    expect(h2c.body).toBe('ok');
    for (const { headers } of upstream.seen) expect(headers.upgrade).toBeUndefined();
  });
});
