import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Ask, describeGateways } from './gateways.ts';
import { API_ID, showing, World } from './world.ts';

/** Addresses of this machine, from which clients connect. */
const [INSIDE, OUTSIDE] = ['127.0.0.77', '127.0.0.99'];
let worlds: Awaited<ReturnType<typeof World.withAddresses>>;
beforeAll(async () => {
  worlds = await World.withAddresses({});
});
afterAll(() => worlds.stop());
const keyOf = async ({ fleet }: World): Promise<string> =>
  (await fleet.ok('keys.createKey', { apiId: API_ID, allowedIps: [INSIDE] })).key;

/** What a client may say of its address, in every way in which something on the way might believe it. */
const CLAIMS: readonly (readonly string[])[] = [
  ...['X-Client-IP', 'x-client-ip', 'X_Client_IP', 'X-Forwarded-For', 'X-Real-IP', 'True-Client-IP'].map(
    (name) => [name, INSIDE],
  ),
  ...[
    'CF-Connecting-IP',
    'X-Cluster-Client-IP',
    'Fastly-Client-IP',
    'Client-IP',
    'X-Envoy-External-Address',
  ].map((name) => [name, INSIDE]),
  ['Forwarded', `for=${INSIDE}`],
  ['Forwarded', `for="${INSIDE}:1";by=${INSIDE}`],
  ['X-Forwarded-For', `${INSIDE}, ${INSIDE}`],
  ['X-Forwarded-For', `${INSIDE}, ${OUTSIDE}`, 'X-Forwarded-For', INSIDE],
  ['X-Client-IP', OUTSIDE, 'X-Client-IP', INSIDE],
  ['X-Client-IP', INSIDE, 'X-Client-IP', INSIDE],
  ['X-Client-IP', `::ffff:${INSIDE}`],
  ['X-Client-IP', `${INSIDE}, ${INSIDE}`],
  ['X-Client-IP', `${INSIDE} `],
  ['X-Client-IP', INSIDE, 'Connection', 'X-Client-IP'],
  ['X-Client-IP', '', 'X-Real-IP', INSIDE, 'X-Forwarded-For', INSIDE],
  ['Host', INSIDE],
];

describeGateways((name) => {
  test('a key is accepted from its addresses only', async () => {
    const world = worlds.of(name);
    const key = await keyOf(world);
    const ask = (asked: Ask) => world.decided(name, asked);
    expect((await ask({ ...showing(key), localAddress: INSIDE })).status).toBe(200);
    expect((await ask({ ...showing(key), localAddress: OUTSIDE })).status).toBe(403);
    world.upstream.take();
    expect(CLAIMS.length).toBeGreaterThanOrEqual(20);
    for (const claim of CLAIMS) {
      const headers = [...showing(key).headers, ...claim];
      const { status } = await ask({ headers, localAddress: OUTSIDE });
      expect([400, 403], `${claim}`).toContain(status);
      expect(world.upstream.take()).toEqual([]);
    }
    // Nor can it talk itself out of where it is.
    const denial = [...showing(key).headers, 'X-Client-IP', OUTSIDE, 'X-Forwarded-For', OUTSIDE];
    expect((await ask({ headers: denial, localAddress: INSIDE })).status).toBe(200);
  });
});

test('no named header means no address', async () => {
  const world = worlds.of('nginx');
  const key = await keyOf(world);
  const verifier = await world.fleet.addVerifier({ API_IDS: API_ID });
  const status = async (path: string, more: Readonly<Record<string, string>>) => {
    const headers = { authorization: `Bearer ${key}`, ...more };
    return (await world.fleet.get(`${verifier.address}${path}`, headers)).status;
  };
  await world.fleet.until(async () => (await status('/authz/auth-request', {})) === 403);
  for (const path of ['/authz/auth-request', '/authz/forward-auth', '/authz/ext-authz/a'])
    for (const name of ['x-client-ip', 'x-forwarded-for', 'x-real-ip'])
      expect(await status(path, { [name]: INSIDE })).toBe(403);
});
