import { afterEach, describe, expect, test } from 'vitest';
import type { HttpLimits } from '../../../../verifier/doors/http/server.ts';
import { createVerifierServer, type VerifierServer } from '../../../../verifier/verifier-server.ts';
import { useConnections } from '../../../harness/connections.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { elapsed, eventually, settled, turns } from '../../../harness/waiting.ts';
import { verifyKey, type Wire } from '../../../harness/wire.ts';

describe.each([
  ['with the fast lane', true],
  ['without', false],
])('%s', (_lane, FAST_LANE) => {
  let answers: ScriptedAnswers;
  let server: VerifierServer;
  let address: string;

  async function start(changed: Partial<HttpLimits>): Promise<void> {
    answers = new ScriptedAnswers();
    server = createVerifierServer({
      verifier: answers,
      limits: { ...limits, FAST_LANE, ...changed },
      log: { error: () => undefined },
    });
    address = await server.listen('127.0.0.1', 0);
  }

  afterEach(async () => {
    answers.release();
    await server.close(0);
  });
  const { accepted, wire } = useConnections(() => address);

  const GOOD = verifyKey({ key: 'good' });
  const TIMED_OUT = { status: 408, headers: { connection: 'close' } };

  describe('time', () => {
    test('a silent connection is told so and closed', async () => {
      await start({ HEADERS_TIMEOUT_MS: 100 });
      const silent = wire();
      expect(await silent.response()).toMatchObject(TIMED_OUT);
      expect(await silent.rest()).toBe('');
    });

    const head = GOOD.split('Content-Length')[0];
    test.each([
      ['head', '', `${head}A: `],
      ['head of a second request', GOOD, `${head}A: `],
      ['body', '', `${head}Content-Length: 1024\r\n\r\n`],
      ['body of a second request', GOOD, `${head}Content-Length: 1024\r\n\r\n`],
    ])('a slow %s is cut off in time', async (_what, before, begun) => {
      await start({ HEADERS_TIMEOUT_MS: 100, REQUEST_TIMEOUT_MS: 100 });
      const slow = wire().send(before + begun);
      const drip = setInterval(() => void slow.send(' '), 10);
      if (before !== '') expect((await slow.response()).status).toBe(200);
      expect(await slow.response()).toMatchObject(TIMED_OUT);
      expect(await slow.rest()).toBe('');
      clearInterval(drip);
    });

    test('a late body is refused under its own id', async () => {
      await start({ HEADERS_TIMEOUT_MS: 100, REQUEST_TIMEOUT_MS: 200 });
      const slow = wire().send(verifyKey({ key: 'good' }, ['X-Request-Id: mine']).slice(0, -3));
      await eventually(() => server.requestsInFlight === 1);
      expect(await slow.response()).toMatchObject({ ...TIMED_OUT, body: expect.stringContaining('"mine"') });
      await eventually(() => server.requestsInFlight === 0);
    });

    test('a slow answer leaves its connection as it was', async () => {
      await start({ KEEP_ALIVE_TIMEOUT_MS: 200 });
      const one = wire().send(verifyKey({ key: 'slow-good' }));
      await eventually(() => server.requestsInFlight === 1);
      await elapsed(500);
      const releasedMs = performance.now();
      answers.release();
      expect((await one.response()).status).toBe(200);
      expect(await one.rest()).toBe('');
      expect(performance.now() - releasedMs).toBeGreaterThan(190);
    });

    test('an endless look-up ends its connection', async () => {
      await start({ STALL_TIMEOUT_MS: 100 });
      expect(
        await wire()
          .send(verifyKey({ key: 'slow-good' }))
          .rest(),
      ).toBe('');
    });

    test('a client that asks and never reads is cut off', async () => {
      await start({ STALL_TIMEOUT_MS: 200 });
      wire().send(LARGE_REQUESTS).socket.pause();
      await eventually(() => accepted[0]?.destroyed === true);
    });
  });

  describe('a client that asks much and does not read', () => {
    /** Starts one, and waits until the server has stopped to answer it. */
    async function stuck(): Promise<Wire> {
      await start({});
      const one = wire().send(LARGE_REQUESTS);
      one.socket.pause();
      await eventually(() => answers.asked.length > 0);
      const asked = () => answers.asked.filter((key) => key === 'large').length;
      await settled(asked, () => wire().send(GOOD).response());
      return one;
    }

    /** Starts one that asks for no more than one answer that it does not read. */
    async function full(): Promise<Wire> {
      await start({});
      const one = wire();
      one.socket.pause();
      const pending = () => accepted[0]?.writableLength ?? 0;
      const waits = () => accepted[0]?.writableNeedDrain || (server.requestsInFlight > 0 && pending() > 0);
      for (let asked = 1; !waits(); asked++) {
        one.send(verifyKey({ key: 'large' }));
        await eventually(() => answers.asked.length === asked);
      }
      return one;
    }

    test('is answered in order once it reads', async () => {
      const one = await stuck();
      expect(answers.asked.length).toBeLessThan(REQUESTS);
      expect(accepted[0]?.writableLength).toBeLessThan(PENDING_BYTES_MAX);
      one.socket.resume();
      for (let i = 0; i < REQUESTS; i++) {
        const response = await one.response();
        if (response.status !== 200 || response.headers['x-request-id'] !== `${i}`) expect(response).toBe(i);
      }
    });

    test('holds nobody else up', async () => {
      await stuck();
      expect((await wire().send(GOOD).response()).status).toBe(200);
    });

    test.each(['has asked for more', 'has asked for no more'])(
      '%s, is let go while the server closes',
      async (asks) => {
        const one = asks === 'has asked for more' ? await stuck() : await full();
        const closed = server.close(60_000);
        await turns();
        one.socket.resume();
        expect((await one.rest()).length).toBeGreaterThan(0);
        await closed;
      },
    );
  });

  describe('requests of which only a part has come', () => {
    const [HEAD_END, BODY_BEGUN] = [GOOD.indexOf('{'), GOOD.length - 3];

    test.each([
      ['in its body', BODY_BEGUN],
      ['in its head', 30],
    ])('that stops %s is answered while closing', async (_where, at) => {
      await start({});
      const [one, silent] = [wire().send(GOOD.slice(0, at)), wire().send(GOOD.slice(0, at))];
      await eventually(() => accepted.length === 2 && accepted.every(({ bytesRead }) => bytesRead === at));
      const closed = server.close(300);
      await turns();
      one.send(GOOD.slice(at));
      expect(await one.response()).toMatchObject({ status: 200, headers: { connection: 'close' } });
      expect(await one.rest()).toBe('');
      // What never becomes whole is cut when the time for that is over.
      expect(await silent.rest()).toBe('');
      await closed;
    });

    test('that breaks off is 400, and nobody notices', async () => {
      await start({});
      const [one, other] = [wire().send(GOOD.slice(0, BODY_BEGUN)), wire()];
      await eventually(() => server.requestsInFlight === 1);
      one.socket.end();
      expect((await one.response()).status).toBe(400);
      const gone = wire().send(GOOD.slice(0, BODY_BEGUN));
      await eventually(() => server.requestsInFlight === 1);
      gone.close();
      await eventually(() => server.requestsInFlight === 0);
      expect((await other.send(GOOD).response()).status).toBe(200);
    });

    test('count among the requests in flight', async () => {
      await start({ REQUESTS_IN_FLIGHT_MAX: 2 });
      const begun = [wire(), wire()].map((one) => one.send(GOOD.slice(0, HEAD_END)));
      await eventually(() => server.requestsInFlight === 2);
      expect((await wire().send(GOOD.slice(0, HEAD_END)).response()).status).toBe(503);
      for (const one of begun) expect((await one.send(GOOD.slice(HEAD_END)).response()).status).toBe(200);
      expect(server.requestsInFlight).toBe(0);
    });

    test('are answered, however many there are', async () => {
      await start({ FAST_LANE_WAIT_BYTES_MAX: 1000, CONNECTIONS_MAX: 100 });
      const ask = async (count: number, at: number) => {
        const begun = Array.from({ length: count }, () => wire().send(GOOD.slice(0, at)));
        const arrived = accepted.length + count;
        await eventually(
          () => accepted.length === arrived && accepted.slice(-count).every((one) => one.bytesRead === at),
        );
        for (const one of begun) expect((await one.send(GOOD.slice(at)).response()).status).toBe(200);
        for (const one of begun) one.close();
      };
      await ask(20, HEAD_END);
      const { delegated } = server.lane;
      // What was kept of them is free again, so that few of them find room.
      await ask(3, HEAD_END);
      await ask(3, 30);
      await ask(3, BODY_BEGUN);
      expect(delegated).toBe(FAST_LANE ? 20 - Math.floor(1000 / GOOD.length) : 0);
      expect(server.lane).toMatchObject({ delegated, handedOver: 0 });
    });
  });

  describe('size', () => {
    const padded = (bytes: number) => GOOD.replace('\r\n', `\r\nA: ${'a'.repeat(bytes)}\r\n`);

    test('the refusal of a long head arrives whole', async () => {
      await start({});
      const one = wire().send(padded(17_000).slice(0, -100));
      expect((await one.response()).status).toBe(431);
      for (let i = 0; i < 20; i++) one.send('b'.repeat(10_000));
      // Closing the connection over them would reset it.
      await eventually(() => (accepted.at(-1)?.bytesRead ?? 0) > 200_000);
    });

    test('a head over the limit is 431 in any form', async () => {
      await start({ HEADER_BYTES_MAX: 4096 });
      expect((await wire().send(padded(3500)).response()).status).toBe(200);
      for (const [before, pieces] of [
        ['', 1],
        ['', 40],
        [GOOD, 1],
        [GOOD, 40],
      ] as const) {
        const one = wire();
        one.send(before);
        if (before !== '') expect((await one.response()).status).toBe(200);
        const text = padded(5000);
        const piece = Math.ceil(text.length / pieces);
        for (let at = 0; at < text.length; at += piece) one.send(text.slice(at, at + piece));
        expect(await one.response()).toMatchObject({ status: 431, headers: { connection: 'close' } });
      }
    });

    test('a body over the limit is 413 in any form', async () => {
      await start({ BODY_BYTES_MAX: 1024 });
      const body = (bytes: number) => verifyKey(`{"key":"good"${' '.repeat(bytes - 14)}}`);
      for (const before of ['', GOOD]) {
        const one = wire().send(before);
        if (before !== '') expect((await one.response()).status).toBe(200);
        one.send(body(1024));
        expect((await one.response()).status).toBe(200);
        one.send(body(1025).slice(0, -500));
        expect((await one.response()).status).toBe(413);
      }
    });
  });
});

const REQUESTS = 4000;
/** In answers more than the kernel's buffers take, in bytes to read less. */
const LARGE_REQUESTS = Array.from({ length: REQUESTS }, (_, i) =>
  verifyKey({ key: 'large' }, [`X-Request-Id: ${i}`]),
).join('');
/** Bytes that may wait for a reader in this process: the answers to what was read at once, 64 KiB of requests. */
const PENDING_BYTES_MAX = 8_000_000;
