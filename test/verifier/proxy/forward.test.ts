import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import {
  type ControlPlaneProxy,
  createControlPlaneProxy,
} from '../../../verifier/proxy/control-plane-proxy.ts';
import { createVerifierServer, type VerifierServer } from '../../../verifier/verifier-server.ts';
import { limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { Upstream } from '../../harness/upstream.ts';
import { eventually } from '../../harness/waiting.ts';
import { verifyKey, Wire } from '../../harness/wire.ts';

describe('a call', () => {
  let upstream: Upstream;
  let forward: ControlPlaneProxy;
  let server: VerifierServer;
  let wires: Wire[];
  let address: string;
  let warnings: string[];

  async function start(url: string, changed: { timeoutMs?: number; connections?: number } = {}) {
    const config = {
      ...limits,
      CONTROL_PLANE_TIMEOUT_MS: changed.timeoutMs ?? 75_000,
      CONTROL_PLANE_CONNECTIONS_MAX: changed.connections ?? 100,
    };
    warnings = [];
    const warn = (_fields: unknown, message?: string) => void warnings.push(message ?? '');
    forward = await createControlPlaneProxy(new URL(url), {
      id: 'v-here',
      config,
      clock: systemClock,
      log: { warn },
    });
    const log = { error: (fields: unknown) => expect.fail(JSON.stringify(fields)) };
    const answers = new ScriptedAnswers();
    server = createVerifierServer({ verifier: answers, limits, log, routes: { below: forward.below } });
    address = await server.listen('127.0.0.1', 0);
  }
  async function restart(...options: Parameters<typeof start>) {
    await server.close(0);
    await forward.close();
    await start(...options);
  }
  const wire = () => {
    const made = new Wire(address);
    wires.push(made);
    return made;
  };
  const call = (lines: readonly string[] = [], body = '') =>
    `POST /v1/keys.updateKey?a=%20b HTTP/1.1\r\nHost: verifier\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n${body}`;
  const ask = async (text: string) => {
    const { status, headers, body } = await wire().send(text).response();
    return { status, headers, ...JSON.parse(body).error };
  };

  beforeEach(async () => {
    wires = [];
    upstream = await Upstream.start();
    await start(`${upstream.address}/behind/`);
  });
  afterEach(async () => {
    for (const made of wires) made.close();
    await server.close(0);
    await forward.close();
    await upstream.close();
  });

  test('arrives without what was for this hop only', async () => {
    const lines = [
      'Authorization: Bearer root',
      'X-Request-Id: mine-2',
      'Connection: keep-alive, X-Hop',
      'X-Hop: 1',
      'Keep-Alive: timeout=5',
      'TE: trailers',
      'Upgrade: h2c',
      'Proxy-Authorization: Basic eDp5',
      'Content-Length: 4',
      'X-Twice: 1',
      'X-Twice: 2',
    ];
    const answer = await wire().send(call(lines, 'body')).response();
    expect(answer).toMatchObject({ status: 200, body: 'ok', headers: { 'x-request-id': 'mine-2' } });
    expect(upstream.seen).toEqual([
      {
        method: 'POST',
        url: '/behind/v1/keys.updateKey?a=%20b',
        body: 'body',
        aborted: false,
        headers: expect.anything(),
        headersDistinct: expect.anything(),
        rawHeaders: [
          ...['host', `127.0.0.1:${upstream.port}`, 'connection', 'keep-alive'],
          ...['Authorization', 'Bearer root', 'X-Twice', '1', 'X-Twice', '2'],
          ...['X-Forwarded-For', '127.0.0.1', 'X-Request-Id', 'mine-2', 'Via', '1.1 v-here'],
          ...['content-length', '4'],
        ],
      },
    ]);
  });

  test('is refused if it comes back to its verifier', async () => {
    expect(
      (
        await wire()
          .send(call(['Via: 1.0 proxy']))
          .response()
      ).status,
    ).toBe(200);
    const { via } = upstream.seen[0]?.headers ?? {};
    expect(via).toBe('1.0 proxy, 1.1 v-here');
    const message =
      'CONTROL_PLANE_URL of the verifier leads back to the verifier itself; set it to the address of the control plane';
    for (let i = 0; i < 2; i++)
      expect(await ask(call([`Via: ${via}`, 'Via: 1.1 other']))).toMatchObject({
        status: 503,
        code: 'SERVICE_UNAVAILABLE',
        message,
      });
    expect(upstream.seen).toHaveLength(1);
    expect(warnings).toEqual([message]);
    // Another verifier on the way is none of its business.
    expect(
      (
        await wire()
          .send(call(['Via: 1.1 v-her, 1.1 v-heres']))
          .response()
      ).status,
    ).toBe(200);
  });

  test('has its client address last, despite claims', async () => {
    const said = ['X-Forwarded-For: 10.0.0.9', 'x-forwarded-for: 10.0.0.8', 'X_Forwarded_For: 10.0.0.7'];
    expect((await wire().send(call(said)).response()).status).toBe(200);
    const { headers, rawHeaders } = upstream.seen[0] ?? {};
    expect(headers?.['x-forwarded-for']).toBe('10.0.0.9, 10.0.0.8, 127.0.0.1');
    expect(rawHeaders?.join()).not.toContain('10.0.0.7');
  });

  test('gets the answer without what was for that hop', async () => {
    upstream.handle = (_, response) => {
      response.writeHead(200, [
        'Connection',
        'X-Hop',
        'X-Hop',
        '1',
        'Set-Cookie',
        'a',
        'Set-Cookie',
        'b',
        'Content-Length',
        '2',
      ]);
      response.end('{}');
    };
    const { raw } = await wire()
      .send(call(['Connection: keep-alive']))
      .response();
    expect(raw).not.toMatch(/x-hop/i);
    expect(raw.match(/Set-Cookie: [ab]\r\n/g)).toHaveLength(2);
    expect(raw).toContain('Connection: keep-alive\r\n');
  });

  test('verifyKey stays here, however it is spelt', async () => {
    const answered = await wire()
      .send(verifyKey({ key: 'good' }))
      .response();
    expect(JSON.parse(answered.body)).toMatchObject({ code: 'VALID' });
    for (const path of [
      'keys.verifykey',
      'KEYS.verifyKey',
      'keys%2EverifyKey',
      'keys.verifyKey/',
      'keys.verifyKey;x=1',
      './keys.verifyKey',
      'x/../keys.verifyKey',
      '../metrics',
      '',
    ]) {
      const { status, code } = await ask(`GET /v1/${path} HTTP/1.1\r\nHost: verifier\r\n\r\n`);
      expect([path, status, code]).toEqual([path, 404, 'NOT_FOUND']);
    }
    expect(upstream.seen).toEqual([]);
  });

  test('reuses connections', async () => {
    const one = wire();
    for (let i = 0; i < 5; i++) expect((await one.send(call()).response()).status).toBe(200);
    expect(upstream).toMatchObject({ connections: 1, seen: { length: 5 } });
  });

  test('refused early leaves the connection usable', async () => {
    upstream.handle = (_, response) => {
      response.writeHead(413, { 'content-length': 8 }).end('too long');
    };
    const one = wire().send(call(['Content-Length: 5000000']));
    one.send(Buffer.alloc(2_500_000, 'x'));
    expect((await one.response()).status).toBe(413);
    one.send(Buffer.alloc(2_500_000, 'x'));
    upstream.handle = (_, response) => void response.writeHead(200, { 'content-length': 4 }).end('next');
    expect((await one.send(call()).response()).body).toBe('next');
  });

  test('continues only with the control plane there', async () => {
    const one = wire().send(call(['Expect: 100-continue', 'Content-Length: 4']));
    expect((await one.response()).status).toBe(100);
    expect(await one.send('body').response()).toMatchObject({ status: 200, body: 'ok' });
    expect(upstream.seen[0]?.body).toBe('body');
    await upstream.close();
    const other = wire().send(call(['Expect: 100-continue', 'Content-Length: 4']));
    expect((await other.response()).status).toBe(503);
  });

  test('undelivered says that nothing was done', async () => {
    await restart('http://127.0.0.1:1');
    const refused = await ask(call(['X-Request-Id: mine-3']));
    expect(refused).toMatchObject({ status: 503, code: 'SERVICE_UNAVAILABLE', requestId: 'mine-3' });
    expect(refused.headers).toMatchObject({ 'retry-after': '1', 'cache-control': 'no-store' });
    expect(refused.message).toBe('the control plane is out of reach; nothing was done');
  });

  test('unanswered says that the outcome is unknown', async () => {
    upstream.handle = () => undefined;
    await restart(upstream.address, { timeoutMs: 100 });
    expect((await ask(call())).message).toMatch(/in time; it may or may not have executed the call$/);
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('cut before its answer has an unknown outcome', async () => {
    upstream.handle = (request) => request.socket.destroy();
    expect((await ask(call())).message).toMatch(/ended early; it may or may not have executed the call$/);
  });

  test('beyond the bound is refused and does not wait', async () => {
    const held: (() => void)[] = [];
    upstream.handle = (_, response) => void held.push(() => response.end('late'));
    await restart(upstream.address, { connections: 1 });
    const first = wire().send(call());
    await eventually(() => held.length === 1);
    expect((await ask(call())).message).toMatch(/too many calls/);
    for (const release of held) release();
    expect((await first.response()).body).toBe('late');
  });

  test('with a broken answer is cut, never ended', async () => {
    upstream.handle = (request, response) => {
      response.write('first');
      setImmediate(() => request.socket.destroy());
    };
    const text = await wire().send(call()).rest();
    expect(text).toContain('first');
    expect(text).not.toContain('\r\n0\r\n');
  });

  test('is given up when its client gives up', async () => {
    upstream.handle = () => undefined;
    const one = wire().send(call());
    await eventually(() => upstream.seen.length === 1);
    one.socket.resetAndDestroy();
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('of ambiguous framing is refused', async () => {
    const chunked = 'Transfer-Encoding: chunked';
    expect((await ask(call(['Transfer-Encoding: gzip, chunked'], '0\r\n\r\n'))).status).toBe(400);
    expect((await ask(call([chunked, 'Content-Length: 5'], '0\r\n\r\n'))).status).toBe(400);
    const old = call([chunked], '0\r\n\r\n').replace('HTTP/1.1', 'HTTP/1.0');
    expect((await ask(old)).status).toBe(400);
    expect(upstream.seen).toEqual([]);
  });
});
