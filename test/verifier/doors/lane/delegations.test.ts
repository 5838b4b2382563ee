import { once } from 'node:events';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import type { HttpLimits } from '../../../../verifier/doors/http/server.ts';
import { createVerifierServer, type VerifierServer } from '../../../../verifier/verifier-server.ts';
import { useConnections } from '../../../harness/connections.ts';
import { conversationOf, ofClient } from '../../../harness/raw-requests.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { share } from '../../../harness/share.ts';
import { verifierSubject } from '../../../harness/side-by-side.ts';
import { eventually } from '../../../harness/waiting.ts';
import { verifyKey } from '../../../harness/wire.ts';

/** Conversations to generate; more = a longer search. */
const RUNS = Number(process.env['DIFFERENTIAL_RUNS'] ?? 200);

const GOOD = verifyKey({ key: 'good' });
const OPENAPI = 'GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n';
const SLOW = 'GET /slow HTTP/1.1\r\nHost: a\r\n\r\n';
const LARGE = 'GET /large HTTP/1.1\r\nHost: a\r\n\r\n';
const LARGE_BYTES = 32 * 1_048_576;
/** Its body is a request, which nobody is to read as one. */
const upload = (body = GOOD) =>
  `POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

describe.each([
  ['with the fast lane', true],
  ['without', false],
])('an uncommon request %s', (_lane, FAST_LANE) => {
  let server: VerifierServer;
  let address: string;
  let slow: PromiseWithResolvers<void>;
  /** Requests that were given up before they were answered. */
  let givenUp: number;

  async function start(changed: Partial<HttpLimits> = {}): Promise<void> {
    slow = Promise.withResolvers();
    givenUp = 0;
    server = createVerifierServer({
      verifier: new ScriptedAnswers(),
      limits: { ...limits, FAST_LANE, ...changed },
      log: { error: () => undefined },
      routes: {
        exact: {
          '/slow': {
            async GET(_request, response, _requestId, hooks) {
              hooks.onClose = () => void (response.writableEnded || givenUp++);
              await slow.promise;
              response.end('slow');
            },
          },
          '/large': {
            async GET(_request, response) {
              response.setHeader('Content-Length', LARGE_BYTES);
              const chunk = Buffer.alloc(65_536, 'x');
              for (let sent = 0; sent < LARGE_BYTES; sent += chunk.length) {
                if (!response.write(chunk)) await once(response, 'drain');
              }
              response.end();
            },
          },
          '/upload': {
            async POST(request, response) {
              let bytes = 0;
              for await (const chunk of request) bytes += (chunk as Buffer).length;
              response.setHeader('Content-Length', String(bytes).length).end(String(bytes));
            },
          },
        },
      },
    });
    address = await server.listen('127.0.0.1', 0);
  }

  afterEach(async () => {
    slow.resolve();
    await server.close(0);
  });
  const { accepted, wire } = useConnections(() => address);

  test('leaves its connection where it was', async () => {
    await start();
    const one = wire();
    for (let i = 0; i < 50; i++) {
      for (const text of [OPENAPI, GOOD, upload()]) {
        expect((await one.send(text).response()).status).toBe(200);
      }
    }
    const sent = `${OPENAPI}${GOOD}${upload()}`;
    one.send(sent.repeat(20));
    for (let i = 0; i < 60; i++) expect((await one.response()).status).toBe(200);
    expect(server.lane).toEqual({
      answered: FAST_LANE ? 70 : 0,
      delegated: FAST_LANE ? 140 : 0,
      handedOver: 0,
    });
    expect(server.requestsInFlight).toBe(0);
    expect(accepted[0]?.listenerCount('drain')).toBe(FAST_LANE ? 0 : 1);
  });

  test('keeps the connection of others of its kind', async () => {
    await start();
    const one = wire();
    for (let i = 0; i < 20; i++) expect((await one.send(OPENAPI).response()).status).toBe(200);
    expect(server.lane).toMatchObject(
      FAST_LANE ? { delegated: 8, handedOver: 1 } : { delegated: 0, handedOver: 0 },
    );
  });

  test('may come in pieces, and others behind it', async () => {
    await start();
    const bytes = Buffer.from(`${upload()}${GOOD}${upload('abc')}${GOOD}`);
    const head = upload().indexOf('\r\n\r\n') + 4;
    // Cut at every third byte, at others at the next commit.
    const cuts = share(
      Array.from({ length: bytes.length - head }, (_, i) => head + i),
      3,
    );
    for (const at of cuts) {
      const one = wire().send(bytes.subarray(0, at));
      await eventually(() => accepted.at(-1)?.bytesRead === at);
      one.send(bytes.subarray(at));
      for (const body of [`${GOOD.length}`, '"VALID"', '3', '"VALID"']) {
        expect((await one.response()).body).toContain(body);
      }
      one.close();
    }
    // All but those whose second head is cut.
    expect(server.lane.delegated).toBeGreaterThan(FAST_LANE ? cuts.length : -1);
  });

  test('without its body is 408 and closed', async () => {
    await start({ HEADERS_TIMEOUT_MS: 100, REQUEST_TIMEOUT_MS: 200 });
    const one = wire().send(GOOD + upload().slice(0, -3));
    expect((await one.response()).status).toBe(200);
    expect(await one.response()).toMatchObject({ status: 408, headers: { connection: 'close' } });
    expect(await one.rest()).toBe('');
  });

  test('that breaks off is 400', async () => {
    await start();
    const one = wire().send(upload().slice(0, -3));
    await eventually(() => server.requestsInFlight === 1);
    one.socket.end();
    expect((await one.response()).status).toBe(400);
    expect(await one.rest()).toBe('');
    await eventually(() => server.requestsInFlight === 0);
  });

  test('ends when its client leaves for good', async () => {
    await start();
    const gone = wire().send(SLOW);
    await eventually(() => server.requestsInFlight === 1);
    gone.socket.resetAndDestroy();
    await eventually(() => server.requestsInFlight === 0);
    expect(givenUp).toBe(1);
    const ended = wire().send(SLOW);
    await eventually(() => server.requestsInFlight === 1);
    ended.socket.end();
    slow.resolve();
    expect(await ended.rest()).toMatch(/^HTTP\/1\.1 200 OK\r\n(?:.*\r\n)*.*slow/);
  });

  test('is answered to a half-closed client', async () => {
    await start();
    for (const behind of [GOOD, OPENAPI, upload(), upload().slice(0, -3)]) {
      const one = wire().send(SLOW + behind);
      await eventually(() => server.requestsInFlight > 0);
      one.socket.end();
      await eventually(() => accepted.at(-1)?.readableEnded === true);
      slow.resolve();
      const heard = await one.rest();
      expect(heard.match(/HTTP\/1\.1 \d+/g)?.length).toBe(2);
      await eventually(() => server.requestsInFlight === 0);
      slow = Promise.withResolvers();
    }
  });

  test('unanswered holds its connection for a time', async () => {
    await start({ STALL_TIMEOUT_MS: 100 });
    expect(await wire().send(SLOW).rest()).toBe('');
    await eventually(() => server.requestsInFlight === 0);
  });

  test('counts in flight as any other', async () => {
    await start({ REQUESTS_IN_FLIGHT_MAX: 2, CONNECTIONS_MAX: 3 });
    const waiting = [wire().send(SLOW), wire().send(SLOW)];
    await eventually(() => server.requestsInFlight === 2);
    const third = wire();
    for (const text of [OPENAPI, SLOW]) {
      expect(await third.send(text).response()).toMatchObject({ status: 503 });
    }
    expect(await wire().send(GOOD).rest()).toBe('');
    slow.resolve();
    await eventually(() => waiting.every(({ received }) => received.includes('slow')));
    await eventually(() => server.requestsInFlight === 0);
    expect((await third.send(OPENAPI).response()).status).toBe(200);
  });

  test('is written at the pace of its reader', async () => {
    await start();
    const one = wire();
    one.socket.pause();
    one.send(LARGE + verifyKey({ key: 'good' }, ['Connection: close']));
    await eventually(() => accepted[0]?.writableNeedDrain === true);
    expect(accepted[0]?.writableLength).toBeLessThan(1_048_576);
    one.socket.resume();
    const heard = await one.rest();
    expect(heard.length).toBeGreaterThan(LARGE_BYTES);
    expect(heard.slice(-500)).toContain('"VALID"');
    expect(server.lane).toMatchObject(FAST_LANE ? { delegated: 1, answered: 1 } : {});
  });

  test('gets Connection: close while closing', async () => {
    await start();
    const one = wire().send(SLOW);
    await eventually(() => server.requestsInFlight === 1);
    const closed = server.close(60_000);
    slow.resolve();
    expect(await one.rest()).toMatch(/\r\nConnection: close\r\n(?:.*\r\n)*.*slow/);
    await closed;
  });
});

test(
  `${RUNS} conversations of uncommon requests and common ones go the same way`,
  async () => {
    const lane = verifierSubject({ FAST_LANE: true, BODY_BYTES_MAX: 1024 });
    const reference = verifierSubject({ FAST_LANE: false, BODY_BYTES_MAX: 1024 });
    await Promise.all([lane.start(), reference.start()]);
    const targets = ['/', '/openapi.json', '/v1/keys.verifyKey', '/v1/keys.getKey', '/authz/ext-authz/a'];
    await fc.assert(
      fc.asyncProperty(conversationOf(ofClient(targets), 1), async ([writes, manner]) => {
        const [ours, nodes] = await Promise.all([lane.hear(writes, manner), reference.hear(writes, manner)]);
        expect(ours).toEqual(nodes);
      }),
      { numRuns: RUNS },
    );
    // Else the comparison is worth nothing.
    expect(lane.server.lane.delegated).toBeGreaterThan(RUNS / 4);
    await Promise.all([lane.stop(), reference.stop()]);
  },
  60_000 + 20 * RUNS,
);
