import { connect, constants, createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { expect, test } from 'vitest';
import { keyfence as fastifyGuard } from '../../../../verifier/library/guards/fastify.ts';
import { keyfence as honoGuard } from '../../../../verifier/library/guards/hono.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { createTestVerifier } from '../../../../verifier/library/test-verifier.ts';
import { eventually } from '../../../harness/waiting.ts';

/** All that a handler behind the guard may see of a request's headers. */
type Handler = (request: { headers: unknown; rawHeaders: unknown }) => object;

const verifier = {
  decide: (key: string) => ({ valid: true, code: 'VALID', keyId: key }),
  verify: () => Promise.reject(new Error('memory has decided')),
} as object as KeyVerifier;

/** The same application over HTTP/2; where it listens, and what closes it. */
const SERVERS: Readonly<
  Record<'fastify' | 'hono', (handler: Handler) => Promise<readonly [number, () => unknown]>>
> = {
  async fastify(handler) {
    const app = Fastify({ http2: true });
    await app.register(fastifyGuard, { verifier, apiId: '*' });
    app.get('/', ({ headers, raw }) => ({ headers, raw: handler(raw) }));
    const address = await app.listen({ port: 0, host: '127.0.0.1' });
    return [Number(new URL(address).port), () => app.close()];
  },
  async hono(handler) {
    const app = new Hono<{ Bindings: { incoming: Parameters<Handler>[0] } }>();
    app.use(honoGuard({ verifier, apiId: '*' }));
    app.get('/', ({ req, json, env }) => json({ headers: req.header(), raw: handler(env.incoming) }));
    const server = serve({ fetch: app.fetch, createServer, port: 0, hostname: '127.0.0.1' });
    await new Promise((resolve) => server.once('listening', resolve));
    return [(server.address() as AddressInfo).port, () => server.close()];
  },
};

test.each(['fastify', 'hono'] as const)(
  "%s over HTTP/2: the client's own X-Key-* reach no handler by any way, and two keys are none",
  async (name) => {
    const [port, close] = await SERVERS[name](({ headers, rawHeaders }) => ({ headers, rawHeaders }));
    const client = connect(`http://127.0.0.1:${port}`);
    const ask = (headers: Record<string, string | string[]>) =>
      new Promise<{ status: unknown; body: string }>((resolve, reject) => {
        const stream = client.request({ ':path': '/', ...headers });
        let [status, body]: [unknown, string] = [undefined, ''];
        stream.on('response', (answer) => {
          status = answer[':status'];
        });
        stream.on('data', (chunk) => {
          body += chunk;
        });
        stream.on('error', reject).on('end', () => resolve({ status, body }));
        stream.end();
      });
    const { status, body } = await ask({
      authorization: 'Bearer a',
      'x-key-id': 'forged',
      x_key_name: 'forged',
      'x-keys': 'stays',
    });
    expect(status, body).toBe(200);
    expect(body).not.toContain('forged');
    expect(body).toContain('stays');
    expect((await ask({ authorization: 'Bearer a', 'x-api-key': ['a', 'a'] })).status).toBe(401);
    expect((await ask({ 'x-key-id': 'forged' })).status).toBe(401);
    client.close();
    await close();
  },
);

test('a client of HTTP/2 that cancels has left', async () => {
  const verifier = createTestVerifier({ k: { remaining: 100 } });
  const app = Fastify({ http2: true });
  await app.register(fastifyGuard, { verifier, apiId: '*', reserve: 10 });
  app.get('/:end', ({ apiKey, params }, reply) => {
    apiKey.charge(3);
    reply.hijack().raw.writeHead(200);
    reply.raw.write('first');
    const { end } = params as { end: string };
    if (end === 'whole') reply.raw.end();
    if (end === 'breaks') setImmediate(() => reply.raw.destroy());
  });
  const client = connect(await app.listen({ port: 0, host: '127.0.0.1' }));
  let rest = 100;
  for (const [end, cost] of [
    ['whole', 3],
    ['breaks', 3],
    ['cancelled', 10],
  ] as const) {
    const stream = client.request({ ':path': `/${end}`, 'x-api-key': 'k' }).on('error', () => undefined);
    stream.once('data', () => end === 'cancelled' && stream.close(constants.NGHTTP2_CANCEL));
    rest -= cost;
    await eventually(() => {
      const verdict = verifier.decide('k', { remaining: { cost: 0 } });
      return verdict !== undefined && 'remaining' in verdict && verdict.remaining === rest;
    }, end);
  }
  client.close();
  await app.close();
});
