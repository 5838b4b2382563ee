import { connect, type Socket } from 'node:net';
import { request } from 'undici';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { Wire } from '../../../harness/wire.ts';

/** Clients without a root key, who take connections and say nothing. Every address of 127.0.0.0/8 is one of this machine. */
let fleet: Fleet;
let keyId = '';
const strangers: Socket[] = [];
/** Of the first control plane; the second has what is usual, 15 s. */
const REQUEST_TIMEOUT_MS = 1000;
/** The kernel drops a connection that finds its queue full, and the client tries again after 1, 2 and 4 s. */
const LONGEST_MS = 30_000;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { REQUEST_TIMEOUT_MS: String(REQUEST_TIMEOUT_MS) } });
  await fleet.addControlPlane();
  ({ keyId } = await fleet.ok('keys.createKey', { apiId: 'any' }));
});
afterEach(() => {
  for (const socket of strangers.splice(0)) socket.destroy();
});
afterAll(() => fleet.stop());

/** A connection that says nothing and never closes its side. */
function stranger(localAddress: string, at = 0): Promise<Socket> {
  const { hostname, port } = new URL(fleet.controlPlanes[at]?.address ?? '');
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port), localAddress, allowHalfOpen: true });
    strangers.push(socket);
    const settled = () => resolve(socket);
    socket.resume().on('error', settled).once('connect', settled).once('close', settled);
  });
}
const many = (count: number, addressOf: (i: number) => string, at = 0) =>
  Promise.all(Array.from({ length: count }, (_, i) => stranger(addressOf(i), at)));
const oneAddress = () => '127.0.0.2';
const addressEach = (i: number) => `127.1.${i >> 8}.${i & 255}`;
const held = (series: string, at = 0) =>
  metric(fleet.controlPlanes[at]?.adminAddress, `keyfence_connections_${series}`);

/** The longest of these calls, each on a connection of its own, ms. All of them must succeed. */
async function disableOften(during: Promise<unknown>, at = 0): Promise<number> {
  let longestMs = 0;
  let isOver = false;
  void during.then(() => {
    isOver = true;
  });
  for (let calls = 0; calls < 5 || !isOver; calls++) {
    const startMs = performance.now();
    const { statusCode, body } = await request(`${fleet.controlPlanes[at]?.address}/v1/keys.updateKey`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({ keyId, enabled: calls % 2 === 0 }),
      reset: true,
      headersTimeout: 15_000,
    });
    await body.dump();
    expect(statusCode).toBe(200);
    longestMs = Math.max(longestMs, performance.now() - startMs);
  }
  return longestMs;
}

describe.each([
  ['one address', oneAddress],
  ['as many addresses', addressEach],
])('1,005 connections that say nothing, from %s', (_, addressOf) => {
  test('silent connections keep out neither admins nor probes, and are closed for good', async () => {
    const opened = many(1005, addressOf);
    expect(await disableOften(opened)).toBeLessThan(LONGEST_MS);
    expect(await held('strangers')).toBeLessThanOrEqual(500);
    expect((await fleet.get(`${fleet.controlPlanes[0]?.adminAddress}/readyz`)).status).toBe(200);
    const startMs = performance.now();
    await fleet.until(async () => (await held('strangers')) <= 1);
    // They are refused when REQUEST_TIMEOUT_MS is over, and Node looks each second.
    expect(performance.now() - startMs).toBeLessThan(REQUEST_TIMEOUT_MS + 1000 + 2000);
  });
});

test('connections that come again keep out no admin', async () => {
  const again = async (i: number): Promise<void> => {
    while (strangers.length < 6000) {
      const socket = await stranger(addressEach(i), 1);
      if (!socket.destroyed)
        await new Promise((resolve) => socket.once('end', resolve).once('close', resolve));
      socket.destroy();
    }
    for (const socket of strangers) socket.destroy();
  };
  const flood = Promise.all(Array.from({ length: 600 }, (_, i) => again(i)));
  expect(await disableOften(flood, 1)).toBeLessThan(LONGEST_MS);
  expect(await held('closed_total{bound="strangers"}', 1)).toBeGreaterThan(0);
});

