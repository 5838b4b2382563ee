import type { ChildProcess } from 'node:child_process';
import { connect, createServer, type Server, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spawnBound } from '../../../../deploy/dev/redis-server.ts';
import { type Main, startedFrom } from '../../../harness/built.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { COMPILED } from '../../../harness/processes.ts';
import { conversation, conversationOf, ofClient } from '../../../harness/raw-requests.ts';
import { untilPrinted } from '../../../harness/until-printed.ts';
import { eventually } from '../../../harness/waiting.ts';
import { CLOSE, oddResponse, RESET } from './odd-responses.ts';

/** Conversations to generate for each listener; more = a longer search. A failure prints how to find it again. */
const RUNS = Number(process.env['SURVIVAL_RUNS'] ?? 300);
const RUN_MS_MAX = 60_000 + 100 * RUNS;
const AT_ONCE = 10;
/** The longest that a connection is kept which neither side ends; most have said all long before. */
const QUIET_MS = 25;

let fleet: Fleet;
let api: Server;
let apiUrl: string;
/** Next answer of the API, in pieces. */
let says: readonly string[] = [];
let key: string;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  ({ key } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Zoë' }));
  api = createServer({ noDelay: true }, (socket) => {
    socket
      .on('error', () => undefined)
      .on('data', () => {
        for (const piece of says) {
          if (piece === CLOSE) socket.end();
          else if (piece === RESET) socket.resetAndDestroy();
          else if (socket.writable) socket.write(piece, 'latin1');
        }
      });
  });
  await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  apiUrl = `http://127.0.0.1:${(api.address() as { port: number }).port}`;
});
afterAll(async () => {
  api.close();
  await fleet.stop();
});

/** One of our processes as it runs in production, and all that it logged. */
class Subject {
  readonly child: ChildProcess;
  readonly listening: Promise<Record<string, string>>;
  output = '';

  constructor(file: Main, env: Readonly<Record<string, string>>) {
    const { PATH = '' } = process.env;
    const addresses = { PORT: '0', ADMIN_PORT: '0', REDIS_URL: fleet.redisUrl };
    this.child = spawnBound(process.execPath, [startedFrom(file)], {
      PATH,
      ...COMPILED,
      ...addresses,
      ...env,
    });
    const stdout = this.child.stdout as NonNullable<ChildProcess['stdout']>;
    stdout.on('data', (chunk: Buffer) => {
      this.output += chunk;
    });
    this.listening = untilPrinted(stdout, /^.*"msg":"[^"]*listening".*$/m).then(([line]) => JSON.parse(line));
  }

  /** The end of it, or what it met that it did not foresee. */
  get fault(): string | undefined {
    const { exitCode, signalCode } = this.child;
    const bug = /^.*"msg":"(?:unhandled error|stopping[^"]*)".*$/m.exec(this.output)?.[0];
    return exitCode === null && signalCode === null ? bug : `ended: ${exitCode ?? signalCode} ${bug}`;
  }

  async stop(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGTERM');
    await exited;
  }
}

/** Says `writes` on a connection of its own and resolves when that is over, or nothing more happens. */
function say(address: string, writes: readonly Buffer[], manner: 'patient' | 'hurried'): Promise<void> {
  const target = address.includes('//') ? new URL(address) : new URL(`http://${address}`);
  return new Promise((resolve) => {
    const socket: Socket = connect({ host: target.hostname, port: Number(target.port), noDelay: true });
    socket.setTimeout(QUIET_MS, () => (manner === 'patient' ? socket.end() : socket.resetAndDestroy()));
    socket.on('timeout', () => socket.destroy());
    socket.on('error', () => undefined).on('close', () => resolve());
    const left = [...writes];
    const next = () => {
      const bytes = left.shift();
      if (bytes !== undefined && socket.writable) socket.write(bytes, () => setImmediate(next));
    };
    socket.on('connect', next).resume();
  });
}

