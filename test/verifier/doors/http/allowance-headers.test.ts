import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { Upstream } from '../../../harness/upstream.ts';

let fleet: Fleet;
let upstream: Upstream;
beforeAll(async () => {
  upstream = await Upstream.start();
  fleet = await Fleet.start({
    env: { UPSTREAM_URL: upstream.address, PROXY_PORT: '0', PROXY_API_ID: 'shop', LOOKUP_WAIT_MS: '5000' },
  });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(async () => {
  await fleet.stop();
  await upstream.close();
});

const DIALECTS = ['auth-request', 'forward-auth', 'ext-authz/orders'];
const places = (): readonly (readonly [string, string])[] => [
  ...DIALECTS.map((name) => [name, `${fleet.verifiers[0]?.address}/authz/api/shop/${name}`] as const),
  ['proxy mode', `${fleet.verifiers[0]?.proxyAddress}/orders`],
];
const ask = (url: string, key: string, more: Record<string, string> = {}) =>
  fleet.decided(() => fleet.get(url, { authorization: `Bearer ${key}`, ...more }));

describe('a good answer', () => {
  test('tells gateways and clients what the key has left', async () => {
    const { key } = await fleet.ok('keys.createKey', {
      ...{ apiId: 'shop', name: 'Ada', remaining: 100 },
      ratelimit: { limit: 50, duration: 60_000 },
      ratelimits: [{ name: 'hourly', limit: 500, duration: 3_600_000, autoApply: true }],
    });
    let left = 50;
    for (const [name, url] of places()) {
      const { status, headers } = await ask(url, key);
      left--;
      expect([status, headers['ratelimit-policy']], name).toEqual([
        200,
        '"default";q=50;w=60, "hourly";q=500;w=3600',
      ]);
      expect(headers['ratelimit'], name).toMatch(
        new RegExp(`^"default";r=${left};t=\\d+, "hourly";r=${left + 450};t=\\d+, "credits";r=${left + 50}$`),
      );
    }
  });

  test('of a key without limits and credits has neither header', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    for (const [name, url] of places()) {
      const { status, headers } = await ask(url, key);
      expect([status, headers['ratelimit'], headers['ratelimit-policy']], name).toEqual([
        200,
        undefined,
        undefined,
      ]);
    }
  });

  test('is the same where the fast lane does not answer', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 9 });
    const body = 'x'.repeat(10);
    for (const [i, [name, url]] of places().entries()) {
      // A body hands a question for gateways over.
      const answer = await fleet.decided(() =>
        fleet.send(url, { method: 'POST', body, headers: { authorization: `Bearer ${key}` } }),
      );
      expect([answer.status, answer.headers['ratelimit']], name).toEqual([200, `"credits";r=${8 - i}`]);
    }
  });
});
