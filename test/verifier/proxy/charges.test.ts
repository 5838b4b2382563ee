import { createServer as createApi } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';
import { SlowNetwork } from '../../harness/slow-network.ts';
import { elapsed, eventually, turns } from '../../harness/waiting.ts';

/** A request that did not reach the API costs nothing, and each that the API answered is charged, whatever the status. */
const RESERVED = 50;
const CREDITS = 100_000_000;
/** Number of requests of each kind. */
const COUNT = Number(process.env['CHARGED_REQUESTS'] ?? 60);
const STATUSES = [200, 204, 404, 429, 500, 503];
const DELAY_MS = 10;
const KEEP_ALIVE_MS = 2000;
const UNTOLD_MS = 400;

let fleet: Fleet;
let arrived = 0;
const closing: (() => unknown)[] = [];

/** An API, which tells how long it keeps idle connections, or does not. */
function api(keepAliveMs: number, isTold: boolean) {
  const server = createApi({ keepAliveTimeout: keepAliveMs }, (incoming, response) => {
    arrived++;
    if (!isTold) response.setHeader('Connection', 'keep-alive');
    response.statusCode = Number(/status=(\d+)/.exec(incoming.url ?? '')?.[1] ?? 200);
    incoming.resume().on('end', () => response.end());
  });
  return Object.assign(server, { keepAliveTimeoutBuffer: 0 });
}