/** Throws conversations at one listener, several at once, and looks after each round whether the process lives. */
async function bear(
  subject: Subject,
  address: string,
  conversations: fc.Arbitrary<[Buffer[], 'patient' | 'hurried']>,
): Promise<void> {
  const round = fc.tuple(fc.array(conversations, { minLength: 1, maxLength: AT_ONCE }), oddResponse);
  await fc.assert(
    fc.asyncProperty(round, async ([all, response]) => {
      says = response;
      await Promise.all(all.map(([writes, manner]) => say(address, writes, manner)));
      expect(subject.fault).toBeUndefined();
    }),
    {
      numRuns: Math.ceil(RUNS / (AT_ONCE / 2)),
      endOnFailure: true,
      // As text, and not all of it.
      reporter({ failed, seed, counterexamplePath, counterexample, errorInstance }) {
        if (!failed) return;
        const said = counterexample?.[0][0].map(([writes]) =>
          Buffer.concat(writes).toString('latin1').slice(0, 1000),
        );
        const found = JSON.stringify({ seed, path: counterexamplePath, said, response: says });
        throw new Error(found.slice(0, 10_000), { cause: errorInstance });
      },
    },
  );
}

/** The same with a key that is good in place of the scripted one. */
const keyed = (conversations: fc.Arbitrary<[Buffer[], 'patient' | 'hurried']>) =>
  conversations.map(([writes, manner]): [Buffer[], typeof manner] => [
    writes.map((bytes) =>
      Buffer.from(bytes.toString('latin1').replaceAll(/\b(?:good|rich)\b/g, key), 'latin1'),
    ),
    manner,
  ]);

const WEBSOCKET =
  'GET /live HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Api-Key: good\r\n\r\nhello';
const CHUNKED =
  'POST /a HTTP/1.1\r\nHost: a\r\nX-Api-Key: good\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n';
const proxied = ofClient(['/', '/a/b?c', '//x/../y', '/../z', '*', 'http://a/']);
const hard = fc.constantFrom(WEBSOCKET, CHUNKED, `${CHUNKED.slice(0, -4)}0\r\nX: \x01\r\n\r\n`);
const ofProxy = keyed(
  conversationOf(fc.oneof({ weight: 3, arbitrary: proxied }, { weight: 1, arbitrary: hard })),
);

const PATHS = [
  'keys.verifyKey',
  'keys.getKey?keyId=',
  'apis.listKeys?apiId=shop&limit=',
  'nothing',
  '%zz',
  '../../etc',
];
const called = fc
  .record({
    method: fc.constantFrom('GET', 'POST', 'HEAD', 'OPTIONS', 'QUERY', 'PUT', 'TRACE', 'CONNECT'),
    path: fc.oneof(
      fc.constantFrom(...PATHS.map((path) => `/v1/${path}`), '/docs/static//etc/passwd', '/dashboard/%2e%2e'),
      fc.constantFrom(
        '/v1/keys.createKey',
        '/v1/keys.updateKey',
        '/openapi.json',
        '/docs',
        '/',
        '*',
        '/a#b',
        'http://[',
        '',
      ),
    ),
    secret: fc.constantFrom(ROOT_KEY, 'nobody', '', '\xe9'),
    body: fc.oneof(
      fc.constantFrom(
        '',
        '{',
        '[]',
        'null',
        '{"__proto__":{"a":1}}',
        '{"apiId":"shop","meta":{"a":"\\ud800"}}',
      ),
      fc.constantFrom(
        `{"apiId":"shop","meta":${'{"a":'.repeat(5000)}1${'}'.repeat(5000)}}`,
        '"\xff"',
        '{"key":"\\ud800"}',
      ),
    ),
    type: fc.constantFrom('application/json', 'text/plain', 'application/json;;', '\xe9'),
    odd: fc.constantFrom(
      'X-Forwarded-For: a, \xe9',
      'Expect: 100-continue',
      'Transfer-Encoding: chunked',
      'X-Request-Id: \xe9',
    ),
    isOdd: fc.boolean(),
  })
  .map(({ method, path, secret, body, type, odd, isOdd }) => {
    const lines = [
      `${method} ${path} HTTP/1.1`,
      'Host: a',
      `Authorization: Bearer ${secret}`,
      `Content-Type: ${type}`,
    ];
    if (isOdd) lines.push(odd);
    return `${[...lines, `Content-Length: ${body.length}`].join('\r\n')}\r\n\r\n${body}`;
  });
const ofVerifier = keyed(fc.oneof(conversation, conversationOf(called)));
const ofControlPlane = conversationOf(called);

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const frames = fc
  .array(
    fc.record({
      type: fc.nat(12),
      flags: fc.nat(255),
      stream: fc.nat(5),
      payload: fc.uint8Array({ maxLength: 64 }),
    }),
    { maxLength: 6 },
  )
  .map((all): [Buffer[], 'patient'] => [
    [
      Buffer.concat([
        PREFACE,
        Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
        ...all.map(({ type, flags, stream, payload }) =>
          Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]),
        ),
      ]),
    ],
    'patient',
  ]);
