import { createServer, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import express from 'express';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import { keyfence as httpGuard } from '../../../../verifier/library/guards/node-http.ts';
import type { LocalKeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { eventually, turns } from '../../../harness/waiting.ts';
import { type App, closers, FRAMEWORKS, handled, open } from './held-apps.ts';

/** However a guarded request ends, its place is soon free, long before `holdMs` (an hour), and its cost is charged. */
let fleet: Fleet;
let verifier: LocalKeyVerifier;
const RESERVED = 10;
const RULES = ['charge', 'last', 'release'] as const;
const apps = new Map<string, App>();

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
  await verifier.ready();
  for (const [name, start] of Object.entries(FRAMEWORKS))
    for (const onAbort of RULES)
      apps.set(`${name} ${onAbort}`, await start({ verifier, apiId: 'shop', reserve: RESERVED, onAbort }));
});
afterAll(async () => {
  await Promise.all(closers.map((end) => end()));
  await verifier.close();
  await fleet.stop();
});

const newKey = async (more: object = {}): Promise<string> => {
  const fields = { apiId: 'shop', remaining: 100, concurrency: [{ name: 'calls', limit: 1 }], ...more };
  return (await fleet.ok('keys.createKey', fields)).key;
};
/** Resolves with the verdict of a question that takes nothing. */
const look = async (key: string) => {
  const verdict = await verifier.verify(key, { remaining: { cost: 0 } });
  return { valid: verdict.valid, remaining: 'remaining' in verdict ? verdict.remaining : undefined };
};
const ended = (key: string, charged: number) =>
  eventually(async () => {
    const { valid, remaining } = await look(key);
    return valid && remaining === 100 - charged;
  });

type Leave = (socket: Socket) => unknown;
const fin: Leave = (socket) => socket.end();
const reset: Leave = (socket) => socket.resetAndDestroy();
const stay: Leave = () => undefined;

/** Request, what the client awaits of the answer before it leaves, how it leaves, and what that costs. */
type End = readonly [string, string, RegExp | undefined, Leave, number];
const ENDS: readonly End[] = [
  ['finished', 'GET /charge/4', /true/, stay, 4],
  ['HEAD', 'HEAD /charge/4', /\r\n\r\n$/, stay, 4],
  ['204', 'GET /204', /^HTTP\/1.1 204/, stay, 3],
  ['304', 'GET /304', /^HTTP\/1.1 304/, stay, 3],
  ['a handler that throws', 'GET /throws', /^HTTP\/1.1 500/, stay, RESERVED],
  ['a stream that breaks', 'GET /breaks', /^/, stay, 3],
  ['FIN before the head', 'GET /silent', undefined, fin, RESERVED],
  ['reset before the head', 'GET /silent', undefined, reset, RESERVED],
  ['FIN in the body', 'GET /stream', /first/, fin, RESERVED],
  ['reset in the body', 'GET /stream', /first/, reset, RESERVED],
  ['reset in a body that costs more', 'GET /dear', /first/, reset, 12],
];

const SERVED = Object.keys(FRAMEWORKS).filter((name) => !name.endsWith('without Node'));
describe.each(SERVED)('%s', (name) => {
  const end = async ([_end, line, awaited, leaveBy, charged]: End, rule = 'charge') => {
    const key = await newKey();
    const socket = connect(apps.get(`${name} ${rule}`)?.port ?? 0, '127.0.0.1');
    let received = '';
    socket.on('error', () => undefined).on('data', (chunk) => (received += chunk));
    socket.write(`${line} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n\r\n`);
    if (awaited === undefined) await eventually(async () => !(await look(key)).valid);
    else await eventually(() => awaited.test(received));
    leaveBy(socket);
    await ended(key, charged);
    socket.destroy();
  };
  test.each(ENDS)('%s', (...row) => end(row));
  test.each([
    ['last', 3],
    ['release', 0],
  ] as const)('%s, if the client leaves', async (rule, charged) => {
    const rows = ENDS.filter(([, line, , leaveBy]) => leaveBy !== stay && !line.includes('/dear'));
    await Promise.all(
      rows.map(([text, line, awaited, leaveBy]) => end([text, line, awaited, leaveBy, charged], rule)),
    );
    await end(['a stream that breaks', 'GET /breaks', /^/, stay, 3], rule);
  });
});

type Take = (response: Promise<Response>, cut: AbortController) => unknown;
const read: Take = async (response) => (await response).text().catch(() => undefined);
const leaveUnread: Take = (response) => response;
const cancel: Take = async (response) => (await response).body?.cancel();
const abort: Take = async (response, cut) => {
  await response;
  cut.abort();
};
const abortWithin: Take = async (response, cut) => {
  await (await response).body?.getReader().read();
  cut.abort();
};

