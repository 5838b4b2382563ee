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
    AUTHZ_TOKEN: 'true',
    TOKEN_KEY: 'a secret of tokens, long enough for all',
  });
  ({ key } = await world.validKey({ meta: { plan: 'größer' } }));
  await world.fleet.ok('apis.updateApi', { apiId: world.around.API_ID, tokens: true });
  const issue = () => world.fleet.post(`http://${world.around.VERIFIER}/v1/keys.issueToken`, { key });
  await world.fleet.until(async () => (await issue()).status === 200);
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

  test("the API learns the key's meta and a token where the configuration passes them, and never a client's", async () => {
    const { headers } = showing(key);
    const { seen } = await ask({
      headers: [...headers, 'X-Key-Meta', '{"plan":"boss"}', 'X-Key-Token', 'boss'],
    });
    const isBare = ['caddy', 'envoy'].includes(kind);
    const { 'x-key-meta': meta, 'x-key-token': token } = seen[0]?.headersDistinct ?? {};
    expect(meta).toEqual(isBare ? undefined : ['{"plan":"gr\\u00f6\\u00dfer"}']);
    expect(token).toEqual(isBare ? undefined : [expect.stringMatching(/^ey[\w-]+\.[\w-]+\.[\w-]+$/)]);
  });
});
