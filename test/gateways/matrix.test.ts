import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateKey } from '../../shared/rules/key-format.ts';
import { lacking } from '../harness/programs.ts';
import { type Ask, describeGateways, gatewayNames } from './gateways.ts';
import { OTHERS, REPORTS } from './spellings.ts';
import { API_ID, OTHER_API_ID, showing, World } from './world.ts';

const MIB = 1024 * 1024;
const INVALID = 'Bearer realm="api", error="invalid_token"';
const PREFLIGHT = ['Origin', 'https://app.example', 'Access-Control-Request-Method', 'PUT'];

let world: World;
let valid: { key: string; keyId: string };
let keys: Record<
  'disabled' | 'expired' | 'other' | 'otherDisabled' | 'otherExpired' | 'unknown' | 'malformed',
  string
>;

beforeAll(async () => {
  world = await World.start();
  const { fleet } = world;
  valid = await world.validKey({ name: 'Zoë', externalId: 'user 1' });
  const key = async (input: object) => (await fleet.ok('keys.createKey', { apiId: API_ID, ...input })).key;
  const expires = Date.now() + 2000;
  keys = {
    disabled: await key({ enabled: false }),
    expired: await key({ expires }),
    other: await key({ apiId: OTHER_API_ID }),
    otherDisabled: await key({ apiId: OTHER_API_ID, enabled: false }),
    otherExpired: await key({ apiId: OTHER_API_ID, expires }),
    unknown: generateKey(16),
    malformed: 'no key of ours',
  };
  await fleet.until(() => Date.now() > expires);
});
afterAll(() => world.stop());

