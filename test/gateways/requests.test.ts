import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../shared/rules/key-format.ts';
import { lacking } from '../harness/programs.ts';
import { eventually } from '../harness/waiting.ts';
import { describeGateways, type GatewayKind, type GatewayName, gatewayNames } from './gateways.ts';
import { API_ID, World } from './world.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const UPLOAD = 'x'.repeat(2 * 1024 * 1024);

let world: World;
let key: string;
beforeAll(async () => {
  world = await World.start();
  ({ key } = await world.validKey());
  world.upstream.server.on('upgrade', ({ headers }, socket) => {
    const nonce = `${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const lines = [
      'Connection: Upgrade',
      `Upgrade: ${headers.upgrade}`,
      `Sec-WebSocket-Accept: ${createHash('sha1').update(nonce).digest('base64')}`,
    ];
    socket.end(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('\r\n')}\r\n\r\n`);
  });
});
afterAll(() => world.stop());

interface Row {
  readonly line?: string;
  /** Lines beside Host and the key. */
  readonly headers?: readonly string[];
  readonly body?: string;
  /** The body as the API must get it. */
  readonly content?: string;
  /** How the key is shown; `KEY` stands for it. */
  readonly shown?: string;
  /** Status for a good key: 200 unless given; `but` for gateways that differ. */
  readonly status?: number;
  readonly but?: Partial<Record<GatewayKind, number>>;
}
const line = (name: string, bytes: number) => `${name}: ${'x'.repeat(bytes)}`;
const chunked = (body: string) =>
  `${(body.match(/.{1,65536}/gs) ?? []).map((part) => `${part.length.toString(16)}\r\n${part}\r\n`).join('')}0\r\n\r\n`;
const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];

