import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AbortRule } from '../../../verifier/metering/on-abort.ts';
import { Fleet } from '../../harness/fleet.ts';
import { eventually, turns } from '../../harness/waiting.ts';

/** However a request ends, its place is soon free, and it is charged what the API said, or by PROXY_ON_ABORT. */
let fleet: Fleet;
const RESERVED = 50;

const begin = (response: ServerResponse, status = 200, cost = 4) =>
  response.writeHead(status, { 'X-Keyfence-Cost': cost });
/** Writes the last part of a stream, and says its cost only after the client has left. */
function costAfterTheEnd(response: ServerResponse, padding = ''): void {
  response.writeHead(200, { Trailer: 'X-Keyfence-Cost' }).write('[DONE]');
  onLeave.set(String(response.req.headers['x-key-id']), () => {
    response.write(padding);
    response.addTrailers({ 'X-Keyfence-Cost': '4' });
    response.end();
  });
}
/** Called when the client has left, by the id of its key. */
const onLeave = new Map<string, () => void>();

/** The API, by path. */
const API: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
  '/ok': (response) => begin(response).end('ok'),
  '/none': (response) => begin(response, 204).end(),
  '/same': (response) => begin(response, 304).end(),
  '/silent': () => undefined,
  '/stream': (response) => begin(response).write('first'),
  '/dear': (response) => begin(response, 200, 80).write('first'),
  '/done': (response) => costAfterTheEnd(response),
  '/done-long': (response) => costAfterTheEnd(response, 'x'.repeat(1_000_000)),
  '/done-never': (response) => response.writeHead(200).write('[DONE]'),
  '/full': (response) => begin(response).write('x'.repeat(5_000_000)),
  '/cut': (response) => begin(response).write('first', () => response.destroy()),
  '/broken': (response) => response.socket?.end('HTTP/1.1 nonsense\r\n\r\n'),
};
const api = createServer((request, response) => API[request.url ?? '']?.(response));
const SWITCHING =
  'HTTP/1.1 101 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Keyfence-Cost: 4\r\n\r\nhello';
api.on('upgrade', ({ url }, socket: Socket) => {
  behind.add(socket.on('error', () => undefined));
  socket.write(SWITCHING);
  if (url === '/ws-polite') socket.resume().on('end', () => socket.end());
  // These never end.
  if (url === '/ws-deaf') socket.resume();
  if (url === '/ws-talks') setInterval(() => socket.write('tick'), 100).unref();
  if (url === '/ws-ends') socket.end();
});
const behind = new Set<Socket>();

beforeAll(async () => {
  await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  fleet = await Fleet.start({ verifiers: 0 });
  const UPSTREAM_URL = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  for (const [FAST_LANE, PROXY_ON_ABORT] of PROXIES)
    await fleet.addVerifier({
      ...{ UPSTREAM_URL, FAST_LANE, PROXY_PORT: '0', PROXY_RESERVE_CREDITS: String(RESERVED) },
      ...{ LOOKUP_WAIT_MS: '5000', UPSTREAM_TIMEOUT_MS: '2000', PROXY_RECHECK_MS: '100', PROXY_ON_ABORT },
    });
});
afterAll(async () => {
  await fleet.stop();
  for (const socket of behind) socket.destroy();
  api.close();
  api.closeAllConnections();
});

/** `FAST_LANE` and `PROXY_ON_ABORT` of each verifier. */
const PROXIES: readonly (readonly [string, AbortRule])[] = [
  ['true', 'charge'],
  ['false', 'charge'],
  ['true', 'release'],
  ['false', 'last'],
];

type Leave = (socket: Socket) => unknown;
const fin: Leave = (socket) => socket.end();
const reset: Leave = (socket) => socket.resetAndDestroy();
const close: Leave = (socket) => socket.destroy();
const stay: Leave = () => undefined;

type Charges = Readonly<Record<AbortRule, number>>;
/** What a request costs whose client left, by the rules. */
const cut = (charge: number, last: number): Charges => ({ charge, last, release: 0 });

