import { request as ask } from 'node:http';
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { keyfence as fastifyGuard } from '../../../../verifier/library/guards/fastify.ts';
import type { GuardOptions } from '../../../../verifier/library/guards/guard-options.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { type App, FRAMEWORKS } from './apps.ts';

const names = ['fastify', 'express', 'hono', 'koa', 'http', 'fetch'] as const;
let fleet: Fleet;
let verifier: KeyVerifier;
const apps: App[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop', 'other'], lookupWaitMs: 5000 });
  await verifier.ready();
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.close()));
  await verifier.close();
  await fleet.stop();
});

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** Sends header lines as they are, doubled ones too. */
function send(url: string, lines: readonly string[] = [], method = 'GET'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = ask(url, { method, agent: false, headers: ['Host', 'x', ...lines] }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
      );
    });
    sent.on('error', reject).end();
  });
}

async function open(name: (typeof names)[number], options: GuardOptions = {}): Promise<App> {
  const given = 'verifier' in options || 'url' in options ? options : { verifier, ...options };
  const app = await FRAMEWORKS[name]({ apiId: 'shop', ...given });
  apps.push(app);
  return app;
}

const bearer = (key: string) => ['Authorization', `Bearer ${key}`];

describe.each(names)('%s', (name) => {
  test('passes good keys and refuses as /authz does', async () => {
    const app = await open(name);
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Ada' });
    const other = (await fleet.ok('keys.createKey', { apiId: 'other' })).key;
    const disabled = (await fleet.ok('keys.createKey', { apiId: 'shop', enabled: false })).key;
    for (const lines of [bearer(key), ['x-api-key', key], ['X-Api-Key', key, ...bearer(key)]]) {
      for (const path of ['/orders', '/sub/orders']) {
        const { status, body } = await send(app.address + path, lines);
        expect(status, body).toBe(200);
        expect(JSON.parse(body).apiKey).toMatchObject({ code: 'VALID', keyId, apiId: 'shop', name: 'Ada' });
      }
    }
    const before = app.handled();
    const refused = [
      [],
      ['Authorization', 'Basic eDp5'],
      ['Authorization', ''],
      ['Authorization', 'Bearer'],
      [...bearer(key), ...bearer(key)],
      ['x-api-key', key, 'X-API-Key', key],
      [...bearer(key), 'x-api-key', other],
      ['Authorization', 'Basic eDp5', ...bearer(key)],
      bearer(`${key.slice(0, -1)}!`),
      bearer(generateKey(16)),
      bearer('x'.repeat(8192)),
      bearer('\u00e4\u00ff'),
      bearer(disabled),
      bearer(other),
    ];
    const plain = (answer: Answer) => {
      const { requestId: _, ...body } = JSON.parse(answer.body);
      const { 'content-type': type, 'www-authenticate': challenge, 'cache-control': cache } = answer.headers;
      return { status: answer.status, body, type: String(type).split(';')[0], challenge, cache };
    };
    for (const lines of refused) {
      const wanted = await send(`${fleet.verifiers[0]?.address}/authz/api/shop/auth-request`, lines);
      const answer = await send(`${app.address}/orders`, [...lines, 'X-Request-Id', 'mine']);
      expect(plain(answer), lines.join()).toEqual(plain(wanted));
      const requestId = name === 'fastify' ? expect.stringMatching(/^req-/) : 'mine';
      expect(answer.headers['x-request-id']).toEqual(requestId);
      expect(JSON.parse(answer.body).requestId).toBe(answer.headers['x-request-id']);
    }
    for (const method of ['HEAD', 'OPTIONS', 'POST', 'DELETE'])
      expect((await send(`${app.address}/orders`, [], method)).status).toBe(401);
    for (const path of ['/none', '/sub/none', '/%zz', '//orders', '/orders?api_key=x'])
      expect((await send(app.address + path)).status, path).toBeOneOf([400, 401]);
    expect((await send(`${app.address}/orders?api_key=${key}`)).status).toBe(401);
    expect(app.handled()).toBe(before);
    expect((await send(`${app.address}/open`)).body).toBe('open');
  });

  test('hides what the client says of its identity', async () => {
    const app = await open(name);
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const lines = [
      'X-Key-Id',
      'key_forged',
      'x_key_api_id',
      'forged',
      'x-key-name',
      'forged',
      'X-Keys',
      'stays',
    ];
    const { body } = await send(`${app.address}/orders`, [...bearer(key), ...lines]);
    expect(body).not.toContain('forged');
    expect(body).toContain('stays');
    expect((await send(`${app.address}/throws`, bearer(key))).status).toBe(500);
    expect(app.handled()).toBe(2);
  });

  test('reads the query only if told to', async () => {
    const app = await open(name, { sources: ['query'] });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect((await send(`${app.address}/orders?api_key=${key}`)).status).toBe(200);
    expect((await send(`${app.address}/sub/orders?a=1&api_key=${key}`)).status).toBe(200);
    expect((await send(`${app.address}/orders?api_key=${key}&api_key=${key}`)).status).toBe(401);
    expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(401);
  });

  test('runs no handler after a complete disable', async () => {
    const app = await open(name);
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(200);
    let going = true;
    const load = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (going) await send(`${app.address}/orders`, bearer(key));
      }),
    );
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation.state).toBe('complete');
    const handled = app.handled();
    for (let i = 0; i < 10; i++) expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(401);
    going = false;
    await load;
    expect(app.handled()).toBe(handled);
  });

  test.each<[string, unknown]>([
    [
      'throws',
      () => {
        throw new Error('broken');
      },
    ],
    ['rejects', () => Promise.reject(new Error('broken'))],
    ['is undefined', () => undefined],
    ['is null', () => null],
    ['is a code that nobody knows', async () => ({ valid: true, code: 'FINE' })],
    ['is VALID and not valid', async () => ({ valid: false, code: 'VALID' })],
    ['is a property of every object', async () => ({ valid: true, code: 'toString' })],
  ])('503 and no handler where what verify gives %s', async (_what, verify) => {
    const app = await open(name, { verifier: { decide: () => undefined, verify } as object as KeyVerifier });
    const { status, headers, body } = await send(`${app.address}/orders`, bearer('a'));
    expect({ status, retry: headers['retry-after'], type: headers['content-type'] }).toMatchObject({
      status: 503,
      retry: '1',
    });
    expect(JSON.parse(body)).toMatchObject({ status: 503, code: 'SERVICE_UNAVAILABLE' });
    expect(app.handled()).toBe(0);
  });

  test.each<[string, (shared: KeyVerifier, address: string) => GuardOptions]>([
    ['in the process', (shared) => ({ verifier: shared })],
    ['by way of a sidecar', (_shared, address) => ({ url: address })],
  ])('costs what the option says and 429 tells, %s', async (_way, optionsOf) => {
    const options = optionsOf(verifier, fleet.verifiers[0]?.address ?? '');
    const app = await open(name, { ...options, cost: 4 });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 10 });
    const left = async () =>
      JSON.parse((await send(`${app.address}/orders`, bearer(key))).body).apiKey.remaining;
    await fleet.until(async () => (await left()) === 6);
    expect(await left()).toBe(2);
    const refused = await send(`${app.address}/orders`, bearer(key));
    expect(refused).toMatchObject({
      status: 429,
      headers: { ratelimit: '"credits";r=2', 'x-key-code': 'USAGE_EXCEEDED' },
    });
    expect(refused.headers).not.toHaveProperty('retry-after');
    expect(JSON.parse(refused.body)).toMatchObject({
      ...{ status: 429, code: 'USAGE_EXCEEDED', cost: 4, remaining: 2 },
      detail: 'The request needs 4, and the API key has 2 credits left.',
    });
    const own = { name: 'tokens', limit: 1000, duration: 60_000 };
    const large = await open(name, { ...options, cost: 0, ratelimits: [{ ...own, cost: 5000 }] });
    const never = await send(`${large.address}/orders`, bearer(key));
    expect([never.status, never.headers['retry-after']]).toEqual([429, undefined]);
    expect(JSON.parse(never.body)).toMatchObject({
      ...{ code: 'RATE_LIMITED', cost: 5000, remaining: 1000 },
      detail: 'The request needs 5000, and the limit tokens is 1000.',
    });
    const free = await open(name, { ...options, cost: 0 });
    expect((await send(`${free.address}/orders`, bearer(key))).status).toBe(200);
    expect(app.handled()).toBe(2);
  });

  test.each<[string, (shared: KeyVerifier, address: string) => GuardOptions]>([
    ['in the process', (shared) => ({ verifier: shared })],
    ['by way of a sidecar', (_shared, address) => ({ url: address })],
  ])('several guards together cost the dearest, %s', async (_way, optionsOf) => {
    const options = optionsOf(verifier, fleet.verifiers[0]?.address ?? '');
    const app = await open(name, { ...options, cost: 3 });
    const ratelimit = { limit: 100, duration: 86_400_000 };
    const { key, keyId } = await fleet.ok('keys.createKey', {
      apiId: 'shop',
      remaining: 100,
      ratelimit,
      permissions: ['a'],
    });
    const ask = async (path: string) => {
      const { status, body } = await send(app.address + path, bearer(key));
      const { apiKey } = status === 200 ? JSON.parse(body) : { apiKey: undefined };
      return { status, credits: apiKey?.remaining, uses: apiKey?.ratelimit.remaining };
    };
    await fleet.until(async () => (await ask('/orders')).status === 200);
    const first = await ask('/orders');
    const later = (requests: number, credits: number) => ({
      status: 200,
      credits: first.credits - credits,
      uses: first.uses - requests,
    });
    expect(await ask('/guarded/same')).toEqual(later(1, 3));
    expect(await ask('/guarded/dearer')).toEqual(later(2, 13));
    expect(await ask('/guarded/permitted')).toEqual(later(3, 16));
    expect(await ask('/orders')).toEqual(later(4, 19));
    await fleet.ok('keys.removePermissions', { keyId, permissions: ['a'] });
    expect(await ask('/guarded/permitted')).toMatchObject({ status: 403 });
    expect(await ask('/orders')).toEqual(later(6, 25));
  });

  test('tells a rate limit as /authz does', async () => {
    const app = await open(name);
    const ratelimit = { limit: 2, duration: 3_600_000 };
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', ratelimit });
    const ask = () => send(`${app.address}/orders`, bearer(key));
    await fleet.until(async () => (await ask()).status === 429);
    const wanted = await send(`${fleet.verifiers[0]?.address}/authz/api/shop/forward-auth`, bearer(key));
    const shown = ({ status, headers }: Answer) => ({
      status,
      policy: headers['ratelimit-policy'],
      limit: String(headers['ratelimit']).replace(/t=\d+/, 't=…'),
    });
    expect(shown(await ask())).toEqual(shown(wanted));
    expect(shown(wanted)).toEqual({
      status: 429,
      policy: '"default";q=2;w=3600',
      limit: '"default";r=0;t=…',
    });
    const seconds = Number((await ask()).headers['retry-after']);
    expect(seconds).toBeGreaterThan(0);
    expect(seconds).toBeLessThanOrEqual(3600);
  });

  test('a cost may depend on the request', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 10 });
    let asked = 0;
    let cost: () => unknown = () => 3;
    const app = await open(name, {
      cost: () => {
        asked++;
        return cost() as number;
      },
    });
    expect((await send(`${app.address}/orders`)).status).toBe(401);
    expect(asked).toBe(0);
    await fleet.until(async () => (await send(`${app.address}/orders`, bearer(key))).status === 200);
    const { body } = await send(`${app.address}/orders`, bearer(key));
    expect(JSON.parse(body).apiKey.remaining).toBe(4);
    const handled = app.handled();
    for (const wrong of [
      () => {
        throw new Error('no cost');
      },
      () => Number.NaN,
      () => -1,
      () => undefined,
      () => Promise.resolve(1),
    ]) {
      cost = wrong;
      expect((await send(`${app.address}/orders`, bearer(key))).status, String(wrong)).toBe(500);
    }
    expect(app.handled()).toBe(handled);
  });

  test('does the same by a sidecar, and 503 without', async () => {
    const sidecar = await fleet.addVerifier({ LOOKUP_WAIT_MS: '5000' });
    const app = await open(name, { url: sidecar.address });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    await fleet.until(async () => (await send(`${app.address}/orders`, bearer(key))).status === 200);
    await sidecar.stop();
    expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(503);
    expect(app.handled()).toBe(1);
  });

  test('a hang-up during a look-up harms nobody', async () => {
    const asked = Promise.withResolvers<void>();
    const verdict = Promise.withResolvers<unknown>();
    const verify = () => {
      asked.resolve();
      return verdict.promise;
    };
    const app = await open(name, { verifier: { decide: () => undefined, verify } as object as KeyVerifier });
    const hanging = ask(`${app.address}/orders`, { headers: { authorization: 'Bearer a' } });
    hanging.on('error', () => undefined).end();
    await asked.promise;
    hanging.destroy();
    verdict.resolve({ valid: false, code: 'DISABLED' });
    expect((await send(`${app.address}/open`)).status).toBe(200);
    expect(app.handled()).toBe(0);
  });

  test('asks for permissions and refuses with 403', async () => {
    const app = await open(name, { permissions: 'a AND b', cost: () => 0 });
    for (const [apiId, permissions, code] of [
      ['shop', ['a', 'b'], 'VALID'],
      ['shop', ['a'], 'INSUFFICIENT_PERMISSIONS'],
      ['other', ['a', 'b'], 'FORBIDDEN'],
    ] as const) {
      const { key } = await fleet.ok('keys.createKey', { apiId, permissions });
      const { status, body } = await send(`${app.address}/orders`, bearer(key));
      expect(status).toBe(code === 'VALID' ? 200 : 403);
      expect(status === 200 ? JSON.parse(body).apiKey : JSON.parse(body)).toMatchObject({ code });
    }
  });

  test.each<[object, RegExp]>([
    [{ verifier: undefined }, /verifier, url, unixSocket: set exactly one of them/],
    [{ verifier: {} }, /verifier: must come from createVerifier or createClient/],
    [{ url: 'nonsense' }, /url: is not a valid URL/],
    [{ apiId: undefined }, /apiId: must match/],
    [{ apiId: '' }, /apiId: must match/],
    [{ sources: [] }, /sources: must be an array of bearer, x-api-key, query/],
    [{ sources: ['cookie'] }, /sources: must be an array/],
    [{ permissions: ['read'] }, /permissions: must be a permission/],
    [{ permissions: undefined }, /permissions: must be a permission/],
    [{ roles: ['read'] }, /roles: unknown option/],
    [{ cost: undefined }, /cost: must be a whole number from 0 to 1000000000000, or a function/],
    [{ cost: -1 }, /cost: must be a whole number/],
    [{ cost: 1.5 }, /cost: must be a whole number/],
    [{ cost: '2' }, /cost: must be a whole number/],
  ])('wrong options stop the start: %j', async (options, message) => {
    await expect(open(name, options)).rejects.toThrow(message);
  });
});