/** Requests that differ from the plain one. */
const ROWS: Readonly<Record<string, Row>> = {
  'a plain request': {},
  'HTTP/1.0': { line: 'GET / HTTP/1.0', but: { envoy: 426, 'envoy-grpc': 426 } },
  HEAD: { line: 'HEAD / HTTP/1.1' },
  OPTIONS: { line: 'OPTIONS / HTTP/1.1' },
  'a method of WebDAV': { line: 'PROPFIND / HTTP/1.1' },
  'a method that nobody knows': { line: 'BREW / HTTP/1.1', status: 400 },
  TRACE: { line: 'TRACE / HTTP/1.1', but: { nginx: 405 } },
  'an absolute target': { line: 'GET http://api.example/orders HTTP/1.1' },
  'a URL of 4 kB': { line: `GET /${'x'.repeat(4000)} HTTP/1.1` },
  'a URL of 7 kB': { line: `GET /?q=${'x'.repeat(7000)} HTTP/1.1` },
  'a URL of 40 kB': {
    line: `GET /${'x'.repeat(40_000)} HTTP/1.1`,
    status: 431,
    but: { nginx: 414, haproxy: 400, 'envoy-grpc': 200 },
  },
  'a URL with bytes beyond ASCII': {
    line: 'GET /\xc3\xa9 HTTP/1.1',
    status: 400,
    but: { caddy: 200, traefik: 200 },
  },
  'a URL with encoded control characters': {
    line: 'GET /%00%0d%0aX:%20y?a=%0a HTTP/1.1',
    but: { nginx: 400, envoy: 400, 'envoy-grpc': 400 },
  },
  'a URL with a control character': { line: 'GET /a\x01b HTTP/1.1', status: 400 },
  'a URL with a fragment': {
    line: 'GET /a#b HTTP/1.1',
    but: { haproxy: 400, traefik: 400, envoy: 400, 'envoy-grpc': 400 },
  },
  'a cookie of 6 kB': { headers: [line('Cookie', 6000)] },
  '21 kB of headers': {
    headers: [1, 2, 3].map((i) => line(`X-${i}`, 7000)),
    but: { haproxy: 400, caddy: 431 },
  },
  '60 kB of headers': {
    headers: Array.from({ length: 10 }, (_, i) => line(`X-${i}`, 6000)),
    status: 400,
    but: { caddy: 431, traefik: 200, envoy: 200, 'envoy-grpc': 200 },
  },
  '80 headers': { headers: Array.from({ length: 80 }, (_, i) => `X-${i}: a`) },
  'a control character in a header': { headers: ['X-Note: a\x01b'], status: 400 },
  'a control character in the key': { shown: 'Authorization: Bearer KEY\x01', status: 400 },
  'a header beyond ASCII': { headers: ['X-Note: \xc3\xa9\xff'] },
  'a header without a value': { headers: ['X-Note:'] },
  'a folded header': { headers: ['X-Note: a\r\n b'], but: { nginx: 400 } },
  'a header with a blank in its name': { headers: ['X Note: a'], status: 400 },
  'a key of 6 kB': { shown: `X-Api-Key: KEY${'x'.repeat(6000)}`, status: 401 },
  'all that the verifier reads, 7 kB each': {
    headers: ['Origin', 'X-Request-Id', 'Access-Control-Request-Method'].map((name) => line(name, 7000)),
    but: { nginx: 431, haproxy: 400, caddy: 431, traefik: 431 },
  },
  conditions: {
    headers: [
      'If-None-Match: *',
      'If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT',
      'If-Match: "a"',
      'Range: bytes=0-1',
    ],
  },
  'a connection that names the key': {
    headers: ['Connection: close, Authorization, X-Api-Key'],
    but: { traefik: 401, envoy: 401, 'envoy-grpc': 401 },
  },
  'an upload of 2 MiB': {
    line: 'POST / HTTP/1.1',
    headers: [`Content-Length: ${UPLOAD.length}`],
    body: UPLOAD,
    content: UPLOAD,
  },
  'an upload of 2 MiB in chunks': {
    line: 'POST / HTTP/1.1',
    headers: ['Transfer-Encoding: chunked'],
    body: chunked(UPLOAD),
    content: UPLOAD,
  },
  'an upload that is announced': {
    line: 'PUT / HTTP/1.1',
    headers: ['Expect: 100-continue', 'Content-Length: 3'],
    body: 'abc',
  },
  'an empty upload': { line: 'POST / HTTP/1.1', headers: ['Content-Length: 0'] },
  'a GET with a body': { headers: ['Content-Type: application/json', 'Content-Length: 2'], body: '{}' },
  'two lengths': {
    line: 'POST / HTTP/1.1',
    headers: ['Content-Length: 3', 'Content-Length: 4'],
    body: 'abc',
    status: 400,
  },
  'length and chunks': {
    line: 'POST / HTTP/1.1',
    headers: ['Content-Length: 3', 'Transfer-Encoding: chunked'],
    body: chunked('abc'),
    but: { nginx: 400, envoy: 400, 'envoy-grpc': 400 },
  },
  'an unknown encoding': {
    line: 'POST / HTTP/1.1',
    headers: ['Transfer-Encoding: gzip'],
    body: 'abc',
    status: 501,
    but: { haproxy: 400 },
  },
  'a WebSocket': { headers: UPGRADE, status: 101 },
  'an upgrade to HTTP/2': {
    headers: ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__'],
  },
};

/** Again while there is no verdict, or no answer because the connection was reset during an upload. */
async function decided(name: GatewayName, row: Row, shownKey: string) {
  let answer = await ask(name, row, shownKey);
  await world.fleet.until(async () => {
    if (answer.status !== 503 && answer.status > 0) return true;
    answer = await ask(name, row, shownKey);
    return false;
  }, `${name} has no verdict`);
  return answer;
}

/** Reads no more than the head: gateways differ in how they end what they say themselves. */
async function ask(name: GatewayName, row: Row, shownKey: string) {
  const { line = 'GET / HTTP/1.1', headers = [], body = '', shown = 'Authorization: Bearer KEY' } = row;
  const head = [line, 'Host: api.example', shown.replace('KEY', shownKey), ...headers].join('\r\n');
  const { socket } = world.connect(name);
  const wire = { socket, text: '' };
  socket.on('data', (text: string) => {
    wire.text += text;
  });
  socket.write(`${head}\r\n\r\n${body}`, 'latin1');
  const final = /HTTP\/1\.[01] (101|[2-5]\d\d).*?\r\n\r\n/s;
  await eventually(() => final.test(wire.text) || socket.destroyed, `${name} does not answer`);
  socket.destroy();
  const [answer = '', status] = final.exec(wire.text) ?? [];
  return { status: Number(status), retryAfter: /^retry-after:/im.test(answer) };
}