async function listening(server: ReturnType<typeof createServer> | ReturnType<typeof createApi>) {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

async function slowApi(keepAliveMs: number, isTold: boolean): Promise<string> {
  const server = api(keepAliveMs, isTold);
  const network = await SlowNetwork.before(await listening(server), DELAY_MS);
  closing.push(() => {
    server.closeAllConnections();
    return network.close();
  });
  return network.address;
}

/** A server whose connections open only when it is told, or never. */
const held: Socket[] = [];
const slowToOpen = createServer((socket) => void held.push(socket.on('error', () => undefined)));

/** An API that answers one request on each connection. */
const oneEach = createServer((socket) => {
  let answered = false;
  socket.on('error', () => undefined);
  socket.on('data', (data) => {
    if (answered || data.includes('/hang-up')) return void socket.destroy();
    answered = true;
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
  });
});

let urls: Readonly<Record<'told' | 'untold' | 'opening' | 'closing', string>>;

beforeAll(async () => {
  urls = {
    told: `${await slowApi(KEEP_ALIVE_MS, true)}/behind/`,
    untold: `${await slowApi(UNTOLD_MS, false)}/behind/`,
    closing: `http://127.0.0.1:${await listening(oneEach)}/behind/`,
    opening: `https://127.0.0.1:${await listening(slowToOpen)}/behind/`,
  };
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(async () => {
  for (const socket of held) socket.destroy();
  await fleet.stop();
  for (const close of closing) await close();
});

describe.each([['true'], ['false']])('FAST_LANE=%s', (FAST_LANE) => {
  /** Starts a proxy in front of the API. Returns functions that send through it. */
  async function proxyTo(upstream: keyof typeof urls) {
    const verifier = await fleet.addVerifier({
      ...{
        UPSTREAM_URL: urls[upstream],
        FAST_LANE,
        PROXY_PORT: '0',
        PROXY_RESERVE_CREDITS: String(RESERVED),
      },
      LOOKUP_WAIT_MS: '10000',
    });
    const { proxyAddress = '', address } = verifier;
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: CREDITS });
    const charged = async () => {
      const { body } = await fleet.post(`${address}/v1/keys.verifyKey`, { key, remaining: { cost: 0 } });
      return (CREDITS - body.remaining) / RESERVED;
    };
    const raw = (head: string, secret = key) => {
      const socket = connect(Number(new URL(proxyAddress).port), '127.0.0.1').on('error', () => undefined);
      socket.write(`${head} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${secret}\r\n\r\n`);
      return socket;
    };
    const post = async (path = '/orders') => {
      const headers = { 'x-api-key': key };
      const answer = await request(proxyAddress + path, { method: 'POST', headers, body: 'order' });
      await answer.body.dump();
      return answer.statusCode;
    };
    return { key, charged, raw, post, verifier };
  }

  test('a path that the proxy refuses costs nothing', async () => {
    const { charged, raw } = await proxyTo('told');
    const before = arrived;
    for (const path of ['/a/../../x', '/..%2fx', '/%2e%2e/x', '/..;a/x']) {
      for (let i = 0; i < COUNT / 4; i++) {
        let text = '';
        const socket = raw(`GET ${path}`).on('data', (chunk) => {
          text += chunk.toString();
        });
        await eventually(() => text.startsWith('HTTP/1.1 400'));
        socket.destroy();
      }
    }
    expect([await charged(), arrived - before]).toEqual([0, 0]);
  });

  test('a framing that the proxy refuses holds nothing', async () => {
    const { verifier } = await proxyTo('told');
    const { key } = await fleet.ok('keys.createKey', {
      ...{ apiId: 'shop', remaining: CREDITS, concurrency: [{ name: 'calls', limit: 1 }] },
    });
    let text = '';
    const socket = connect(Number(new URL(verifier.proxyAddress ?? '').port), '127.0.0.1');
    socket.on('data', (chunk) => {
      text += chunk.toString();
    });
    socket.write(
      `POST / HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    );
    await eventually(() => text.startsWith('HTTP/1.1 400'));
    socket.destroy();
    const { body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
    expect([body.code, body.remaining]).toEqual(['VALID', CREDITS - 1]);
  });

  test('a client that leaves while its verdict waits costs nothing', async () => {
    const { charged, raw, key } = await proxyTo('told');
    const before = arrived;
    // Nobody has asked for these, so the verdict needs Redis.
    const keys = await Promise.all(
      Array.from({ length: COUNT / 2 }, () =>
        fleet.ok('keys.createKey', { apiId: 'shop', remaining: CREDITS }),
      ),
    );
    fleet.redis.process.kill('SIGSTOP');
    const sockets = keys.map(({ key }) => raw('GET /', key));
    await eventually(() => sockets.every((socket) => socket.bytesWritten > 0 && !socket.connecting));
    await turns();
    for (const [i, socket] of sockets.entries()) i % 2 === 0 ? socket.destroy() : socket.resetAndDestroy();
    await turns();
    fleet.redis.process.kill('SIGCONT');
    for (const { key } of keys)
      await eventually(async () => {
        const { body } = await fleet.verify(key, { at: fleet.verifiers.length - 1, remaining: { cost: 0 } });
        return body.remaining === CREDITS;
      });
    expect([await charged(), arrived - before, key !== '']).toEqual([0, 0, true]);
  });

  test.each([['is refused'], ['opens']])(
    'a client that leaves while a connection %s costs nothing',
    async (end) => {
      const { charged, raw } = await proxyTo('opening');
      const before = arrived;
      const sockets = Array.from({ length: COUNT / 2 }, () => raw('POST /'));
      await eventually(() => held.length === sockets.length);
      for (const [i, socket] of sockets.entries()) i % 2 === 0 ? socket.destroy() : socket.resetAndDestroy();
      await turns();
      for (const socket of held.splice(0)) end === 'opens' ? socket.end('no TLS') : socket.resetAndDestroy();
      await eventually(async () => (await charged()) === 0);
      expect(arrived).toBe(before);
    },
  );

  test('a request on a connection that the API closes is sent again, or fails, and costs nothing unless it may have arrived', async () => {
    const { charged, post, key, verifier } = await proxyTo('closing');
    const get = async (method: 'GET' | 'PUT' | 'DELETE') => {
      const answer = await request(`${verifier.proxyAddress}/`, { method, headers: { 'x-api-key': key } });
      await answer.body.dump();
      return answer.statusCode;
    };
    // The API answers the first request of each connection, and closes it at the second.
    expect([await post(), await post()]).toEqual([200, 502]);
    await eventually(async () => (await charged()) === 1);
    for (const method of ['GET', 'PUT', 'DELETE'] as const) expect(await get(method)).toBe(200);
    for (const method of ['GET', 'PUT', 'DELETE'] as const) expect(await get(method)).toBe(200);
    await eventually(async () => (await charged()) === 7);
  });

  test('a request that a new connection loses may have arrived, and is charged', async () => {
    const { charged, post } = await proxyTo('closing');
    expect(await post('/hang-up')).toBe(502);
    await eventually(async () => (await charged()) === 1);
  });

  test('each answer is charged, of whatever status', async () => {
    const { charged, post } = await proxyTo('told');
    const before = arrived;
    for (let i = 0; i < COUNT; i++) {
      const status = STATUSES[i % STATUSES.length] ?? 0;
      expect(await post(`/?status=${status}`)).toBe(status);
    }
    expect(arrived - before).toBe(COUNT);
    await eventually(async () => (await charged()) === COUNT);
  });

  test.each([
    ['of an API that tells when it closes them', 'told', KEEP_ALIVE_MS],
    ['of an API that does not tell', 'untold', UNTOLD_MS],
  ] as const)('POSTs on closing connections %s arrive, or cost nothing', async (_name, upstream, idleMs) => {
    const { charged, post } = await proxyTo(upstream);
    const before = arrived;
    const failed: number[] = [];
    let answered = 0;
    const width = Math.ceil(COUNT / 4);
    for (const offsetMs of [-2 * DELAY_MS, -DELAY_MS, 0, DELAY_MS]) {
      const statuses = await Promise.all(Array.from({ length: width }, () => post()));
      failed.push(statuses.filter((status) => status === 502).length);
      answered += statuses.filter((status) => status === 200).length;
      // The next arrive when the API closes these.
      await elapsed(idleMs + offsetMs);
    }
    expect(answered).toBe(arrived - before);
    expect(answered + failed.reduce((sum, count) => sum + count)).toBe(width * 4);
    await eventually(async () => (await charged()) === answered);
    if (upstream === 'told') expect(failed).toEqual([0, 0, 0, 0]);
    // The first that fail teach the time.
    else expect(failed.filter((count) => count > 0).length).toBeLessThanOrEqual(1);
  });
});