describe('fastify', () => {
  test('a route has a cost of its own', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1000 });
    const app = Fastify();
    await app.register(fastifyGuard, { verifier, apiId: 'shop', cost: 2 });
    const left = ({ apiKey }: FastifyRequest) => apiKey?.remaining;
    app.get('/plain', left);
    app.get('/dear', { config: { apiKey: { cost: 100 } } }, left);
    const cost = ({ query }: FastifyRequest) => Number((query as { pages?: string }).pages);
    app.get('/pages', { config: { apiKey: { cost } } }, left);
    const headers = { authorization: `Bearer ${key}` };
    const ask = async (url: string) => (await app.inject({ url, headers })).body;
    await fleet.until(async () => (await ask('/plain')) === '998');
    expect(await ask('/dear')).toBe('898');
    expect(await ask('/pages?pages=7')).toBe('891');
    await app.close();
  });

  test("tells clients the request's id in its own log", async () => {
    const lines: Record<string, unknown>[] = [];
    const stream = { write: (line: string) => void lines.push(JSON.parse(line)) };
    const app = Fastify({ logger: { stream }, requestIdHeader: 'x-request-id' });
    await app.register(fastifyGuard, { verifier, apiId: 'shop' });
    app.get('/', () => 'ok');
    for (const [sent, told] of [
      [undefined, /^req-/],
      ['mine:1', /^mine:1$/],
    ] as const) {
      const response = await app.inject({
        url: '/',
        headers: sent === undefined ? {} : { 'x-request-id': sent },
      });
      expect(response.json().requestId).toMatch(told);
      expect(lines.filter(({ reqId }) => reqId === response.json().requestId).length).toBeGreaterThan(0);
      expect(response.headers['x-request-id']).toBe(response.json().requestId);
    }
    await app.close();
  });

  test('stops the start in a plugin without routes', async () => {
    const guarding = (app: FastifyInstance) => app.register(fastifyGuard, { verifier, apiId: 'shop' });
    const alone = Fastify();
    alone.get('/before', () => 'reached');
    alone.register((part, _options, done) => {
      guarding(part);
      done();
    });
    alone.get('/orders', () => 'reached');
    await expect(async () => await alone.ready()).rejects.toThrow(/fastify-plugin/);
    await alone.close();
    for (const app of [Fastify(), Fastify({ disableRequestLogging: true, exposeHeadRoutes: false })]) {
      app.get('/free', () => 'free');
      app.register(async (part) => {
        part.get('/mine', () => 'reached');
        await guarding(part);
      });
      app.register(async (part) => {
        await guarding(part);
        await part.register(async (child) => void child.get('/childs', () => 'reached'), { prefix: '/deep' });
      });
      // An application may have no routes, only what its guard answers.
      await app.ready();
      for (const url of ['/mine', '/deep/childs']) expect((await app.inject(url)).statusCode, url).toBe(401);
      await app.close();
    }
    const empty = Fastify();
    await guarding(empty);
    await empty.ready();
    expect((await empty.inject('/')).statusCode).toBe(401);
    await empty.close();
  });

  test('a route has rules, and wrong ones stop it', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'other' });
    const app = Fastify();
    await app.register(fastifyGuard, { verifier, apiId: 'shop' });
    app.get('/other', { config: { apiKey: { apiId: 'other', sources: ['x-api-key'] } } }, () => 'ok');
    app.get('/shop', () => 'ok');
    for (const rules of [true, null, 0, '', { apiID: 'shop' }, { apiId: '' }, []]) {
      const config = { apiKey: rules as false };
      expect(() => app.get(`/${JSON.stringify(rules)}`, { config }, () => 'ok'), String(rules)).toThrow(
        TypeError,
      );
    }
    const status = async (url: string, headers: Record<string, string>) =>
      (await app.inject({ url, headers })).statusCode;
    expect(await status('/other', { 'x-api-key': key })).toBe(200);
    expect(await status('/other', { authorization: `Bearer ${key}` })).toBe(401);
    expect(await status('/shop', { 'x-api-key': key })).toBe(403);
    await app.close();
  });

  test.each<[string, (app: FastifyInstance, routes: (at: FastifyInstance) => void) => unknown]>([
    [
      'after it',
      async (app, routes) => {
        await app.register(fastifyGuard, { verifier, apiId: 'shop' });
        routes(app);
      },
    ],
    [
      'before it is loaded',
      (app, routes) => {
        app.register(fastifyGuard, { verifier, apiId: 'shop' });
        routes(app);
      },
    ],
    [
      'before it',
      async (app, routes) => {
        routes(app);
        await app.register(fastifyGuard, { verifier, apiId: 'shop' });
      },
    ],
    [
      'in a plugin of its own',
      async (app, routes) => {
        await app.register(fastifyGuard, { verifier, apiId: 'shop' });
        await app.register(async (part) => routes(part));
      },
    ],
    [
      'in the plugin that registers it',
      (app, routes) =>
        app.register(async (part) => {
          part.register(fastifyGuard, { verifier, apiId: 'shop' });
          routes(part);
        }),
    ],
  ])('rules hold where the route is registered %s', async (_where, build) => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'other' });
    const app = Fastify();
    await build(app, (at) => {
      at.get('/other', { config: { apiKey: { apiId: 'other' } } }, () => 'ok');
      at.get('/free', { config: { apiKey: false } }, () => 'ok');
      at.get('/shop', () => 'ok');
    });
    const headers = { authorization: `Bearer ${key}` };
    const statusOf = async (url: string) => (await app.inject({ url, headers })).statusCode;
    expect([await statusOf('/other'), await statusOf('/free'), await statusOf('/shop')]).toEqual([
      200, 200, 403,
    ]);
    expect((await app.inject('/other')).statusCode).toBe(401);
    await app.close();
  });

  test('guards all of its scope and no more', async () => {
    const app = Fastify();
    app.get('/free', () => 'free');
    await app.register((scope, _none, done) => {
      scope.get('/scope/before', () => 'reached');
      scope.register(fastifyGuard, { verifier, apiId: 'shop' });
      scope.register(
        (child, _options, ready) => {
          child.get('/scope/child', () => 'reached');
          child.setNotFoundHandler((_request, reply) => void reply.send('reached'));
          ready();
        },
        { prefix: '/scope/deeper' },
      );
      done();
    });
    await app.ready();
    for (const url of ['/scope/before', '/scope/deeper/scope/child', '/scope/deeper/none'])
      expect((await app.inject(url)).statusCode, url).toBe(401);
    expect((await app.inject('/free')).body).toBe('free');
    await app.close();
  });

  test('is refused behind plugins with routes', async () => {
    const app = Fastify();
    await app.register((early, _options, done) => {
      early.get('/early', () => 'reached');
      done();
    });
    await expect(async () => await app.register(fastifyGuard, { verifier, apiId: 'shop' })).rejects.toThrow(
      /keyfence must be registered before the plugins/,
    );
  });
});

// The last, because it takes Redis away.
test('without Redis known keys pass for their lease', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const all = await Promise.all(names.map((name) => open(name)));
  for (const app of all) expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(200);
  await fleet.redis.stop();
  await fleet.until(() => verifier.decide(key) === undefined);
  for (const app of all) {
    const handled = app.handled();
    const { status, headers } = await send(`${app.address}/orders`, bearer(key));
    expect({ status, retry: headers['retry-after'] }).toEqual({ status: 503, retry: '1' });
    expect(app.handled()).toBe(handled);
  }
  await fleet.startRedis();
  for (const app of all)
    await fleet.until(async () => (await send(`${app.address}/orders`, bearer(key))).status === 200);
});
