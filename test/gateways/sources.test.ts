import { globSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { describeGateways, shipped } from './gateways.ts';
import { World } from './world.ts';

const basic = (text: string) => ['Authorization', `Basic ${Buffer.from(text).toString('base64')}`];
const OWN = ['X-Api-Key', "the API's own"];
/** Sources, a request's headers with a key, the API's own headers, and headers with two keys. */
const VARIANTS: readonly [
  sources: string,
  showing: (key: string) => readonly string[],
  own: readonly string[],
  twice: (key: string) => readonly (readonly string[])[],
][] = [
  [
    'bearer',
    (key) => ['Authorization', `Bearer ${key}`],
    OWN,
    (key) => [['Authorization', `Bearer ${key}`, 'Authorization', 'Bearer other']],
  ],
  [
    'x-api-key',
    (key) => ['X-Api-Key', key],
    ['Authorization', "Bearer the.API's.own"],
    (key) => [['X-Api-Key', `${key}, ${key}`]],
  ],
  [
    'bearer,header:apikey',
    (key) => ['ApiKey', key],
    OWN,
    (key) => [
      ['ApiKey', key, 'Authorization', 'Bearer other'],
      ['ApiKey', 'other', 'Authorization', `Bearer ${key}`],
      ['ApiKey', 'other', 'apikey', key],
    ],
  ],
  [
    'basic',
    (key) => basic(`:${key}`),
    OWN,
    (key) => [
      basic(`${key}:other`),
      basic(`other:${key}`),
      [...basic(`${key}:`), ...basic(`${key}:`)],
      ['Authorization', `Basic ${key}`],
    ],
  ],
  [
    'header:apikey,cookie:apikey',
    (key) => ['Cookie', `apikey=${key}`],
    OWN,
    (key) => [
      ['Cookie', `apikey=${key}; apikey=other`],
      ['Cookie', `apikey=other;apikey=${key}`],
      ['Cookie', `apikey=${key}; apikey=${key}`],
      ['Cookie', 'apikey=other', 'Cookie', `apikey=${key}`],
      ['Cookie', `apikey=${key}`, 'apikey', 'other'],
    ],
  ],
];

describe.each(VARIANTS)('where keys come by %s', (sources, showing, own, twice) => {
  let world: World;
  let key: string;
  beforeAll(async () => {
    world = await World.start({ CREDENTIAL_SOURCES: sources });
    ({ key } = await world.fleet.ok('keys.createKey', { apiId: world.around.API_ID }));
  });
  afterAll(() => world.stop());
  const name = own[0]?.toLowerCase() ?? '';

  describeGateways((gateway) => {
    // Traefik has no lines for cookies: README.
    const isAble = gateway !== 'traefik' || !sources.includes('cookie');
    test.runIf(isAble)(`${name} is the API's own: it reaches the API, and the key does not`, async () => {
      const { status } = await world.decided(gateway, { headers: [...showing(key), ...own] });
      const [seen] = world.upstream.take();
      expect({ status, own: seen?.headersDistinct[name] }).toEqual({ status: 200, own: [own[1]] });
      const all = JSON.stringify(seen?.headersDistinct);
      for (const secret of [key, showing(key)[1]]) expect(all).not.toContain(secret);
      expect((await world.decided(gateway, { headers: own })).status).toBe(401);
      expect(world.upstream.take()).toEqual([]);
    });

    test('two keys are refused', async () => {
      for (const headers of twice(key)) {
        const { status } = await world.decided(gateway, { headers });
        expect([headers, 400 <= status && status < 402]).toEqual([headers, true]);
        expect(world.upstream.take()).toEqual([]);
      }
    });

    test.runIf(isAble && sources.includes('cookie'))('other cookies reach the API', async () => {
      for (const cookies of [
        `apikey=${key}; a=1;b=2`,
        `a=1; apikey = ${key}; b=2`,
        `a=1;b=2; apikey=${key}`,
      ]) {
        expect((await world.decided(gateway, { headers: ['Cookie', cookies] })).status).toBe(200);
        const [seen] = world.upstream.take();
        expect(seen?.headers.cookie?.split(/;\s*/).filter(Boolean)).toEqual(['a=1', 'b=2']);
      }
      const { status } = await world.decided(gateway, { headers: ['ApiKey', key, 'Cookie', 'a=1; b=2'] });
      expect(status).toBe(200);
      expect(world.upstream.take()[0]?.headers.cookie).toBe('a=1; b=2');
    });
  });
});

const FOLDER = join(import.meta.dirname, '..', '..', 'deploy', 'gateways');
test.each(globSync('*/*.yaml', { cwd: FOLDER }))('%s carries and removes another header', (file) => {
  const changed = shipped(file, { CREDENTIAL_SOURCES: 'basic,header:apikey', OPTIONAL: '' });
  for (const { errors } of parseAllDocuments(changed)) expect(errors).toEqual([]);
  const before = shipped(file, { CREDENTIAL_SOURCES: 'bearer,x-api-key', OPTIONAL: '' });
  const count = (text: string, name: RegExp) => text.match(name)?.length ?? 0;
  expect(count(changed, /\bapikey\b/gi)).toBe(count(before, /\bx-api-key\b/gi));
  expect(changed).not.toMatch(/x-api-key/i);
  const removes = /^ +(?:- authorization|Authorization: ""|if authorization:find).*$/gim;
  expect(count(changed, removes)).toBe(count(before, removes));
  const isOverGrpc = ['envoy-gateway.yaml', 'kgateway.yaml'].includes(basename(file));
  if (!isOverGrpc && !/mesh-config|policy|traefik\.yaml/.test(file))
    expect(count(changed, removes)).toBeGreaterThan(0);
});