/** A call on this connection. */
function call(wire: Wire, rootKey = ROOT_KEY) {
  return wire.send(head('GET', 'apis.listApis', rootKey)).response();
}
const head = (method: string, operation: string, rootKey: string, more = '') =>
  `${method} /v1/${operation} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${rootKey}\r\n${more}\r\n`;

test('an admin keeps its connection while strangers take others', async () => {
  const wire = new Wire(fleet.controlPlanes[1]?.address ?? '');
  expect((await call(wire)).status).toBe(200);
  await many(1005, oneAddress, 1);
  await many(1005, addressEach, 1);
  // The last of them may still wait to be accepted.
  await expect.poll(() => held('strangers', 1)).toBe(500);
  expect((await call(wire)).status).toBe(200);
  wire.close();
});

describe('where there are six connections at most, two of an address', () => {
  const env = { CONNECTIONS_MAX: '6', CONNECTIONS_PER_ADDRESS_MAX: '2', TRUSTED_PROXIES: '127.0.0.1' };
  let at = 0;
  let wires: Wire[] = [];
  const from = (localAddress: string) => {
    const { hostname, port } = new URL(fleet.controlPlanes[at]?.address ?? '');
    const wire = new Wire(`http://${hostname}:${port}`, localAddress);
    wires.push(wire);
    return wire;
  };
  const isOpen = async (wire: Wire) => {
    await fleet.get(`${fleet.controlPlanes[at]?.adminAddress}/livez`);
    return !wire.ended;
  };
  beforeAll(async () => {
    await fleet.addControlPlane(env);
    at = fleet.controlPlanes.length - 1;
  });
  afterEach(async () => {
    for (const wire of wires.splice(0)) wire.close();
    await fleet.until(async () => (await held('strangers', at)) + (await held('admitted', at)) === 0);
    wires = [];
  });

  test('the third of an address replaces its first', async () => {
    const other = from('127.0.0.3');
    const [first, second] = [from('127.0.0.4'), from('127.0.0.4')];
    expect((await call(second, 'nobody')).status).toBe(401);
    const third = from('127.0.0.4');
    expect((await call(third)).status).toBe(200);
    expect(await first.rest()).toBe('');
    expect(await isOpen(second)).toBe(true);
    expect(await isOpen(other)).toBe(true);
  });

  test('a trusted proxy has no limit of its address', async () => {
    const proxy = Array.from({ length: 4 }, () => from('127.0.0.1'));
    for (const wire of proxy) expect((await call(wire, 'nobody')).status).toBe(401);
    const others = ['127.0.0.3', '127.0.0.4', '127.0.0.5'].map((address) => from(address));
    await fleet.until(async () => others.some(({ ended }) => ended));
    expect([await held('admitted', at), await held('strangers', at)]).toEqual([4, 2]);
  });

  test('the longest idle admin makes room', async () => {
    const busy = from('127.0.0.4');
    const more = 'Content-Type: application/json\r\nContent-Length: 15\r\n';
    busy.send(`${head('POST', 'keys.createKey', ROOT_KEY, more)}{"apiId":`);
    await fleet.until(async () => (await held('admitted', at)) === 1);
    const [first, second] = [from('127.0.0.5'), from('127.0.0.6')];
    for (const wire of [first, second]) expect((await call(wire)).status).toBe(200);
    for (const address of ['127.0.0.7', '127.0.0.8', '127.0.0.9'])
      expect((await call(from(address))).status).toBe(200);
    expect((await call(first)).status).toBe(200);
    expect((await call(from('127.0.0.10'))).status).toBe(200);
    expect(await second.rest()).toBe('');
    expect(await isOpen(first)).toBe(true);
    busy.send('"any"}');
    expect((await busy.response()).status).toBe(200);
  });

  test('a bad last call makes a connection a stranger', async () => {
    const wire = from('127.0.0.5');
    expect((await call(wire)).status).toBe(200);
    expect([await held('strangers', at), await held('admitted', at)]).toEqual([0, 1]);
    expect((await call(wire, 'nobody')).status).toBe(401);
    expect([await held('strangers', at), await held('admitted', at)]).toEqual([1, 0]);
  });
});
