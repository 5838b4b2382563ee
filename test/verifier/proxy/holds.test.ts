import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';
import { eventually } from '../../harness/waiting.ts';

/** Proxy mode holds each request until its response ends, and charges what the API says. */
let fleet: Fleet;
const api = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? '', 'http://api');
  const costs = searchParams.getAll('cost');
  if (pathname === '/trailer') {
    response.writeHead(200, { Trailer: 'X-Keyfence-Cost' });
    response.write('first');
    response.addTrailers({ 'X-Keyfence-Cost': costs[0] });
    return response.end();
  }
  if (costs.length > 0) response.setHeader('X-Keyfence-Cost', costs);
  if (pathname !== '/stream') return response.end('ok');
  return response.write('first');
});
api.on('upgrade', (_request, socket) => {
  socket.write('HTTP/1.1 101 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Keyfence-Cost: 6\r\n\r\n');
  socket.resume().on('end', () => socket.end());
});

beforeAll(async () => {
  await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  fleet = await Fleet.start({ verifiers: 0 });
  const UPSTREAM_URL = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  for (const FAST_LANE of ['true', 'false'])
    await fleet.addVerifier({
      ...{ UPSTREAM_URL, FAST_LANE, PROXY_PORT: '0', PROXY_RESERVE_CREDITS: '50', LOOKUP_WAIT_MS: '5000' },
      PROXY_RESERVE_LIMITS: 'tokens=400',
    });
});
afterAll(async () => {
  await fleet.stop();
  api.close();
  api.closeAllConnections();
});

describe.each([
  ['in the fast lane', 0],
  ['through Node', 1],
])('%s', (_name, i) => {
  const url = () => fleet.verifiers[i]?.proxyAddress ?? '';
  const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
  const get = (path: string, key: string, signal?: AbortSignal) =>
    fetch(url() + path, { headers: { 'x-api-key': key }, ...(signal && { signal }) });
  const remaining = async (key: string) => {
    const question = { key, remaining: { cost: 0 } };
    return (await fleet.post(`${fleet.verifiers[i]?.address}/v1/keys.verifyKey`, question)).body['remaining'];
  };
  const passes = async (path: string, key: string) => {
    const response = await get(path, key);
    return [response.status, response.headers.get('x-keyfence-cost'), await response.text()];
  };

  test('charges what the API says', async () => {
    const { key, keyId } = await create({ remaining: 500 });
    let rest = 500;
    for (const [path, cost] of [
      ['/a?cost=7', 7],
      ['/a?cost=0', 0],
      ['/a?cost=80', 80],
      ['/a', 50],
      ['/a?cost=-1', 50],
      ['/a?cost=1.5', 50],
      ['/a?cost=0&cost=many', 50],
      ['/trailer?cost=9', 9],
    ] as const) {
      expect(await passes(path, key)).toEqual([200, null, path.startsWith('/trailer') ? 'first' : 'ok']);
      rest -= cost;
      await eventually(async () => (await remaining(key)) === rest);
    }
    expect((await get('/a', (await create({ remaining: 49 })).key)).status).toBe(429);
    expect((await get('/a?cost=80', (await create({ remaining: 60 })).key)).status).toBe(200);
    await eventually(async () => {
      const metrics = String((await fleet.get(`${fleet.verifiers[i]?.adminAddress}/metrics`)).body);
      return ['invalid"} 3', 'missing"} 1', 'short"} 1'].every((line) =>
        metrics.includes(`keyfence_proxy_cost_faults_total{fault="${line}`),
      );
    });
    expect(fleet.logged.filter((line) => line.includes('"value":"-1"'))).toHaveLength(i + 1);
    expect(fleet.logged.findLast((line) => line.includes('"value":"-1"'))).toContain(`"keyId":"${keyId}"`);
    expect(fleet.logged.join()).not.toContain('"value":"1.5"');
    const other = await create({ remaining: 500 });
    await passes('/a?cost=-2', other.key);
    expect(fleet.logged.findLast((line) => line.includes('"value":"-2"'))).toContain(
      `"keyId":"${other.keyId}"`,
    );
    expect(await passes('/a?cost=7', (await create({})).key)).toEqual([200, null, 'ok']);
  });

  test('settles a rate limit with what the API says', async () => {
    const ratelimits = [{ name: 'tokens', limit: 1000, duration: 86_400_000 }];
    const { key } = await create({ remaining: 500, ratelimits });
    const left = async () => {
      const question = { key, remaining: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] };
      const { body } = await fleet.post(`${fleet.verifiers[i]?.address}/v1/keys.verifyKey`, question);
      return [body.remaining, body.ratelimits[0].remaining];
    };
    const faults = async () => {
      const { body } = await fleet.get(`${fleet.verifiers[i]?.adminAddress}/metrics`);
      return ['invalid', 'missing'].map((fault) =>
        Number(new RegExp(`cost_faults_total{fault="${fault}"} (\\d+)`).exec(String(body))?.[1] ?? 0),
      );
    };
    const before = await faults();
    let [credits, tokens] = [500, 1000];
    for (const [cost, ofCredits, ofTokens] of [
      ['12; tokens=100', 12, 100],
      ['tokens=1', 50, 1],
      ['3', 3, 400],
      ['3; tokenz=1', 50, 400],
    ] as const) {
      expect(await passes(`/a?cost=${encodeURIComponent(cost)}`, key)).toEqual([200, null, 'ok']);
      [credits, tokens] = [credits - ofCredits, tokens - ofTokens];
      await eventually(async () => String(await left()) === `${credits},${tokens}`);
    }
    // 99 are left.
    const refused = await get('/a', key);
    expect([refused.status, await refused.json()]).toMatchObject([429, { code: 'RATE_LIMITED' }]);
    const [invalid = 0, missing = 0] = before;
    await eventually(async () => String(await faults()) === `${invalid + 1},${missing + 2}`);
    // A key without the limit pays nothing of it.
    expect(await passes('/a?cost=tokens%3D7', (await create({})).key)).toEqual([200, null, 'ok']);
  });

  test('takes a place until a cut', async () => {
    const { key } = await create({ remaining: 500, concurrency: [{ name: 'calls', limit: 1 }] });
    const cut = new AbortController();
    const response = await get('/stream?cost=3', key, cut.signal);
    expect(response.headers.get('x-keyfence-cost')).toBeNull();
    const refused = await get('/a', key);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
    cut.abort();
    await eventually(async () => (await passes('/a?cost=1', key))[0] === 200);
    // The client has left, so the stream cost what was reserved.
    await eventually(async () => (await remaining(key)) === 449);
  });

  test('holds a WebSocket until it closes', async () => {
    const { key } = await create({ remaining: 500, concurrency: [{ name: 'calls', limit: 1 }] });
    const socket = connect(Number(new URL(url()).port), '127.0.0.1');
    socket.write(
      `GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Api-Key: ${key}\r\n\r\n`,
    );
    const head = await new Promise<Buffer>((resolve) => socket.once('data', resolve));
    expect(head.toString()).toMatch(/^HTTP\/1.1 101 /);
    expect(head.toString().toLowerCase()).not.toContain('cost');
    expect((await get('/a', key)).status).toBe(429);
    socket.destroy();
    await eventually(async () => (await remaining(key)) === 494);
  });
});
