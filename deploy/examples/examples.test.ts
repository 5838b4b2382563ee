// Tests of the examples, without Redis: `node --test examples.test.ts`.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { createTestVerifier } from 'keyfence/testing';

const FILES = process.env['EXAMPLES'] ?? 'express.ts,fastify.ts,hono.ts,koa.ts,fetch.ts,http.ts';
for (const file of FILES.split(',')) {
  test(`${file}: only a valid key gets orders, and reports take its credits`, async () => {
    const { createServer } = await import(`./${file}`);
    const verifier = createTestVerifier({ good: { keyId: 'key_1', remaining: 10 }, bad: 'disabled' });
    const server: Server = await createServer(verifier);
    after(() => server.close().closeAllConnections());
    await once(server.listen(0), 'listening');
    const get = async (path: string, key?: string) =>
      fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, {
        headers: key === undefined ? {} : { Authorization: `Bearer ${key}` },
      });

    assert.equal(await (await get('/health')).text(), 'ok');
    assert.equal((await get('/orders')).status, 401);
    assert.equal((await get('/orders', 'bad')).status, 401);
    const orders = await get('/orders', 'good');
    assert.deepEqual(await orders.json(), { orders: [], of: 'key_1' });
    assert.equal(orders.headers.get('ratelimit'), '"credits";r=9');
    assert.equal(((await (await get('/reports/5', 'good')).json()) as { remaining: number }).remaining, 4);
    assert.equal((await get('/reports/5', 'good')).status, 429);
    verifier.set('good', 'unavailable');
    assert.equal((await get('/orders', 'good')).status, 503);
  });
}