const TAKES: readonly (readonly [string, string, Take, number])[] = [
  ['finished', 'GET /charge/4', read, 4],
  ['HEAD', 'HEAD /charge/4', leaveUnread, 4],
  ['204', 'GET /204', leaveUnread, 3],
  ['a handler that throws', 'GET /throws', leaveUnread, RESERVED],
  ['a stream that breaks', 'GET /breaks', read, 3],
  ['a body that nobody reads', 'GET /charge/4', leaveUnread, RESERVED],
  ['a stream that nobody reads', 'GET /stream', leaveUnread, RESERVED],
  ['a body that is cancelled', 'GET /stream', cancel, RESERVED],
  ['an abort before the body is read', 'GET /stream', abort, RESERVED],
  ['an abort in the body', 'GET /stream', abortWithin, RESERVED],
];

describe.each(['hono without Node', 'fetch without Node'])('%s', (name) => {
  test.concurrent.each(TAKES)('%s', async (_end, line, take, charged) => {
    const key = await newKey();
    const cut = new AbortController();
    const [method = '', path = ''] = line.split(' ');
    const response = apps.get(`${name} charge`)?.fetch(path, key, cut.signal, method) as Promise<Response>;
    // Kept until the end, so that no garbage collection can help.
    const kept = [await take(response, cut), response];
    await ended(key, charged);
    kept.length = 0;
  });

  test.each([
    ['charge', RESERVED],
    ['last', 3],
    ['release', 0],
  ] as const)('an abort before the head: %s', async (rule, charged) => {
    const key = await newKey();
    const cut = new AbortController();
    void apps.get(`${name} ${rule}`)?.fetch('/silent', key, cut.signal);
    await eventually(async () => !(await look(key)).valid);
    cut.abort();
    await ended(key, charged);
  });
});

test.each(Object.keys(FRAMEWORKS))(
  '%s: a client that leaves while its verdict waits costs nothing',
  async (name) => {
    const app = apps.get(`${name} charge`);
    const key = await newKey();
    const cut = new AbortController();
    const before = handled.length;
    // The key is not in memory, so its verdict needs Redis.
    fleet.redis.process.kill('SIGSTOP');
    const arriving = app?.arrivals?.();
    const response = app?.fetch('/charge/4', key, cut.signal);
    await arriving;
    cut.abort();
    const left = response?.catch(() => undefined);
    await turns();
    fleet.redis.process.kill('SIGCONT');
    await left;
    await ended(key, 0);
    expect(handled.slice(before)).toEqual([]);
  },
);

test('an upgrade ends after a FIN that nobody answers', async () => {
  const guard = httpGuard({ verifier, apiId: 'shop', reserve: RESERVED });
  const server = createServer();
  const accepted: Socket[] = [];
  server.on('upgrade', (incoming: IncomingMessage, socket: Socket) =>
    guard.upgrade(incoming, socket, (apiKey) => {
      apiKey.charge(4);
      accepted.push(socket.on('error', () => undefined).resume());
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
    }),
  );
  const { port = 0 } = await open(server.listen(0, '127.0.0.1'));
  const key = await newKey();
  const socket = connect(port, '127.0.0.1').resume();
  socket.write(`GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nX-Api-Key: ${key}\r\n\r\n`);
  await eventually(() => accepted.length === 1);
  socket.end();
  await ended(key, 4);
  expect(accepted[0]?.destroyed).toBe(false);
  accepted[0]?.destroy();
});

test('two guards take one place of many limits', async () => {
  const app = express();
  const base = { verifier, apiId: 'shop' };
  app.use(expressGuard(base), expressGuard({ ...base, cost: 10 }));
  app.get('/', ({ apiKey }, response) => void response.json(apiKey));
  const { fetch } = await open(app.listen(0, '127.0.0.1'));
  const ratelimits = Array.from({ length: 8 }, (_, i) => ({
    ...{ name: `limit${i}`, limit: 100, duration: 3_600_000, autoApply: true },
  }));
  const concurrency = ['a', 'b'].map((name) => ({ name, limit: 1 }));
  const key = await newKey({ ratelimits, concurrency });
  for (let i = 1; i <= 3; i++) {
    let body = '';
    await eventually(async () => {
      const response = await fetch('/', key);
      body = await response.text();
      return response.status === 200;
    });
    const { remaining, ratelimits: taken } = JSON.parse(body);
    expect(remaining).toBe(100 - 10 * i);
    expect(taken.map((limit: { remaining: number }) => limit.remaining)).toEqual(Array(8).fill(100 - i));
  }
});
