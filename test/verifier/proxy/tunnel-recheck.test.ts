import type { Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type Clock, systemClock } from '#shared/process/clock.ts';
import { Fleet } from '../../harness/fleet.ts';
import { Upstream } from '../../harness/upstream.ts';
import { eventually } from '../../harness/waiting.ts';
import { Wire } from '../../harness/wire.ts';

/** A period that nothing else has, so that it is told apart by its length. */
const RECHECK_MS = 314;
/** A lease that ends in the test, and one that no busy machine misses. */
const [SHORT_MS, LONG_MS] = [2000, 60_000];
const HALF_MS = RECHECK_MS / 2;
/** What a busy machine may add, in half periods. */
const SLACK = 2;

let fleet: Fleet;
let upstream: Upstream;
let proxyAddress: string;
let wires: Wire[];
let behind: Socket[];
/** Times that the proxy looked at what goes on, of which it judges each at every second. */
let looks: number;

async function start(leaseMs: number): Promise<void> {
  [wires, behind, looks] = [[], [], 0];
  upstream = await Upstream.start();
  upstream.server.on('upgrade', (_request, socket: Socket) => {
    behind.push(socket.on('error', () => undefined).on('end', () => socket.end()));
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello',
    );
  });
  fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: `${leaseMs}` } });
  const clock: Clock = {
    ...systemClock,
    after: (delayMs, run) =>
      systemClock.after(delayMs, () => {
        if (delayMs === HALF_MS) looks++;
        run();
      }),
  };
  const env = { UPSTREAM_URL: upstream.address, PROXY_PORT: '0', PROXY_RECHECK_MS: `${RECHECK_MS}` };
  const verifier = await fleet.addVerifier({ ...env, LEASE_MS: `${leaseMs}` }, true, clock);
  proxyAddress = verifier.proxyAddress ?? '';
}
afterEach(async () => {
  fleet.redis.process.kill('SIGCONT');
  for (const wire of wires) wire.close();
  for (const socket of behind) socket.destroy();
  await fleet.stop();
  await upstream.close();
});

async function created(): Promise<{ key: string; keyId: string }> {
  const made = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const status = async () => (await fleet.get(proxyAddress, { 'x-api-key': made.key })).status;
  await fleet.until(async () => (await status()) === 200);
  return made;
}

/** A WebSocket to the API, at work. */
async function opened(key: string): Promise<Wire> {
  const lines = ['Host: a', `X-Api-Key: ${key}`, 'Connection: Upgrade', 'Upgrade: websocket'];
  const one = new Wire(proxyAddress).send(['GET /live HTTP/1.1', ...lines, '', ''].join('\r\n'));
  wires.push(one);
  await eventually(() => one.received.endsWith('hello'));
  return one;
}

test('a WebSocket is cut soon after its disable', async () => {
  await start(LONG_MS);
  const [mine, others] = [await created(), await created()];
  const [one, other] = [await opened(mine.key), await opened(others.key)];
  expect(await fleet.ok('keys.updateKey', { keyId: mine.keyId, enabled: false })).toMatchObject({
    propagation: { state: 'complete' },
  });
  const before = looks;
  await one.rest();
  expect(looks - before).toBeLessThanOrEqual(2 + SLACK);
  await eventually(() => behind[0]?.destroyed === true);
  const later = looks;
  await eventually(() => looks > later + 4);
  expect(other.ended).toBe(false);
});

test.each(['SIGSTOP', 'SIGKILL'] as const)('without Redis (%s) it is cut after its lease', async (signal) => {
  await start(SHORT_MS);
  const one = await opened((await created()).key);
  fleet.redis.process.kill(signal);
  const before = looks;
  await one.rest();
  // A look-up that waits for Redis ends with the lease, too.
  expect(looks - before).toBeLessThanOrEqual(Math.ceil(SHORT_MS / HALF_MS) + 2 + SLACK);
  await eventually(() => behind[0]?.destroyed === true);
});
