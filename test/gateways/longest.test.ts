import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { lacking } from '../harness/programs.ts';
import { COMPOSE, describeGateways, Gateway, type Got, gatewayNames } from './gateways.ts';
import { showing, World } from './world.ts';

/** The most that the contract allows: 256 characters, of which each is 12 when percent-encoded. */
const LONGEST = '\u{1F511}'.repeat(256);
const ENCODED = '%F0%9F%94%91'.repeat(256);
/** As long as `X-Key-Meta` may be, in ASCII. */
const META = { note: 'é'.repeat(339) };

let world: World;
let key: string;
let keyId: string;
let tokenLength: number;
beforeAll(async () => {
  const TOKEN_KEY = 'a secret of tokens, long enough for all';
  world = await World.start({ AUTHZ_META: 'true', AUTHZ_TOKEN: 'true', TOKEN_KEY });
  const permissions = ['a', 'b', 'c'].map((name) => name.repeat(50));
  ({ key, keyId } = await world.validKey({ name: LONGEST, externalId: LONGEST, meta: META, permissions }));
  await world.fleet.ok('apis.updateApi', { apiId: world.around.API_ID, tokens: true });
  const issue = () => world.fleet.post(`http://${world.around.VERIFIER}/v1/keys.issueToken`, { key });
  await world.fleet.until(async () => (await issue()).status === 200);
  tokenLength = (await issue()).body.token.length;
});
afterAll(() => world.stop());

/** Request as the API saw it. */
function identity(got: Got) {
  const seen = world.upstream.take();
  expect({ status: got.status, requests: seen.length }).toEqual({ status: 200, requests: 1 });
  expect(JSON.stringify(seen)).not.toContain('boss');
  const headers = seen[0]?.headersDistinct ?? {};
  const token = headers['x-key-token']?.[0] ?? '';
  return [
    ...['x-key-id', 'x-key-name', 'x-key-external-id', 'x-key-meta'].map((name) => headers[name]?.[0] ?? ''),
    token.length,
  ];
}

test('the test has the longest that there is', () => {
  const ascii = JSON.stringify(META).replaceAll('é', '\\u00e9');
  expect(ascii.length).toBeGreaterThan(2040);
  expect(ascii.length).toBeLessThanOrEqual(2048);
  expect(decodeURIComponent(ENCODED)).toBe(LONGEST);
  expect(tokenLength).toBeGreaterThan(2000);
  expect(tokenLength).toBeLessThanOrEqual(2048);
});

describeGateways((name, kind) => {
  test('the longest names, meta and token reach the API', async () => {
    const [id, ...rest] = identity(await world.decided(name, showing(key)));
    const isBare = ['caddy', 'envoy'].includes(kind);
    const meta = isBare ? '' : JSON.stringify(META).replaceAll('é', '\\u00e9');
    expect([id, ...rest]).toEqual([keyId, ENCODED, ENCODED, meta, isBare ? 0 : tokenLength]);
  });
});

const noNginx = lacking(gatewayNames.includes('nginx') ? [] : ['nginx']);

describe.skipIf(noNginx)(`the nginx of compose.yaml${noNginx}`, () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await Gateway.start(COMPOSE, world.fleet.directory, world.around);
  });
  afterAll(() => gateway.stop());

  test('passes on the longest names, and no claims', async () => {
    const spoofed = ['X_Key_Id', 'boss', 'X.Key.Id', 'boss', 'X-Key-Id', 'boss', 'X-Key-Meta', 'boss'];
    spoofed.push('X-Key-Token', 'boss');
    const got = await gateway.ask({ headers: [...showing(key).headers, ...spoofed] });
    expect(identity(got)).toEqual([keyId, ENCODED, ENCODED, '', 0]);
  });

  test('spent credits are 429, and no retry helps', async () => {
    const { key } = await world.fleet.ok('keys.createKey', { apiId: world.around.API_ID, remaining: 0 });
    let got = await gateway.ask(showing(key));
    await world.fleet.until(async () => {
      if (got.status !== 503) return true;
      got = await gateway.ask(showing(key));
      return false;
    }, 'no verdict');
    expect(got).toMatchObject({
      status: 429,
      headers: expect.not.objectContaining({ 'retry-after': expect.anything() }),
    });
    expect(world.upstream.take()).toEqual([]);
  });

  test('refuses what has no good key', async () => {
    expect((await gateway.ask()).status).toBe(401);
    expect((await gateway.ask(showing('nobody'))).status).toBe(401);
    expect(world.upstream.take()).toEqual([]);
  });
});
