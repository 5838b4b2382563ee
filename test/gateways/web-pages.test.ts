import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../shared/rules/key-format.ts';
import { executable, startChromium } from '../control-plane/clients/dashboard/chromium.ts';
import { lacking } from '../harness/programs.ts';
import { describeGateways } from './gateways.ts';
import { API_ID, World } from './world.ts';

let world: World;
let browser: Browser;
/** A page that keys allow, and another. */
let page: Page;
let other: Page;
let keys: Record<'good' | 'spent' | 'limited' | 'disabled', string>;
let proxies: string[];
const site = createServer((_, response) => void response.setHeader('content-type', 'text/html').end());

beforeAll(async () => {
  if (!executable) return;
  world = await World.start({ CORS_PREFLIGHT: 'allow', LOOKUP_WAIT_MS: '1000' }, true);
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  const { port } = site.address() as AddressInfo;
  browser = await startChromium();
  const open = async (origin: string) => {
    const opened = await browser.newPage();
    await opened.goto(origin);
    return opened;
  };
  const own = `http://127.0.0.1:${port}`;
  page = await open(own);
  other = await open(`http://localhost:${port}`);
  // The API answers pages itself, preflights too.
  world.upstream.handle = (request, response) => {
    response.setHeader('access-control-allow-origin', request.headers.origin ?? '*');
    response.setHeader('access-control-allow-headers', 'authorization');
    response.setHeader('access-control-allow-methods', 'PUT');
    response.setHeader('access-control-allow-credentials', 'true');
    request.resume().on('end', () => response.end('from the API'));
  };
  const keyWith = async (fields: object) =>
    (await world.fleet.ok('keys.createKey', { apiId: API_ID, allowedOrigins: [own], ...fields })).key;
  keys = {
    good: await keyWith({}),
    disabled: await keyWith({ enabled: false }),
    spent: await keyWith({ remaining: 0, refill: { interval: 'daily', amount: 1 } }),
    limited: await keyWith({
      permissions: ['reports.read'],
      remaining: 0,
      refill: { interval: 'daily', amount: 1 },
    }),
  };
  proxies = [];
  for (const FAST_LANE of ['true', 'false']) {
    const UPSTREAM_URL = world.upstream.address;
    const env = { UPSTREAM_URL, PROXY_API_ID: API_ID, PROXY_PORT: '0', CORS_PREFLIGHT: 'allow', FAST_LANE };
    proxies.push((await world.fleet.addVerifier({ ...env, LOOKUP_WAIT_MS: '1000' })).proxyAddress ?? '');
  }
});
afterAll(async () => {
  site.close();
  await browser?.close();
  await world?.stop();
});

interface Call {
  readonly key?: string;
  readonly path?: string;
  readonly method?: string;
  readonly credentials?: 'include';
}

/** What a page's script sees of an answer; undefined = nothing, because its browser forbids it. */
async function readBy(from: Page, url: string, { key, path = '/orders', method = 'GET', credentials }: Call) {
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const init = { method, headers, ...(credentials ? { credentials } : {}) };
  const seen = await from.evaluate(`fetch(${JSON.stringify(url + path)}, ${JSON.stringify(init)}).then(
    async (response) => [response.status, response.headers.get('retry-after'), await response.text()],
    () => undefined,
  )`);
  return seen as [status: number, retryAfter: string | null, body: string] | undefined;
}

/** As `readBy`, again while there is no verdict, which no page can read. */
async function decided(from: Page, url: string, call: Call) {
  let seen = await readBy(from, url, call);
  await world.fleet.until(
    async () => {
      if (seen && seen[0] !== 503) return true;
      seen = await readBy(from, url, call);
      return false;
    },
    `no page can read ${JSON.stringify(call)}`,
  );
  return seen?.slice(0, 2);
}

function everyAnswer(urlOf: () => string): void {
  test('an allowed page reads every answer', async () => {
    const url = urlOf();
    for (const method of ['GET', 'PUT'])
      expect(await decided(page, url, { key: keys.good, method })).toEqual([200, null]);
    expect((await readBy(page, url, { key: keys.good }))?.[2]).toBe('from the API');
    for (const credentials of [{}, { credentials: 'include' }] as const) {
      expect(await decided(page, url, { key: keys.disabled, ...credentials })).toEqual([401, null]);
      expect(await decided(page, url, { key: keys.spent, ...credentials })).toEqual([
        429,
        expect.stringMatching(/^\d+$/),
      ]);
    }
    for (const key of [undefined, generateKey(16)])
      expect(await decided(page, url, key === undefined ? {} : { key })).toEqual([401, null]);
  });
}

const none = lacking(executable ? [] : ['chromium']);

describe.skipIf(!executable)(`web pages${none}`, () => {
  describeGateways((name) => {
    const url = () => world.addressOf(name);
    everyAnswer(url);

    test('a missing permission is a readable 403', async () => {
      expect(await decided(page, url(), { key: keys.good, path: '/reports' })).toEqual([403, null]);
      const [status, retryAfter] =
        (await decided(page, url(), { key: keys.limited, path: '/reports' })) ?? [];
      expect(status).toBe(429);
      expect(Number(retryAfter)).toBeGreaterThan(0);
    });

    test('another page reads no answer about a key', async () => {
      const key = generateKey(16);
      for (const wrong of [keys.good, keys.disabled, keys.spent])
        expect(await readBy(other, url(), { key: wrong })).toBeUndefined();
      expect(await readBy(other, url(), { key, credentials: 'include' })).toBeUndefined();
      expect(await decided(other, url(), { key })).toEqual([401, null]);
    });
  });

  describe.each([
    ['proxy mode', 0],
    ['proxy mode without the fast lane', 1],
  ])('%s', (_, i) => {
    everyAnswer(() => proxies[i] ?? '');
  });
});
