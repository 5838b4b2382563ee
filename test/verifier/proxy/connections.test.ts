import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { eventually, turns } from '../../harness/waiting.ts';
import {
  address,
  answers,
  ask,
  BEARER,
  call,
  FAST_LANE,
  post,
  proxy,
  restart,
  start,
  upstream,
  useProxy,
  wire,
} from './proxy-world.ts';

useProxy();

describe('calls on one connection', () => {
  test('are answered in order, however many', async () => {
    upstream.handle = ({ url }, response) => void response.end(url);
    const calls = Array.from({ length: 900 }, (_, i) => ({
      key: i % 50 === 0 ? 'slow-good' : i % 7 === 0 ? 'good' : 'disabled',
      target: `/${i}`,
    }));
    const one = wire().send(
      calls.map(({ key, target }) => call([`X-Api-Key: ${key}`], '', `GET ${target} HTTP/1.1`)).join(''),
    );
    const releasing = setInterval(() => answers.release(), 1);
    for (const { key, target } of calls) {
      const { status, body } = await one.response();
      expect([target, status]).toEqual([target, key === 'disabled' ? 401 : 200]);
      if (status === 200) expect(body).toBe(`/behind${target}`);
    }
    clearInterval(releasing);
    expect(proxy.requestsInFlight).toBe(0);
    expect(proxy.lane).toEqual(
      FAST_LANE
        ? { answered: 900, delegated: 0, handedOver: 0 }
        : { answered: 0, delegated: 0, handedOver: 0 },
    );
  });

  test('may have short bodies, and be uncommon', async () => {
    const one = wire();
    for (const [first, lines, body] of [
      ['POST /a HTTP/1.1', ['Content-Length: 3'], 'abc'],
      ['PUT /b HTTP/1.1', ['Content-Length: 3'], 'abc'],
      ['DELETE /c HTTP/1.1', [], ''],
      ['PATCH /d HTTP/1.1', ['Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'],
      ['GET /e HTTP/1.1', [], ''],
    ] as const) {
      one.send(call([BEARER, ...lines], body, first));
      expect(await one.response()).toMatchObject({ status: 200, body: 'ok' });
    }
    expect(upstream.seen.map(({ method, body }) => method + body)).toEqual([
      'POSTabc',
      'PUTabc',
      'DELETE',
      'PATCHabc',
      'GET',
    ]);
    expect(proxy.lane).toEqual(
      FAST_LANE ? { answered: 3, delegated: 0, handedOver: 1 } : { answered: 0, delegated: 0, handedOver: 0 },
    );
  });

  test('stay in the lane if refused or long', async () => {
    const body = 'b'.repeat(100_000);
    const one = wire();
    for (let i = 0; i < 3; i++) {
      expect((await one.send(call([])).response()).status).toBe(401);
      expect((await one.send(call([BEARER])).response()).status).toBe(200);
      one.send(post([BEARER, 'Content-Length: 100000'], body));
      expect((await one.response()).status).toBe(200);
      one.send(call([BEARER]) + post([BEARER, 'Content-Length: 100000'], body) + call([BEARER]));
      for (let j = 0; j < 3; j++) expect((await one.response()).status).toBe(200);
    }
    expect(upstream.seen.filter((seen) => seen.body === body).length).toBe(6);
    if (FAST_LANE) expect(proxy.lane).toEqual({ answered: 9, delegated: 9, handedOver: 0 });
  });

  test('given up are given up at the API', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    upstream.handle = (_request, response) => void response.once('close', resolve);
    const one = wire().send(
      call([BEARER, 'Content-Length: 100000'], 'b'.repeat(100_000), 'POST /a HTTP/1.1'),
    );
    await eventually(() => upstream.seen.length === 1);
    one.socket.end();
    await promise;
    await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    if (FAST_LANE) expect(proxy.lane.handedOver).toBe(0);
  });

  test('are answered before what is no request', async () => {
    const one = wire().send(call(['X-Api-Key: slow-good']));
    await eventually(() => answers.asked.includes('slow-good'));
    const warned: string[] = [];
    const warn = ({ name }: Error) => void warned.push(name);
    process.on('warning', warn);
    for (let i = 0; i < 20; i++) {
      one.send('!');
      await turns();
    }
    process.off('warning', warn);
    // Of listeners, one for each piece.
    expect(warned).toEqual([]);
    answers.release();
    expect((await one.response()).status).toBe(200);
    expect(await one.response()).toMatchObject({ status: 400, headers: { connection: 'close' } });
    expect(await one.rest()).toBe('');
  });

  test('under way are answered at the close', async () => {
    let release = (): void => undefined;
    upstream.handle = (_, response) => {
      release = () => void response.end('late');
    };
    const one = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 1);
    const closed = proxy.close(10_000);
    release();
    expect(await one.response()).toMatchObject({
      status: 200,
      body: 'late',
      headers: { connection: 'close' },
    });
    await one.rest();
    await closed;
    await start();
  });

  test('that are too many at once are refused', async () => {
    await restart({ limits: { REQUESTS_IN_FLIGHT_MAX: 1 } });
    upstream.handle = () => undefined;
    const first = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 1);
    expect((await ask([BEARER])).status).toBe(503);
    first.close();
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('are forgotten with their client', async () => {
    const keys = ['disabled', 'good', 'slow-good', 'disabled', 'good'];
    const calls = keys.map((key) => call([`X-Api-Key: ${key}`])).join('');
    const releasing = setInterval(() => answers.release(), 1);
    for (let i = 0; i < 100; i++) {
      const one = wire().send(calls);
      if (i % 3 > 0) await eventually(() => one.received.includes(i % 3 === 1 ? ' 401 ' : ' 200 '));
      one.socket.resetAndDestroy();
    }
    await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    clearInterval(releasing);
  });

  // Node has read and judged them already.
  if (FAST_LANE)
    test('do not begin once their client has gone', async () => {
      const sockets: Socket[] = [];
      const accepted = (message: unknown) => void sockets.push((message as { socket: Socket }).socket);
      subscribe('net.server.socket', accepted);
      const decide = answers.decide.bind(answers);
      answers.decide = (question) => {
        for (const socket of sockets) socket.destroy();
        return decide(question);
      };
      const one = wire().send(call(['X-Api-Key: disabled']) + call([BEARER]));
      await one.rest();
      await eventually(() => proxy.requestsInFlight === 0);
      unsubscribe('net.server.socket', accepted);
      expect(answers.asked).toEqual(['disabled']);
    });

  test('whose client does not read are given up', async () => {
    await restart({ limits: { STALL_TIMEOUT_MS: 300 }, env: { UPSTREAM_TIMEOUT_MS: '200' } });
    upstream.handle = (_, response) => {
      const more = () => {
        while (response.write(Buffer.alloc(65_536)));
      };
      response.on('drain', more);
      more();
    };
    const socket = connect(Number(new URL(address).port), '127.0.0.1').on('error', () => undefined);
    socket.pause().write(call([BEARER]));
    await eventually(() => upstream.seen[0]?.aborted === true);
    await eventually(() => proxy.requestsInFlight === 0);
    socket.destroy();
  });
});