describeGateways((name, kind) => {
  test.for(Object.entries(ROWS))('%s', async ([, row]) => {
    const { status = 200, but = {} } = row;
    const expected = but[kind] ?? status;
    const passes = expected < 400;
    const good = await decided(name, row, key);
    const seen = world.upstream.take();
    expect(good).toEqual({ status: expected, retryAfter: false });
    // The API itself answers 400 to what Node does not understand, and counts no such request and no WebSocket.
    if (expected === 200) expect(seen.length).toBe(1);
    if (expected === 200 && row.content) expect(seen[0]?.body === row.content).toBe(true);
    const bad = await decided(name, row, generateKey(16));
    expect(bad.retryAfter).toBe(false);
    expect(bad.status).toSatisfy((got: number) => (passes ? got === 401 : got >= 400 && got < 502));
    expect(world.upstream.take()).toEqual([]);
  });
});

const ENVOYS = ['envoy', 'envoy-grpc'] as const;
const noEnvoy = lacking(gatewayNames.includes('envoy') ? [] : ['envoy']);

describe.skipIf(noEnvoy)(`a client of gRPC behind Envoy${noEnvoy}`, () => {
  test.each(ENVOYS)('%s: limits and missing keys have gRPC codes', async (name) => {
    const call = async (shownKey: string) => {
      const session = connectHttp2('http://api.example', {
        createConnection: () => world.connect(name).socket,
      });
      try {
        const stream = session.request({
          ...{ ':method': 'POST', ':path': '/shop.Orders/List', te: 'trailers' },
          ...{ 'content-type': 'application/grpc', authorization: `Bearer ${shownKey}` },
        });
        stream.end();
        const [headers] = await once(stream, 'response');
        return headers;
      } finally {
        session.destroy();
      }
    };
    const used = { remaining: 0 };
    const limited = { ratelimit: { limit: 1, duration: 86_400_000 } };
    for (const [more, code] of [
      [used, 'USAGE_EXCEEDED'],
      [limited, 'RATE_LIMITED'],
    ] as const) {
      const made = await world.fleet.ok('keys.createKey', { apiId: API_ID, ...more });
      await world.fleet.until(async () => (await call(made.key))['grpc-status'] === '8', code);
      expect(await call(made.key)).toMatchObject({ 'content-type': 'application/grpc', 'grpc-status': '8' });
    }
    expect(await call(generateKey(16))).toMatchObject({ 'grpc-status': '16' });
    world.upstream.take();
  });
});

describeGateways((name) => {
  test('a begun request outlives a disable of its key', async () => {
    const made = await world.validKey();
    let finish = () => undefined as unknown;
    const before = world.upstream.handle;
    world.upstream.handle = (_request, response) => {
      response.write('begun ');
      finish = () => response.end('finished');
    };
    try {
      const begun = world.decided(name, { headers: ['X-Api-Key', made.key] });
      await eventually(() => world.upstream.seen.length > 0, 'the API saw nothing');
      await world.fleet.ok('keys.updateKey', { keyId: made.keyId, enabled: false });
      finish();
      expect(await begun).toMatchObject({ status: 200, body: 'begun finished' });
    } finally {
      world.upstream.handle = before;
      world.upstream.take();
    }
  });
});

test('every configuration says so and passes it on', () => {
  const files = globSync('deploy/{compose/nginx.conf,gateways/*/*}', { cwd: ROOT }).filter(
    (file) => !/\.(md|lua)$/.test(file),
  );
  expect(files.length).toBeGreaterThan(12);
  const texts = files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')] as const);
  const silent = texts.filter(
    ([, text]) => !/asks? once, when a request begins|: once, when it begins/.test(text),
  );
  // What Istio is told in its mesh and routes is of one piece with policy.yaml, and Traefik's entry points with dynamic.yaml.
  expect(silent.map(([file]) => basename(file)).sort()).toEqual([
    'mesh-config.yaml',
    'routes.yaml',
    'traefik.yaml',
  ]);
  const lists = texts.flatMap(([, text]) => [
    ...text.matchAll(
      /^ +(?:authRequestHeaders|request_headers|includeRequestHeadersInCheck|allowedHeaders): \[(.*)\]$/gm,
    ),
  ]);
  const read = ['x-api-key', 'x-request-id', 'origin', 'referer', 'access-control-request-method'];
  expect(lists).toHaveLength(10);
  for (const [, list = ''] of lists)
    expect(
      list
        .toLowerCase()
        .split(', ')
        .filter((header) => header !== 'authorization'),
    ).toEqual(read);
});
