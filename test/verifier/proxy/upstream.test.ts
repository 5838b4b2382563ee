import { createServer, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { eventually } from '../../harness/waiting.ts';
import { ask, BEARER, call, proxy, restart, upstream, useProxy, wire } from './proxy-world.ts';

useProxy();

describe('an API', () => {
  const codeOf = async (lines = [BEARER]) => {
    const { status, headers, body } = await ask(lines);
    expect(headers['content-type']).toBe('application/problem+json');
    return [status, JSON.parse(body).code];
  };

  test('that is not there is 502', async () => {
    await restart({ url: 'http://127.0.0.1:1' });
    expect(await codeOf()).toEqual([502, 'BAD_GATEWAY']);
  });

  test('that breaks off is 502, or cuts the answer', async () => {
    upstream.handle = ({ socket }) => socket.destroy();
    expect(await codeOf()).toEqual([502, 'BAD_GATEWAY']);
    upstream.handle = ({ socket }, response) => {
      response.write('first');
      setImmediate(() => socket.destroy());
    };
    const text = await wire()
      .send(call([BEARER]))
      .rest();
    expect(text).toContain('first');
    expect(text).not.toContain('\r\n0\r\n');
  });

  test('that closes early is asked again where safe', async () => {
    const once: typeof upstream.handle = ({ socket }) => {
      upstream.handle = (_, response) => void response.end('again');
      socket.destroy();
    };
    for (const [first, lines, status, times] of [
      ['GET / HTTP/1.1', [BEARER], 200, 2],
      ['POST / HTTP/1.1', [BEARER, 'Content-Length: 0'], 502, 1],
      ['GET / HTTP/1.1', [BEARER, 'Content-Length: 4'], 502, 1],
    ] as const) {
      upstream.seen.length = 0;
      upstream.handle = once;
      const one = wire().send(call(lines, 'body'.slice(0, Number(lines[1]?.slice(-1) ?? 0)), first));
      await eventually(() => one.ended || one.received.includes(`HTTP/1.1 ${status}`));
      expect([first, upstream.seen.length]).toEqual([first, times]);
    }
  });

  test('that says nothing in time is 504', async () => {
    await restart({ env: { UPSTREAM_TIMEOUT_MS: '100' } });
    upstream.handle = () => undefined;
    expect(await codeOf()).toEqual([504, 'GATEWAY_TIMEOUT']);
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('gets what it may, and the rest is 503', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '2' } });
    const held: (() => void)[] = [];
    upstream.handle = (_, response) => void held.push(() => response.end('late'));
    const first = ['good', 'rich'].map((key) => wire().send(call([`X-Api-Key: ${key}`])));
    await eventually(() => held.length === 2);
    expect(await codeOf()).toEqual([503, 'SERVICE_UNAVAILABLE']);
    for (const release of held) release();
    for (const each of first) await eventually(() => each.received.includes('late'));
    expect(upstream.connections).toBe(2);
  });
});

test('a key leaves some connections to others', async () => {
  await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '8' }, authz: { allowPreflight: true } });
  const held: (() => void)[] = [];
  upstream.handle = (_, response) => void held.push(() => response.end('late'));
  const statusesOf = async (key: string, count: number) => {
    const before = held.length;
    const wires = Array.from({ length: count }, () => wire().send(call([`X-Api-Key: ${key}`])));
    const refused = () => wires.filter((each) => each.received.includes('HTTP/1.1 503')).length;
    await eventually(() => held.length - before + refused() === count);
    return held.length - before;
  };
  expect(await statusesOf('good', 8)).toBe(4);
  expect(await statusesOf('rich', 8)).toBe(2);
  expect(await statusesOf('poor', 8)).toBe(1);
  // Nobody's too.
  const preflight = ['Origin: https://a', 'Access-Control-Request-Method: GET'];
  wire().send(call(preflight, '', 'OPTIONS / HTTP/1.1'));
  await eventually(() => held.length === 8);
  expect((await ask(['X-Api-Key: large'])).status).toBe(503);
  for (const release of held.splice(0)) release();
  await eventually(() => proxy.stats.inFlight === 0);
  expect(await statusesOf('good', 8)).toBe(4);
  for (const release of held) release();
});

test('a silent API holds no more than its share', async () => {
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as { port: number };
  await restart({
    url: `http://127.0.0.1:${port}`,
    env: { UPSTREAM_CONNECTIONS_MAX: '8', UPSTREAM_TIMEOUT_MS: '300' },
  });
  const statuses = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const { status } = await ask([BEARER]);
      expect(sockets.size).toBeLessThanOrEqual(4);
      return status;
    }),
  );
  expect(statuses.toSorted()).toEqual([503, 503, 503, 503, 503, 503, 504, 504, 504, 504]);
  silent.close();
});
