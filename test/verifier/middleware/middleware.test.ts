import { request as ask } from 'node:http';
import Fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../../shared/key-format.ts';
import type { KeyVerifier } from '../../../verifier/library/key-verifier.ts';
import { createVerifier } from '../../../verifier/library/verifier.ts';
import { keyfence as fastifyGuard } from '../../../verifier/middleware/fastify.ts';
import type { GuardOptions } from '../../../verifier/middleware/guard-options.ts';
import { Fleet } from '../../harness/fleet.ts';
import { type App, FRAMEWORKS } from './apps.ts';

const names = ['fastify', 'express', 'hono'] as const;
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
  test('lets a good key pass and tells the handler whose it is; every refusal is what /authz answers', async () => {
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
      expect(answer.headers['x-request-id']).toBe('mine');
      expect(JSON.parse(answer.body).requestId).toBe('mine');
    }
    for (const method of ['HEAD', 'OPTIONS', 'POST', 'DELETE'])
      expect((await send(`${app.address}/orders`, [], method)).status).toBe(401);
    for (const path of ['/none', '/sub/none', '/%zz', '//orders', '/orders?api_key=x'])
      expect((await send(app.address + path)).status, path).toBeOneOf([400, 401]);
    expect((await send(`${app.address}/orders?api_key=${key}`)).status).toBe(401);
    expect(app.handled()).toBe(before);
    expect((await send(`${app.address}/open`)).body).toBe('open');
  });

  test("hides the client's own words for whose key it is, and leaves errors of handlers to the framework", async () => {
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

  test('the query is a source only where it is said to be', async () => {
    const app = await open(name, { sources: ['query'] });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    expect((await send(`${app.address}/orders?api_key=${key}`)).status).toBe(200);
    expect((await send(`${app.address}/sub/orders?a=1&api_key=${key}`)).status).toBe(200);
    expect((await send(`${app.address}/orders?api_key=${key}&api_key=${key}`)).status).toBe(401);
    expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(401);
  });

  test('after updateKey returned complete no handler runs for the key, while requests go on', async () => {
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

  test('by way of a sidecar the same; 503 when it is gone', async () => {
    const sidecar = await fleet.addVerifier({ LOOKUP_WAIT_MS: '5000' });
    const app = await open(name, { url: sidecar.address });
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    await fleet.until(async () => (await send(`${app.address}/orders`, bearer(key))).status === 200);
    await sidecar.stop();
    expect((await send(`${app.address}/orders`, bearer(key))).status).toBe(503);
    expect(app.handled()).toBe(1);
  });

  test('a client that hangs up during a look-up harms nobody', async () => {
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

  test.each<[object, RegExp]>([
    [{ verifier: undefined }, /verifier, url, unixSocket: give one of them/],
    [{ verifier: {} }, /verifier: must be one of createVerifier or createClient/],
    [{ url: 'nonsense' }, /url: not such a URL/],
    [{ apiId: undefined }, /apiId: must match/],
    [{ apiId: '' }, /apiId: must match/],
    [{ sources: [] }, /sources: must be an array of bearer, x-api-key, query/],
    [{ sources: ['cookie'] }, /sources: must be an array/],
    [{ permissions: ['read'] }, /permissions: unknown option/],
  ])('wrong options stop the start: %j', async (options, message) => {
    await expect(open(name, options)).rejects.toThrow(message);
  });
});

describe('fastify', () => {
  test('a route may have rules of its own; wrong ones stop the start', async () => {
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
  ])('rules of a route hold where it is registered %s', async (_where, build) => {
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

  test('guards routes of the same instance that came before it, children, 404 handlers, and no more than its scope', async () => {
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

  test('is refused behind plugins with routes, which it could not guard', async () => {
    const app = Fastify();
    await app.register((early, _options, done) => {
      early.get('/early', () => 'reached');
      done();
    });
    await expect(async () => await app.register(fastifyGuard, { verifier, apiId: 'shop' })).rejects.toThrow(
      /keyfence comes before the plugins/,
    );
  });
});

// The last, because it takes Redis away.
test('with Redis gone a known key is answered until its lease is over, then 503 in every framework', async () => {
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
});
