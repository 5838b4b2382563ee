import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Ask, describeGateways } from './gateways.ts';
import { API_ID, showing, World } from './world.ts';

let world: World;
let key: string;
beforeAll(async () => {
  world = await World.start();
  const input = { apiId: API_ID, allowedOrigins: ['https://app.example.com', 'https://*.shop.example'] };
  key = (await world.fleet.ok('keys.createKey', input)).key;
});
afterAll(() => world.stop());

const GOOD = 'https://app.example.com';
const BAD = 'https://evil.example';

describeGateways((name) => {
  const statusOf = async (...headers: string[]) => {
    const asked: Ask = { headers: [...showing(key).headers, ...headers] };
    const { status } = await world.decided(name, asked);
    const passed = world.upstream.take().length;
    expect(passed).toBe(status === 200 ? 1 : 0);
    return status;
  };

  test('a key is accepted from its web pages only', async () => {
    for (const headers of [
      ['Origin', GOOD],
      ['origin', 'https://a.b.shop.example'],
      ['Referer', `${GOOD}/orders?next=1`],
      ['Origin', GOOD, 'Referer', `${BAD}/`],
    ])
      expect([headers, await statusOf(...headers)]).toEqual([headers, 200]);
    for (const headers of [
      [],
      ['Origin', BAD],
      ['Origin', 'null', 'Referer', `${GOOD}/`],
      ['Origin', BAD, 'Referer', `${GOOD}/`],
      ['Origin', `${BAD}, ${GOOD}`],
      ['Origin', `${GOOD}.evil.example`],
      ['Referer', `${BAD}/${GOOD}`],
      ['Referer', GOOD.slice(8)],
    ])
      expect([headers, await statusOf(...headers)]).toEqual([headers, 403]);
  });
});