describeGateways((name, kind) => {
  const passesBodies = name !== 'nginx';
  /** The one request that the API saw. */
  async function passed(asked: Ask) {
    const got = await world.decided(name, asked);
    const seen = world.upstream.take();
    expect({ status: got.status, requests: seen.length }).toEqual({ status: 200, requests: 1 });
    const [request] = seen;
    if (!request) throw new Error('the API saw nothing');
    return { got, ...request, headers: request.headersDistinct };
  }

  /** Answer that the client got in the API's place. */
  async function refused(asked: Ask) {
    const got = await world.decided(name, asked);
    expect(world.upstream.take()).toEqual([]);
    return { status: got.status, challenge: got.headers['www-authenticate'], body: got.body };
  }

  test('the API learns whose a key is, not the key', async () => {
    for (const headers of [
      showing(valid.key).headers,
      ['authorization', `bearer ${valid.key}`],
      ['X-Api-Key', valid.key],
      ['X-Api-Key', valid.key, ...showing(valid.key).headers],
    ]) {
      const { got, headers: seen, ...request } = await passed({ path: '/orders/1?a=b', headers });
      expect(got.body).toBe('from the API');
      expect(request).toMatchObject({ method: 'GET', url: '/orders/1?a=b' });
      expect(seen).toMatchObject({
        'x-key-id': [valid.keyId],
        'x-key-api-id': [API_ID],
        'x-key-name': ['Zo%C3%AB'],
        'x-key-external-id': ['user%201'],
      });
      expect(JSON.stringify(seen)).not.toContain(valid.key);
    }
  });

  test('refused keys are 401 or 403 before the API', async () => {
    const expected = {
      disabled: [401, INVALID, 'DISABLED'],
      expired: [401, INVALID, 'EXPIRED'],
      other: [403, undefined, 'FORBIDDEN'],
      otherDisabled: [403, undefined, 'FORBIDDEN'],
      otherExpired: [403, undefined, 'FORBIDDEN'],
      unknown: [401, INVALID, 'NOT_FOUND'],
      malformed: [401, INVALID, 'NOT_FOUND'],
    } as const;
    for (const [kind, [status, challenge, code]] of Object.entries(expected)) {
      const answer = await refused(showing(keys[kind as keyof typeof keys]));
      expect(answer, kind).toMatchObject({ status, challenge });
      if (passesBodies) expect(JSON.parse(answer.body), kind).toMatchObject({ status, code });
    }
  });

  test('spent credits are 429 and cost nothing', async () => {
    for (const refill of [undefined, { interval: 'daily', amount: 1 }]) {
      const { key } = await world.fleet.ok('keys.createKey', {
        apiId: API_ID,
        remaining: 1,
        ...(refill ? { refill } : {}),
      });
      // Where a verdict was lost on its way, what it cost is gone.
      const first = await world.decided(name, showing(key));
      expect([200, 429]).toContain(first.status);
      world.upstream.take();
      const { status, headers, body } = await world.decided(name, showing(key));
      expect(world.upstream.take()).toEqual([]);
      expect(status).toBe(429);
      const seconds = Number(headers['retry-after']);
      if (refill) expect(seconds).toSatisfy((s: number) => s >= 1 && s <= 86_400);
      else expect(headers['retry-after']).toBeUndefined();
      const until = refill ? `;t=${seconds}` : '';
      expect(headers['ratelimit']).toBe(`"credits";r=0${until}`);
      expect(headers['www-authenticate']).toBeUndefined();
      if (passesBodies) expect(JSON.parse(body)).toMatchObject({ status: 429, code: 'USAGE_EXCEEDED' });
    }
  });

  test('a key used too often is 429 with its limit', async () => {
    const ratelimit = { limit: 1, duration: 86_400_000 };
    const { key } = await world.fleet.ok('keys.createKey', { apiId: API_ID, ratelimit });
    expect([200, 429]).toContain((await world.decided(name, showing(key))).status);
    world.upstream.take();
    const { status, headers, body } = await world.decided(name, showing(key));
    expect(world.upstream.take()).toEqual([]);
    const seconds = Number(headers['retry-after']);
    expect(seconds).toSatisfy((s: number) => s >= 1 && s <= 2 * 86_400);
    expect({ status, headers }).toMatchObject({
      status: 429,
      headers: {
        ratelimit: `"default";r=0;t=${seconds}`,
        'ratelimit-policy': '"default";q=1;w=86400',
      },
    });
    if (passesBodies) expect(JSON.parse(body)).toMatchObject({ status: 429, code: 'RATE_LIMITED' });
  });

  test('the client of a good key sees what is left', async () => {
    const limits = { remaining: 1000, ratelimit: { limit: 1000, duration: 86_400_000 } };
    const { key } = await world.validKey(limits);
    for (const path of ['/', '/404']) {
      const { got } = await passed({ path, ...showing(key) });
      const { ratelimit, 'ratelimit-policy': policy } = got.headers;
      // Traefik cannot pass them on: see the README.
      expect(ratelimit).toEqual(
        kind === 'traefik' ? undefined : expect.stringMatching(/^"default";r=\d+;t=\d+, "credits";r=\d+$/),
      );
      expect(policy).toBe(kind === 'traefik' ? undefined : '"default";q=1000;w=86400');
    }
    const unlimited = await passed({
      headers: [...showing(valid.key).headers, 'RateLimit', '"credits";r=9'],
    });
    expect(unlimited.got.headers).not.toHaveProperty('ratelimit');
    expect(unlimited.got.headers).not.toHaveProperty('ratelimit-policy');
  });

  test('no header gets around a needed permission', async () => {
    const reader = await world.fleet.ok('keys.createKey', {
      apiId: API_ID,
      permissions: ['reports.read', 'a'],
    });
    const { headers } = showing(reader.key);
    const { headers: seen } = await passed({ path: '/reports/1?a=b', headers });
    expect(seen['x-key-id']).toEqual([reader.keyId]);
    const lacking = showing(valid.key).headers;
    const claims = [
      'X-Require',
      'a',
      'X-Key-Permissions',
      'reports.read',
      'X-Original-URI',
      '/',
      'X-Forwarded-Uri',
      '/',
    ];
    for (const headers of [lacking, [...lacking, ...claims]]) {
      const answer = await refused({ path: '/reports/1', headers });
      expect(answer).toMatchObject({ status: 403, challenge: undefined });
      if (passesBodies) expect(JSON.parse(answer.body)).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    }
    expect(await refused({ path: '/reports/1' })).toMatchObject({ status: 401 });
    await world.fleet.ok('keys.removePermissions', { keyId: reader.keyId, permissions: ['reports.read'] });
    expect(await refused({ path: '/reports/1', headers })).toMatchObject({ status: 403 });
    await passed({ path: '/', headers });
  });

  test('a permission covers every spelling of a route', async () => {
    const reader = await world.validKey({ permissions: ['reports.read'] });
    const statusOf = async (path: string, key: string) => {
      const { status } = await world.decided(name, { path, ...showing(key) });
      return { path, status, requests: world.upstream.take().length };
    };
    const malformed: string[] = [];
    for (const path of REPORTS) {
      const read = await statusOf(path, reader.key);
      // Some gateways themselves refuse what is no good path.
      if (read.status === 400) malformed.push(path);
      const isMalformed = { path, status: 400, requests: 0 };
      expect([isMalformed, { path, status: 200, requests: 1 }]).toContainEqual(read);
      const lacking = read.status === 400 ? isMalformed : { path, status: 403, requests: 0 };
      expect(await statusOf(path, valid.key)).toEqual(lacking);
    }
    expect(malformed.length).toBeLessThan(6);
    for (const path of OTHERS)
      expect(await statusOf(path, valid.key)).toEqual({ path, status: 200, requests: 1 });
  });

  test('without a key it is 401', async () => {
    for (const headers of [[], ['Authorization', 'Bearer '], ['Authorization', 'Basic Zm9vOmJhcg==']])
      expect(await refused({ headers })).toMatchObject({ status: 401, challenge: 'Bearer realm="api"' });
  });

  test('refuses two keys, even if one is valid', async () => {
    const good = showing(valid.key).headers;
    for (const headers of [
      // nginx before 1.23 sees the first of two: see its README.
      ...(name === 'nginx' ? [] : [['X-Api-Key', valid.key, 'X-Api-Key', keys.unknown]]),
      ['X-Api-Key', keys.unknown, 'x-api-key', valid.key],
      [...good, 'X-Api-Key', keys.unknown],
    ])
      expect(await refused({ headers })).toMatchObject({
        status: 401,
        // Envoy makes one header of two, whose value is no key.
        challenge: expect.stringMatching(
          ['envoy', 'nginx'].includes(name) ? /invalid_(request|token)/ : /invalid_request/,
        ),
      });
    // nginx itself refuses a second Authorization.
    const twice = await refused({ headers: [...good, ...showing(keys.unknown).headers] });
    expect(twice.status).toBe(name === 'nginx' ? 400 : 401);
  });

  test("a client's own identity headers never reach the API", async () => {
    const spoofed = [
      ...['X-Key-Id', 'key_boss', 'x-key-id', 'key_boss', 'X_Key_Id', 'key_boss', 'X-Key_Id', 'key_boss'],
      ...['X.Key.Id', 'key_boss', 'X-Key.Id', 'key_boss', 'x.key-id', 'key_boss', 'X.Key_Id', 'key_boss'],
      // Caddy cannot: see its README.
      ...(kind === 'caddy' ? [] : ['X~Key~Id', 'key_boss', "X'Key-Id", 'key_boss', 'X-Key|Id', 'key_boss']),
      ...[
        'X-Key-Name',
        'boss',
        'X-KEY-EXTERNAL-ID',
        'boss',
        'X-Key-Api-Id',
        'boss',
        'X-Key-Meta',
        '{"boss":1}',
        'X-Key-Token',
        'boss',
      ],
    ];
    const { headers } = await passed({ headers: [...showing(valid.key).headers, ...spoofed] });
    expect(headers['x-key-id']).toEqual([valid.keyId]);
    expect(JSON.stringify(headers)).not.toContain('boss');
    const nobodys = await world.validKey();
    const { headers: bare } = await passed({ headers: [...showing(nobodys.key).headers, ...spoofed] });
    expect(bare['x-key-id']).toEqual([nobodys.keyId]);
    expect(bare['x-key-name'] ?? ['']).toEqual(['']);
    expect(JSON.stringify(bare)).not.toContain('boss');
    expect(await refused({ headers: spoofed })).toMatchObject({ status: 401 });
  });

  test('no Connection line removes an identity', async () => {
    for (const named of ['X-Key-Id, X-Key-Name', 'close, x-key-id', 'Upgrade, X-Key-Id']) {
      const { headers } = await passed({ headers: [...showing(valid.key).headers, 'Connection', named] });
      expect([named, headers['x-key-id'], headers['x-key-name']]).toEqual([
        named,
        [valid.keyId],
        ['Zo%C3%AB'],
      ]);
      expect(String(headers['connection']).toLowerCase()).not.toContain('x-key');
    }
  });

  test('no path makes it a question of another API', async () => {
    const { headers } = showing(keys.other);
    for (const path of [
      '/../../../../authz/api/other/ext-authz/x',
      '/%2e%2e/%2e%2e/%2e%2e/api/other/forward-auth',
      '//authz/api/other/auth-request?/authz/api/other/auth-request',
    ]) {
      const { status } = await refused({ path, headers });
      // Some gateways themselves refuse a path that leaves the root.
      expect([400, 403], path).toContain(status);
    }
  });

  test('a key in the query is none', async () => {
    expect(await refused({ path: `/?api_key=${valid.key}` })).toMatchObject({ status: 401 });
  });

  test('a preflight without a key is refused', async () => {
    expect(await refused({ method: 'OPTIONS', headers: PREFLIGHT })).toMatchObject({ status: 401 });
  });

  test('passes bodies up to 1 MiB for valid keys only', async () => {
    const json = ['Content-Type', 'application/json'];
    for (const body of ['{"order":1}', 'x'.repeat(MIB)]) {
      const headers = [...json, ...showing(valid.key).headers];
      const seen = await passed({ method: 'POST', headers, body });
      expect(seen.method).toBe('POST');
      expect(seen.body === body).toBe(true);
    }
    const headers = [...json, ...showing(keys.disabled).headers];
    expect(await refused({ method: 'POST', headers, body: '{"order":1}' })).toMatchObject({ status: 401 });
  });

  test('HEAD is judged and passed as HEAD', async () => {
    const { got, method } = await passed({ method: 'HEAD', ...showing(valid.key) });
    expect({ method, body: got.body }).toEqual({ method: 'HEAD', body: '' });
    expect(await refused({ method: 'HEAD', ...showing(keys.disabled) })).toMatchObject({
      status: 401,
      body: '',
    });
  });
});

const none = lacking(gatewayNames.length > 0 ? [] : ['nginx']);

test.skipIf(none)(
  `a key is refused by every gateway as soon as updateKey has returned, and passes again likewise${none}`,
  async () => {
    const { key, keyId } = await world.validKey();
    const statuses = () =>
      Promise.all(gatewayNames.map(async (name) => (await world.decided(name, showing(key))).status));
    for (let round = 0; round < 10; round++) {
      await world.fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(await statuses()).toEqual(gatewayNames.map(() => 401));
      await world.fleet.ok('keys.updateKey', { keyId, enabled: true });
      expect(await statuses()).toEqual(gatewayNames.map(() => 200));
    }
  },
);