/** Request, what the client awaits of the answer before it leaves, how it leaves, and what that costs. */
const ENDS: readonly (readonly [string, string, RegExp | undefined, Leave, number | Charges])[] = [
  ['finished', 'GET /ok', /\nok\b/, stay, 4],
  ['finished, and closed by FIN', 'GET /ok', /\nok\b/, fin, 4],
  ['HEAD', 'HEAD /ok', /\r\n\r\n$/, stay, 4],
  ['204', 'GET /none', /^HTTP\/1.1 204/, stay, 4],
  ['304', 'GET /same', /^HTTP\/1.1 304/, stay, 4],
  ['FIN before the head', 'GET /silent', undefined, fin, cut(RESERVED, RESERVED)],
  ['reset before the head', 'GET /silent', undefined, reset, cut(RESERVED, RESERVED)],
  ['no head in time', 'GET /silent', /^HTTP\/1.1 504/, stay, RESERVED],
  ['FIN in the body', 'GET /stream', /first/, fin, cut(RESERVED, 4)],
  ['reset in the body', 'GET /stream', /first/, reset, cut(RESERVED, 4)],
  ['reset in a body that costs more', 'GET /dear', /first/, reset, cut(80, 80)],
  ['a body that stands still', 'GET /stream', /first/, stay, 4],
  ['FIN behind [DONE]', 'GET /done', /\[DONE\]/, fin, 4],
  ['close behind [DONE]', 'GET /done', /\[DONE\]/, close, 4],
  ['reset behind [DONE]', 'GET /done', /\[DONE\]/, reset, 4],
  ['reset, and too much behind [DONE]', 'GET /done-long', /\[DONE\]/, reset, cut(RESERVED, RESERVED)],
  ['reset, and nothing behind [DONE]', 'GET /done-never', /\[DONE\]/, reset, cut(RESERVED, RESERVED)],
  ['reset before a body that nobody reads', 'GET /full', /\r\n\r\n/, reset, cut(RESERVED, 4)],
  ['a cut by the API in the body', 'GET /cut', /first/, stay, 4],
  ['an invalid answer', 'GET /broken', /^HTTP\/1.1 502/, stay, RESERVED],
  ['WebSocket, FIN', 'GET /ws-polite', /hello/, fin, 4],
  ['WebSocket, FIN, and the API reads on', 'GET /ws-deaf', /hello/, fin, 4],
  ['WebSocket, reset, and the API reads on', 'GET /ws-deaf', /hello/, reset, 4],
  ['WebSocket, FIN, and the API talks on', 'GET /ws-talks', /hello/, fin, 4],
  ['WebSocket, ended by the API', 'GET /ws-ends', /hello/, stay, 4],
];

describe.each(
  PROXIES.map(([lane, rule], i) => [lane === 'true' ? 'in the fast lane' : 'through Node', rule, i] as const),
)('%s, %s', (_name, rule, i) => {
  const verifier = () => fleet.verifiers[i];
  const ask = async (key: string) => {
    const question = { key, remaining: { cost: 0 } };
    return (await fleet.post(`${verifier()?.address}/v1/keys.verifyKey`, question)).body;
  };

  test.concurrent.each(ENDS)('%s', async (_end, line, awaited, leaveBy, charged) => {
    const fields = { apiId: 'shop', remaining: 1000, concurrency: [{ name: 'calls', limit: 1 }] };
    const { key, keyId } = await fleet.ok('keys.createKey', fields);
    const socket = connect(Number(new URL(verifier()?.proxyAddress ?? '').port), '127.0.0.1');
    let received = '';
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1').slice(0, 1000);
    });
    socket.on('error', () => undefined);
    const upgrade = line.includes('/ws') ? 'Connection: Upgrade\r\nUpgrade: websocket\r\n' : '';
    socket.write(`${line} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n${upgrade}\r\n`);
    if (awaited === undefined) await eventually(async () => !(await ask(key))['valid']);
    else await eventually(() => awaited.test(received));
    leaveBy(socket);
    await turns();
    onLeave.get(keyId)?.();
    // Far sooner than WEBSOCKET_IDLE_MS.
    await eventually(async () => {
      const { valid, remaining } = await ask(key);
      return valid === true && remaining === 1000 - (typeof charged === 'number' ? charged : charged[rule]);
    });
    socket.destroy();
  });

  test('a key that is no longer good has not left', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1000 });
    const response = await fetch(`${verifier()?.proxyAddress}/stream`, { headers: { 'x-api-key': key } });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await expect(response.text()).rejects.toThrow();
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    await eventually(async () => (await ask(key))['remaining'] === 996);
  });
});