const ofEnvoy = fc.oneof({ weight: 3, arbitrary: frames }, { weight: 1, arbitrary: conversation });

describe.each(['true', 'false'])('a verifier with FAST_LANE=%s lives on, and serves others', (FAST_LANE) => {
  let verifier: Subject;
  let listening: Record<string, string>;
  beforeAll(async () => {
    verifier = new Subject('verifier/main.ts', {
      FAST_LANE,
      UPSTREAM_URL: `${apiUrl}/behind`,
      PROXY_API_ID: '*',
      CONTROL_PLANE_URL: apiUrl,
      PROXY_PORT: '0',
      EXT_AUTHZ_GRPC_PORT: '0',
      PROXY_RECHECK_MS: '100',
    });
    listening = await verifier.listening;
  });
  afterAll(() => verifier.stop());

  test(
    'whatever the API and its clients say',
    async () => {
      await bear(verifier, listening['proxyAddress'] ?? '', ofProxy);
      says = ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'];
      const ask = () => fleet.get(`${listening['proxyAddress']}/a`, { 'x-api-key': key });
      await fleet.until(async () => (await ask()).body === 'ok', 'it does not serve others');
    },
    RUN_MS_MAX,
  );

  test(
    'whatever callers, gateways and the control plane say',
    async () => {
      await bear(verifier, listening['address'] ?? '', ofVerifier);
      const ask = () => fleet.post(`${listening['address']}/v1/keys.verifyKey`, { key });
      await fleet.until(async () => (await ask()).body.code === 'VALID', 'it does not serve others');
    },
    RUN_MS_MAX,
  );

  test(
    'whatever Envoy and probes say',
    async () => {
      await bear(verifier, listening['grpcAddress'] ?? '', ofEnvoy);
      await bear(verifier, listening['adminAddress'] ?? '', ofControlPlane);
      const ready = () => fleet.get(`${listening['adminAddress']}/readyz`);
      await fleet.until(async () => (await ready()).status === 200, 'it is not ready');
    },
    RUN_MS_MAX,
  );

  test('when an answer outlives a client at fault', async () => {
    says = ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'];
    const sockets = new Set<Socket>();
    api.on('connection', (socket) => sockets.add(socket));
    const { hostname, port } = new URL(listening['proxyAddress'] ?? '');
    let received = '';
    const begun = async (): Promise<Socket> => {
      for (;;) {
        received = '';
        const client = connect(Number(port), hostname).on('error', () => undefined);
        client.on('data', (chunk: Buffer) => {
          received += chunk;
        });
        client.write(CHUNKED.replace('good', key).slice(0, -4));
        await eventually(() => received.includes('abc') || received.startsWith('HTTP/1.1 503 '), received);
        if (received.includes('abc')) return client;
        client.destroy(); // the verifier cannot decide yet, which callers must bear
      }
    };
    const client = await begun();
    client.write('zz\r\n');
    await new Promise((resolve) => client.once('close', resolve));
    // A part of an answer must not look like all of it.
    expect(received).not.toMatch(/\r\n0\r\n\r\n$/);
    for (const socket of sockets) if (socket.writable) socket.write('3\r\nabc\r\n');
    says = ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'];
    const ask = () => fleet.get(`${listening['proxyAddress']}/a`, { 'x-api-key': key });
    await fleet.until(async () => (await ask()).status === 200, 'it does not serve others');
    expect(verifier.fault).toBeUndefined();
  });
});

describe('a control plane lives on, and serves others', () => {
  test(
    'whatever its callers say',
    async () => {
      const controlPlane = new Subject('control-plane/main.ts', { ROOT_KEY });
      const { address = '', adminAddress = '' } = await controlPlane.listening;
      await bear(controlPlane, address, ofControlPlane);
      await bear(controlPlane, adminAddress, ofControlPlane);
      const list = () => fleet.get(`${address}/v1/apis.listApis`, { authorization: `Bearer ${ROOT_KEY}` });
      await fleet.until(async () => (await list()).status === 200, 'it does not serve others');
      await controlPlane.stop();
    },
    RUN_MS_MAX,
  );
});
