import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeGateways } from './gateways.ts';
import { showing, World } from './world.ts';

const PREFLIGHT = ['Origin', 'https://app.example', 'Access-Control-Request-Method', 'PUT'];
/** Headers by which other gateways would say what the client asked for. */
const CLAIMS = (method: string, uri: string) =>
  ['X-Original-Method', 'X-Forwarded-Method']
    .flatMap((name) => [name, method])
    .concat(['X-Original-URI', 'X-Forwarded-Uri'].flatMap((name) => [name, uri]));

let world: World;
let key: string;
beforeAll(async () => {
  world = await World.start({
    CORS_PREFLIGHT: 'allow',
    CREDENTIAL_SOURCES: 'bearer,x-api-key,query',
    AUTHZ_META: 'true',
  });
  ({ key } = await world.validKey({ meta: { plan: 'größer' } }));
});
afterAll(() => world.stop());

describeGateways((name, kind) => {
  const ask = async (asked: { method?: string; path?: string; headers?: readonly string[] }) => {
    const { status } = await world.decided(name, asked);
    return { status, seen: world.upstream.take() };
  };

  test('a preflight passes nameless, without a key', async () => {
    const spoofed = ['X-Key-Id', 'key_boss', 'X-Key-Name', 'boss'];
    const { status, seen } = await ask({ method: 'OPTIONS', headers: [...PREFLIGHT, ...spoofed] });
    expect(status).toBe(200);
    expect(seen).toMatchObject([{ method: 'OPTIONS' }]);
    expect(JSON.stringify(seen)).not.toContain('boss');
  });

  test('refuses false claims of a preflight or key', async () => {
    for (const headers of [[...PREFLIGHT, ...CLAIMS('OPTIONS', '/')], CLAIMS('GET', `/?api_key=${key}`)])
      expect(await ask({ headers })).toEqual({ status: 401, seen: [] });
  });

  test('a key in the query counts, and only alone', async () => {
    const path = `/orders?api_key=${key}`;
    const { status, seen } = await ask({ path });
    const passed = name === 'envoy-grpc' ? '/orders' : path;
    expect({ status, url: seen[0]?.url }).toEqual({ status: 200, url: passed });
    expect(await ask({ path: `${path}&api_key=${key}` })).toEqual({ status: 401, seen: [] });
    expect(await ask({ path, headers: ['X-Api-Key', 'another'] })).toEqual({ status: 401, seen: [] });
  });

  test("the API learns the key's meta where the configuration passes it, and never a client's", async () => {
    const { headers } = showing(key);
    const { seen } = await ask({ headers: [...headers, 'X-Key-Meta', '{"plan":"boss"}'] });
    const wanted = ['caddy', 'envoy'].includes(kind) ? undefined : ['{"plan":"gr\\u00f6\\u00dfer"}'];
    expect(seen[0]?.headersDistinct['x-key-meta']).toEqual(wanted);
  });
});
