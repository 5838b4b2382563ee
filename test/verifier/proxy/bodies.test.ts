import { createHash, randomBytes } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { eventually, settled } from '../../harness/waiting.ts';
import { address, ask, BEARER, call, post, proxy, restart, upstream, useProxy, wire } from './proxy-world.ts';

useProxy();

describe('bodies', () => {
  test('flow piece by piece in both directions', async () => {
    upstream.handle = (incoming, response) => {
      response.writeHead(200, { trailer: 'x-sum' });
      incoming.on('data', (chunk: Buffer) => response.write(`<${chunk}>`));
      incoming.on('end', () => {
        response.addTrailers({ 'X-Sum': '42' });
        response.end();
      });
    };
    const one = wire().send(post([BEARER, 'Transfer-Encoding: chunked', 'Connection: close']));
    one.send('3\r\none\r\n');
    await eventually(() => one.received.includes('<one>'));
    one.send('3\r\ntwo\r\n');
    await eventually(() => one.received.includes('<two>'));
    one.send('0\r\n\r\n');
    expect(await one.rest()).toMatch(/0\r\nX-Sum: 42\r\n\r\n$/);
  });

  test('arrive whole, however large', async () => {
    const bytes = randomBytes(8_000_000);
    const sha = (data: Uint8Array) => createHash('sha256').update(data).digest('hex');
    upstream.handle = (incoming, response) => void incoming.pipe(response);
    const options = { method: 'POST', headers: { 'x-api-key': 'good' }, body: bytes } as const;
    const { body } = await request(address, options);
    expect(sha(await body.bytes())).toBe(sha(bytes));
  });

  test('wait for a slow reader without piling up', async () => {
    const chunk = Buffer.alloc(65_536, 'x');
    let sent = 0;
    upstream.handle = (_, response) => {
      const more = () => {
        do sent += chunk.length;
        while (sent < 100_000_000 && response.write(chunk));
      };
      response.on('drain', more);
      more();
    };
    const socket = connect(Number(new URL(address).port), '127.0.0.1').on('error', () => undefined);
    socket.write(call([BEARER]));
    await eventually(() => sent > 0);
    const refused = () => ask([]);
    expect(await settled(() => sent, refused)).toBeLessThan(50_000_000);
    socket.resetAndDestroy();
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('may take long while something comes', async () => {
    await restart({ limits: { REQUEST_TIMEOUT_MS: 200, HEADERS_TIMEOUT_MS: 200, STALL_TIMEOUT_MS: 1000 } });
    const one = wire().send(post([BEARER, 'Content-Length: 10']));
    const begunAtMs = performance.now();
    for (let i = 1; i <= 10; i++) {
      await eventually(() => performance.now() > begunAtMs + 60 * i);
      one.send('x');
      await eventually(() => upstream.seen[0]?.body.length === i);
    }
    expect((await one.response()).status).toBe(200);
    const stalled = wire().send(post([BEARER, 'Content-Length: 10'], 'x'));
    await stalled.rest();
    await eventually(() => upstream.seen[1]?.aborted === true);
  });

  test('end when the client no longer waits', async () => {
    upstream.handle = (_, response) => void response.write('first');
    const streaming = wire().send(call([BEARER]));
    await eventually(() => streaming.received.includes('first'));
    upstream.handle = () => undefined;
    const waiting = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 2);
    for (const one of [streaming, waiting]) one.close();
    await eventually(() => upstream.seen.every(({ aborted }) => aborted));
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('break off at the API with the client', async () => {
    const one = wire().send(post([BEARER, 'Content-Length: 10'], 'x'));
    await eventually(() => upstream.seen[0]?.body === 'x');
    one.socket.resetAndDestroy();
    await eventually(() => upstream.seen[0]?.aborted === true);
    expect(proxy.requestsInFlight).toBe(0);
  });

  test('are asked for only when the key is good', async () => {
    const lines = ['Expect: 100-continue', 'Content-Length: 4'];
    const refused = wire().send(post(['X-Api-Key: nobody', ...lines]));
    expect((await refused.response()).status).toBe(401);
    const one = wire().send(post([BEARER, ...lines]));
    expect((await one.response()).status).toBe(100);
    expect((await one.send('body').response()).status).toBe(200);
    expect(upstream.seen).toMatchObject([{ body: 'body' }]);
  });

  test('are asked for in their turn only', async () => {
    const large = 'x'.repeat(5000);
    let endFirst: (() => void) | undefined;
    upstream.handle = (request, response) => {
      if (endFirst) request.on('end', () => response.end(large));
      else endFirst = () => response.end(large);
    };
    const expecting = post([BEARER, 'Expect: 100-continue', 'Content-Length: 4'], 'body');
    const one = wire().send(expecting + expecting);
    await eventually(() => upstream.seen[0]?.body === 'body' && proxy.requestsInFlight === 2);
    // The second would be answered before these, were it passed on.
    for (let i = 0; i < 2; i++) expect((await ask([BEARER])).body).toBe(large);
    endFirst?.();
    for (let i = 0; i < 2; i++) {
      expect((await one.response()).status).toBe(100);
      expect(await one.response()).toMatchObject({ status: 200, headers: { connection: 'keep-alive' } });
    }
    expect(one.received).toBe('');
    expect(upstream.seen.map(({ body }) => body)).toEqual(['body', '', '', 'body']);
  });

  test('are forgotten with their client', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '2' } });
    const { handle } = upstream;
    upstream.handle = () => undefined;
    const lines = [BEARER, 'Expect: 100-continue', 'Content-Length: 4'];
    for (let i = 0; i < 3; i++) {
      const one = wire().send(post(lines, 'body') + post(lines));
      await eventually(() => upstream.seen[i]?.body === 'body' && proxy.requestsInFlight === 2);
      one.socket.resetAndDestroy();
      await eventually(() => upstream.seen[i]?.aborted === true);
      await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    }
    upstream.handle = handle;
    const others = ['good', 'rich'].map(async (key) => (await ask([`X-Api-Key: ${key}`])).status);
    expect(await Promise.all(others)).toEqual([200, 200]);
  });
});

test('passes on no answer of ambiguous framing', async () => {
  const answersOf = [
    'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n',
    'Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc',
    'Content-Length: 2, 3\r\n\r\nabc',
    'Content-Length: -1\r\n\r\nabc',
    'Transfer-Encoding: gzip\r\n\r\nabc',
    'X-A: b\nSet-Cookie: evil\r\nContent-Length: 2\r\n\r\nab',
    'Content-Length: 4\r\n\r\nab',
  ];
  for (const text of answersOf) {
    const raw = createServer((socket) => {
      socket.on('error', () => undefined).once('data', () => socket.end(`HTTP/1.1 200 OK\r\n${text}`));
    });
    await new Promise<void>((resolve) => raw.listen(0, '127.0.0.1', resolve));
    await restart({ url: `http://127.0.0.1:${(raw.address() as { port: number }).port}` });
    const one = wire().send(call([BEARER]));
    const outcome = await one.response().then(
      ({ status }) => status,
      () => 'cut',
    );
    expect([text, outcome]).toEqual([text, expect.toSatisfy((it) => it === 502 || it === 'cut')]);
    raw.close();
  }
});
