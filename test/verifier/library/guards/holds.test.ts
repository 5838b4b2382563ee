import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import express from 'express';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { createClient } from '../../../../verifier/library/client.ts';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import { keyfence as fetchGuard } from '../../../../verifier/library/guards/fetch.ts';
import type { GuardOptions, PassedKey } from '../../../../verifier/library/guards/guard-options.ts';
import { keyfence as httpGuard } from '../../../../verifier/library/guards/node-http.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { createTestVerifier } from '../../../../verifier/library/test-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { eventually } from '../../../harness/waiting.ts';
import { type App, closers, FRAMEWORKS, open } from './held-apps.ts';

/** Guards that hold the key of a request until its response has ended. */
let fleet: Fleet;
let verifiers: { inProcess: KeyVerifier; sidecar: KeyVerifier };

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  verifiers = {
    inProcess: createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 }),
    sidecar: createClient({ url: fleet.verifiers[0]?.address ?? '', timeoutMs: 10_000 }),
  };
  await Promise.all(Object.values(verifiers).map((verifier) => verifier.ready()));
});
afterAll(async () => {
  await Promise.all(closers.map((end) => end()));
  await Promise.all(Object.values(verifiers).map((verifier) => verifier.close()));
  await fleet.stop();
});

const create = (fields: object): Promise<{ key: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const passes = async (app: App, key: string) => {
  const response = await app.fetch('/nothing', key);
  await response.text();
  return response.status === 200;
};
const remaining = async (key: string, { verifier = verifiers.inProcess } = {}) => {
  const verdict = await verifier.verify(key, { remaining: { cost: 0 } });
  return 'remaining' in verdict ? verdict.remaining : undefined;
};

const TOKENS = { name: 'tokens', limit: 1000, duration: 86_400_000 };
/** Resolves with the credits and the tokens that are left. */
const left = async (key: string, verifier = verifiers.inProcess) => {
  const ratelimits = [{ name: 'tokens', cost: 0 }];
  const verdict = await verifier.verify(key, { remaining: { cost: 0 }, ratelimits });
  return 'keyId' in verdict ? [verdict.remaining, verdict.ratelimits?.[0]?.remaining] : [];
};

describe.each(Object.keys(FRAMEWORKS))('%s', (name) => {
  const start = (options: GuardOptions) =>
    (FRAMEWORKS[name] as (options: GuardOptions) => Promise<App>)(options);

  test.each(['inProcess', 'sidecar'] as const)('%s: charges what a request says', async (which) => {
    const verifier = verifiers[which];
    const app = await start({ verifier, apiId: 'shop', reserve: 100 });
    const { key } = await create({ remaining: 1000 });
    expect(await (await app.fetch('/charge/30', key)).text()).toBe('true');
    await eventually(async () => (await remaining(key, { verifier })) === 970);
    expect(await (await app.fetch('/nothing', key)).text()).toBe('done');
    await eventually(async () => (await remaining(key, { verifier })) === 870);
    expect((await app.fetch('/throws', key)).status).toBe(500);
    await eventually(async () => (await remaining(key, { verifier })) === 770);
    // More than was reserved.
    expect(await (await app.fetch('/charge/170', key)).text()).toBe('true');
    await eventually(async () => (await remaining(key, { verifier })) === 600);
    // Tried again, which adds.
    expect(await (await app.fetch('/twice/95', key)).text()).toBe('true');
    await eventually(async () => (await remaining(key, { verifier })) === 500);
    const { key: poor } = await create({ remaining: 99 });
    expect((await app.fetch('/charge/1', poor)).status).toBe(429);
    expect(await (await app.fetch('/charge/1', (await create({})).key)).text()).toBe('true');
  });

  test.each(['inProcess', 'sidecar'] as const)('%s: charges the tokens of a minute', async (which) => {
    const verifier = verifiers[which];
    const app = await start({ verifier, apiId: 'shop', reserve: { tokens: 400 } });
    const { key } = await create({ remaining: 100, ratelimits: [TOKENS] });
    let tokens = 1000;
    let credits = 100;
    for (const [path, cost] of [
      ['/tokens/30', 30],
      ['/nothing', 400],
      ['/throws', 400],
    ] as const) {
      const response = await app.fetch(path, key);
      expect(response.status).toBe(path === '/throws' ? 500 : 200);
      await response.text();
      [tokens, credits] = [tokens - cost, credits - 1];
      await eventually(async () => String(await left(key, verifier)) === `${credits},${tokens}`);
    }
    // 170 are left.
    expect((await app.fetch('/tokens/1', key)).status).toBe(429);
    // A key without the limit passes.
    expect(await (await app.fetch('/tokens/7', (await create({})).key)).text()).toBe('true');
    // Nothing reserves credits.
    expect((await app.fetch('/charge/7', (await create({ ratelimits: [TOKENS] })).key)).status).toBe(500);
  });

  test.each(['inProcess', 'sidecar'] as const)('%s: holds a place until a cut', async (which) => {
    const app = await start({ verifier: verifiers[which], apiId: 'shop', reserve: () => 10 });
    const { key } = await create({ remaining: 100, concurrency: [{ name: 'calls', limit: 1 }] });
    const cut = new AbortController();
    const response = await app.fetch('/stream', key, cut.signal);
    const reader = response.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('first');
    const refused = await app.fetch('/nothing', key);
    expect([refused.status, refused.headers.get('retry-after'), refused.headers.get('ratelimit')]).toEqual([
      429,
      '1',
      null,
    ]);
    reader?.releaseLock();
    cut.abort();
    await eventually(() => passes(app, key));
    await eventually(async () => (await remaining(key)) === 100 - 10 - 10);
    expect((await app.fetch('/throws', key)).status).toBe(500);
    await eventually(() => passes(app, key));
  });

  test('holds a place without reserve too', async () => {
    const app = await start({ verifier: verifiers.inProcess, apiId: 'shop' });
    const { key } = await create({ concurrency: [{ name: 'calls', limit: 1 }] });
    for (let i = 0; i < 3; i++) await eventually(() => passes(app, key));
    // Neither could be charged.
    for (const charged of [key, (await create({})).key])
      await eventually(async () => (await app.fetch('/charge/1', charged)).status === 500);
  });
});

test('several guards of a request take one place', async () => {
  const app = express();
  const base = { verifier: verifiers.inProcess, apiId: 'shop' };
  app.use(expressGuard(base));
  app.get('/same', expressGuard(base), ({ apiKey }, response) => void response.json(apiKey));
  app.get('/dear', expressGuard({ ...base, cost: 10 }), ({ apiKey }, response) => void response.json(apiKey));
  const charge = (request: express.Request, response: express.Response) =>
    void response.json(request.apiKey.charge(Number(request.query['cost'])));
  const reserves = [50, 80].map((reserve) => expressGuard({ ...base, reserve }));
  app.get('/held', reserves, charge);
  app.get('/twice', reserves, reserves, expressGuard({ ...base, cost: 3 }), charge);
  const { fetch } = await open(app.listen(0, '127.0.0.1'));
  const { key } = await create({ remaining: 300, concurrency: [{ name: 'calls', limit: 1 }] });
  let rest = 300;
  for (const [path, cost] of [
    ['/same', 1],
    ['/dear', 10],
    ['/held?cost=7', 7],
    ['/held?cost=70', 70],
    ['/held?cost=90', 90],
    ['/twice?cost=7', 7],
    ['/same', 1],
  ] as const) {
    const response = await fetch(path, key);
    expect([path, response.status]).toEqual([path, 200]);
    await response.text();
    rest -= cost;
    await eventually(async () => (await remaining(key)) === rest);
  }
});

test('several guards of a request share its tokens', async () => {
  const app = express();
  const base = { verifier: verifiers.inProcess, apiId: 'shop' };
  const charge = (request: express.Request, response: express.Response) => {
    try {
      response.json(request.apiKey.charge(JSON.parse(String(request.query['cost'] ?? '{}'))));
    } catch (error) {
      response.status(500).end((error as Error).message);
    }
  };
  const plain = expressGuard({ ...base, ratelimits: [{ name: 'tokens', cost: 20 }] });
  const [few, many, both] = [{ tokens: 50 }, () => ({ tokens: 80 }), { credits: 5, tokens: 80 }].map(
    (reserve) => expressGuard({ ...base, reserve }),
  );
  for (const [path, guards] of Object.entries({
    '/rising': [few, many, few],
    '/falling': [many, few],
    '/plain': [plain, many],
    '/both': [few, both],
  }))
    app.get(path, ...guards.flatMap((guard) => guard ?? []), charge);
  const { fetch } = await open(app.listen(0, '127.0.0.1'));
  let [credits, tokens] = [100, 1000];
  const { key } = await create({ remaining: credits, ratelimits: [{ ...TOKENS, autoApply: true }] });
  for (const [path, cost, ofCredits, ofTokens] of [
    ['/rising', { tokens: 7 }, 1, 7],
    ['/rising', { tokens: 70 }, 1, 70],
    ['/rising', { tokens: 90 }, 1, 90],
    ['/rising', {}, 1, 80],
    ['/falling', { tokens: 60 }, 1, 60],
    ['/falling', { tokens: 0 }, 1, 0],
    ['/plain', { tokens: 30 }, 1, 30],
    ['/plain', { tokens: 0 }, 1, 20],
    ['/both', { credits: 3, tokens: 60 }, 3, 60],
    ['/both', { credits: 0 }, 0, 80],
  ] as const) {
    const response = await fetch(`${path}?cost=${JSON.stringify(cost)}`, key);
    const isNothing = Object.keys(cost).length === 0;
    expect([path, cost, response.status]).toEqual([path, cost, isNothing ? 500 : 200]);
    await response.text();
    [credits, tokens] = [credits - ofCredits, tokens - ofTokens];
    await eventually(async () => String(await left(key)) === `${credits},${tokens}`);
  }
  const stray = await fetch(`/both?cost={"tokenz":1}`, key);
  expect(await stray.text()).toBe(
    'charge: no guard of the request reserves tokenz, but tokens, credits; add it to reserve',
  );
});

test('each guard settles what it reserved', async () => {
  const verifier = createTestVerifier({ k: 'valid' });
  const releases: unknown[] = [];
  const release = verifier.release.bind(verifier);
  verifier.release = (id, cost) => {
    releases.push(cost);
    return release(id, cost);
  };
  const incoming = new Request('http://api/x', { headers: { 'x-api-key': 'k' } });
  const over = new AbortController();
  let apiKey: PassedKey | undefined;
  // The third has nothing left to ask.
  for (const tokens of [50, 80, 60])
    ({ apiKey } = await fetchGuard({ verifier, reserve: { tokens } }).check(incoming, over.signal));
  const asked = verifier.questions.map(({ options }) => options.hold?.ratelimits);
  expect(asked).toEqual([[{ name: 'tokens', cost: 50 }], [{ name: 'tokens', cost: 30 }]]);
  apiKey?.charge({ tokens: 90 });
  over.abort();
  expect(releases).toEqual([{ tokens: 50 }, { tokens: 40 }]);
});

test('an upgrade holds its place until the socket closes', async () => {
  const guard = httpGuard({ verifier: verifiers.inProcess, apiId: 'shop', reserve: 10 });
  const server = createServer();
  server.on('upgrade', (incoming: IncomingMessage, socket) =>
    guard.upgrade(incoming, socket, (apiKey) => {
      apiKey.charge(4);
      socket.resume().on('end', () => socket.end());
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
    }),
  );
  await open(server.listen(0, '127.0.0.1'));
  const { port } = server.address() as AddressInfo;
  const { key } = await create({ remaining: 100, concurrency: [{ name: 'calls', limit: 1 }] });
  const upgrade = async () => {
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nX-Api-Key: ${key}\r\n\r\n`,
    );
    const [head] = (await new Promise<Buffer[]>((resolve) =>
      socket.once('data', (...all) => resolve(all)),
    )) as [Buffer];
    return { socket, status: head.toString().slice(9, 12) };
  };
  const first = await upgrade();
  expect(first.status).toBe('101');
  const second = await upgrade();
  expect(second.status).toBe('429');
  second.socket.destroy();
  first.socket.destroy();
  await eventually(async () => (await remaining(key)) === 96);
});

test('a request that left during its look-up holds nothing', async () => {
  const app = await FRAMEWORKS['http']?.({ verifier: verifiers.inProcess, apiId: 'shop', reserve: 10 });
  const { key } = await create({ remaining: 100, concurrency: [{ name: 'calls', limit: 1 }] });
  const cuts = Array.from({ length: 5 }, () => new AbortController());
  const all = cuts.map(({ signal }) => app?.fetch('/stream', key, signal).catch(() => undefined));
  for (const cut of cuts) cut.abort();
  await Promise.all(all);
  await eventually(() => passes(app as App, key));
});

test('check of the Fetch guard holds by its signal', async () => {
  const { key } = await create({ remaining: 100, concurrency: [{ name: 'calls', limit: 1 }] });
  const incoming = () => new Request('http://api/x', { headers: { 'x-api-key': key } });
  const guard = fetchGuard({ verifier: verifiers.inProcess, apiId: 'shop', reserve: 10 });
  const over = new AbortController();
  const { apiKey } = await guard.check(incoming(), over.signal);
  expect(apiKey?.charge(2)).toBe(true);
  expect((await guard.check(incoming(), over.signal)).refusal?.status).toBe(429);
  over.abort();
  expect(apiKey?.charge(3)).toBe(false);
  await eventually(async () => (await remaining(key)) === 98);
  await expect(guard.check(incoming())).rejects.toThrow('needs the signal of the request');
  const plain = fetchGuard({ verifier: verifiers.inProcess, apiId: 'shop' });
  for (let i = 0; i < 2; i++) expect((await plain.check(incoming())).apiKey?.code).toBe('VALID');
});

test('names every wrong option', () => {
  const wrong = (options: object) => () => httpGuard({ verifier: verifiers.inProcess, ...options });
  expect(wrong({ reserve: -1 })).toThrow('reserve: must be a whole number from 0');
  for (const [reserve, fault] of [
    [{ tokens: -1 }, 'reserve.tokens: must be a whole number from 0 to 1000000000'],
    [{ 'not a name': 1 }, 'reserve: names must match'],
    [[1], 'reserve: must be credits, or amounts such as { tokens: 5000 }'],
    [{}, 'reserve: must be credits, or amounts'],
    [Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`a${i}`, 1])), 'reserve: must name at most 8'],
  ] as const)
    expect(wrong({ reserve })).toThrow(fault);
  expect(wrong({ reserve: { tokens: 1 }, ratelimits: [{ name: 'tokens' }] })).toThrow(
    'reserve, ratelimits: name tokens in one of them',
  );
  expect(wrong({ onAbort: 'free' })).toThrow('onAbort: must be one of charge, release, last');
  expect(wrong({ holdMs: 999 })).toThrow('holdMs: must be a whole number from 1000 to 3600000');
  expect(wrong({ cost: 1, reserve: 1 })).toThrow('cost, reserve: set one of them');
  // A sidecar may answer for every API.
  for (const options of [
    { verifier: verifiers.sidecar },
    { url: 'http://127.0.0.1:1' },
    { unixSocket: '/x' },
  ]) {
    expect(() => httpGuard(options)).toThrow(
      "apiId: required, with the API to which a key must belong, or '*'",
    );
    expect(() => httpGuard({ ...options, apiId: 'not an id' })).toThrow('apiId: must match');
    for (const apiId of ['shop', '*']) void httpGuard({ ...options, apiId });
  }
});

test('charge takes whole numbers only', async () => {
  const { key } = await create({ remaining: 100 });
  const guard = fetchGuard({ verifier: verifiers.inProcess, reserve: 10 });
  const incoming = new Request('http://api/x', { headers: { 'x-api-key': key } });
  const ending = new AbortController();
  const { apiKey } = await guard.check(incoming, ending.signal);
  for (const cost of [-1, 1.5, Number.NaN, '7' as never])
    for (const [name, say] of [
      ['charge', apiKey?.charge],
      ['charge.add', apiKey?.charge.add],
    ] as const) {
      expect(() => say?.(cost)).toThrow(`${name}: takes a whole number from 0 to`);
      expect(() => say?.({ credits: cost })).toThrow(`${name}: credits: takes a whole number from 0 to`);
    }
  expect(() => apiKey?.charge.add({ tokens: 1 })).toThrow(
    'charge.add: no guard of the request reserves tokens',
  );
  expect(() => apiKey?.charge({ credits: -1 })).toThrow('charge: credits: takes a whole number from 0 to');
  // Nothing was said, so it costs what was reserved.
  ending.abort();
  await eventually(async () => (await remaining(key)) === 90);
  expect(JSON.stringify(apiKey)).not.toContain('charge');
  // The sum may not exceed what a call may say.
  const later = await guard.check(new Request(incoming), new AbortController().signal);
  later.apiKey?.charge(CREDITS_MAX);
  expect(() => later.apiKey?.charge.add(1)).toThrow('charge.add: credits: takes a whole number from 0 to');
});

test('a client that leaves before the verdict costs nothing, and does not reach the handler', async () => {
  const { key } = await create({ remaining: 100 });
  for (const verifier of Object.values(verifiers)) {
    const guard = fetchGuard({ verifier, apiId: '*', reserve: 10 });
    const incoming = new Request('http://api/x', { headers: { 'x-api-key': key } });
    const { apiKey, refusal } = await guard.check(incoming, AbortSignal.abort());
    expect([apiKey, refusal?.status]).toEqual([undefined, 503]);
    await eventually(async () => (await remaining(key)) === 100);
  }
});
