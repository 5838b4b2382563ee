import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateKey } from '../../shared/rules/key-format.ts';
import { describeGateways } from './gateways.ts';
import { API_ID, showing, World } from './world.ts';

const LIMIT = 3;
let worlds: Awaited<ReturnType<typeof World.withAddresses>>;
beforeAll(async () => {
  worlds = await World.withAddresses({ ANONYMOUS_LIMIT: `${LIMIT}/3600000` }, true);
});
afterAll(() => worlds.stop());

let address = 10;
describeGateways((name) => {
  let world: World;
  let key: string;
  beforeAll(async () => {
    world = worlds.of(name);
    ({ key } = await world.fleet.ok('keys.createKey', { apiId: API_ID }));
  });
  const ask = async (headers: readonly string[], path = '/', localAddress = '127.0.0.7') => {
    const { status, headers: answered } = await world.decided(name, { headers, path, localAddress });
    return { status, answered, seen: world.upstream.take() };
  };

  test('who shows no key passes as nobody', async () => {
    const forged = [
      'X-Key-Id',
      'boss',
      'X-Key-Name',
      'boss',
      'X-Key-Meta',
      '{"boss":1}',
      'X-Client-IP',
      '192.0.2.1',
    ];
    const { status, seen } = await ask(forged, '/', `127.0.0.${address++}`);
    expect([status, seen.length]).toEqual([200, 1]);
    expect(JSON.stringify(seen)).not.toContain('boss');
    expect(seen[0]?.headers['x-key-id'] ?? '').toBe('');
  });

  test('who shows a wrong key does not', async () => {
    for (const headers of [
      showing(generateKey(16)).headers,
      ['X-Api-Key', 'no key of ours'],
      ['X-Api-Key', key, 'Authorization', 'Bearer other'],
    ])
      expect(await ask(headers)).toMatchObject({ status: 401, seen: [] });
    const { status, seen } = await ask(showing(key).headers);
    expect([status, seen[0]?.headers['x-key-id']]).toEqual([200, expect.stringMatching(/^key_/)]);
  });

  test('another route still needs a key', async () => {
    expect(await ask([], '/reports')).toMatchObject({ status: 401, seen: [] });
  });

  test('an address has a limit, whatever it says', async () => {
    const own = `127.0.0.${address++}`;
    const claims = (i: number) => ['X-Client-IP', `192.0.2.${i}`, 'X-Forwarded-For', `192.0.2.${i}`];
    for (let i = 0; i < LIMIT; i++) expect((await ask(claims(i), '/', own)).status).toBe(200);
    const { status, answered, seen } = await ask(claims(9), '/', own);
    expect({ status, seen }).toEqual({ status: 429, seen: [] });
    expect(Number(answered['retry-after'])).toBeGreaterThan(0);
    expect(answered['ratelimit']).toMatch(/^"anonymous";r=0;t=\d+$/);
    expect(answered['ratelimit-policy']).toBe(`"anonymous";q=${LIMIT};w=3600`);
    expect((await ask(showing(key).headers, '/', own)).status).toBe(200);
    expect((await ask([], '/', `127.0.0.${address++}`)).status).toBe(200);
  });
});
