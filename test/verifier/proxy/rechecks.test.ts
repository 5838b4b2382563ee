import { describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { unavailable } from '#shared/rules/errors.ts';
import { instant } from '../../../shared/process/clock.ts';
import { Fleet } from '../../harness/fleet.ts';
import { metricSum } from '../../harness/metrics.ts';
import { LEASE_MS, lease, sharedLease } from '../../harness/scripted-answers.ts';
import { eventually } from '../../harness/waiting.ts';
import type { Wire } from '../../harness/wire.ts';
import { answers, BEARER, call, proxy, restart, upstream, useProxy, wire } from './proxy-world.ts';

useProxy();

describe('what goes on for longer than PROXY_RECHECK_MS', () => {
  const stream = async (line: string) => {
    upstream.handle = (_, response) => void response.write('first');
    const one = wire().send(call([line]));
    await eventually(() => one.received.includes('first'));
    return one;
  };

  test('is cut once its key is no longer good', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const one = await stream(BEARER);
    const before = answers.asked.length;
    await eventually(() => answers.asked.length > before + 2);
    expect(one.ended).toBe(false);
    answers.disabled.add('good');
    await one.rest();
    await eventually(() => upstream.seen[0]?.aborted === true);
    expect(proxy.requestsInFlight).toBe(0);
  });

  test.each(['permitted', 'remote-permitted'])('is cut once its key %s lacks a permission', async (key) => {
    await restart({ env: { PROXY_RECHECK_MS: '100', PROXY_PERMISSIONS: 'a AND b.c' } });
    const one = await stream(`X-Api-Key: ${key}`);
    const before = answers.asked.length;
    await eventually(() => answers.asked.length > before + 2);
    expect(one.ended).toBe(false);
    answers.stripped.add('permitted');
    const until = answers.asked.length + 20;
    await eventually(() => one.ended || answers.asked.length > until);
    expect(one.ended).toBe(true);
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  const looks = () => answers.asked.filter((key) => key === 'remote-good').length;
  const cutOff = async () => {
    throw unavailable('no answer from Redis');
  };

  test('goes on without verdict until its lease ends', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const one = await stream('X-Api-Key: remote-good');
    answers.lookUp = cutOff;
    const before = looks();
    await eventually(() => looks() > before + 2);
    expect(one.ended).toBe(false);
    one.close();
    await eventually(() => proxy.requestsInFlight === 0);
    const after = looks();
    // Another one is asked about in each period that passes.
    await stream(BEARER);
    const others = answers.asked.length;
    await eventually(() => answers.asked.length > others + 3);
    expect(looks()).toBe(after);
  });

  test.each([
    ['lease', 'remote-good', lease],
    ['lease of the shared log', 'remote-rich', sharedLease],
  ])('is cut without a verdict after the %s', async (_, key, ending) => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    ending.cut();
    ending.extend(instant(systemClock), 1000);
    const one = await stream(`X-Api-Key: ${key}`);
    answers.lookUp = cutOff;
    // Given anew to keys that are asked about, which is no verdict on this one.
    ending.extend(instant(systemClock), LEASE_MS);
    await one.rest();
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('has a new lease with each verdict', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    lease.cut();
    lease.extend(instant(systemClock), 300);
    const one = await stream('X-Api-Key: remote-good');
    lease.extend(instant(systemClock), LEASE_MS);
    let before = looks();
    await eventually(() => looks() > before + 4);
    answers.lookUp = cutOff;
    before = looks();
    await eventually(() => looks() > before + 4);
    expect(one.ended).toBe(false);
    one.close();
  });
});

/** What goes on with the key of a fleet, begun again while the verifier cannot decide, which clients must bear. */
async function streamOf(key: string, proxyAddress: string): Promise<Wire> {
  for (;;) {
    const one = wire(proxyAddress).send(call([`X-Api-Key: ${key}`]));
    await eventually(() => one.received.includes('\r\n\r\n'));
    if (!one.received.startsWith('HTTP/1.1 503 ')) {
      await eventually(() => one.received.includes('first'), one.received);
      return one;
    }
    one.close();
  }
}

test('a long call costs one use and one credit', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { proxyAddress = '', adminAddress } = await fleet.addVerifier({
      UPSTREAM_URL: upstream.address,
      PROXY_PORT: '0',
      PROXY_RECHECK_MS: '100',
      USAGE_PERIOD_MS: '100',
    });
    const [long, short] = [
      await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1000 }),
      await fleet.ok('keys.createKey', { apiId: 'shop' }),
    ];
    for (const { key } of [long, short]) {
      const status = async () => (await fleet.get(`${proxyAddress}/a`, { 'x-api-key': key })).status;
      await fleet.until(async () => (await status()) === 200);
    }
    const counted = () => metricSum(adminAddress, 'keyfence_verdicts_total');
    const used = async () => {
      const query = { keyId: long.keyId };
      const { verifications } = await fleet.ok('keys.getVerifications', query);
      return verifications.reduce((total: number, { success }: { success: number }) => total + success, 0);
    };
    await fleet.until(async () => (await used()) > 0);
    /** Once the verifier has given back all that it held. */
    const left = async () => {
      const { remaining, remainingHeld } = await fleet.ok('keys.getKey', { keyId: long.keyId });
      return remainingHeld === undefined ? remaining : undefined;
    };
    await fleet.until(async () => (await left()) !== undefined);
    const credits = await left();
    const before = { counted: await counted(), used: await used() };
    upstream.handle = (_request, response) => void response.write('first');
    for (let i = 0; i < 4; i++) {
      const { key, keyId } = i === 0 ? long : short;
      const one = await streamOf(key, proxyAddress);
      if (i === 0) continue;
      // It is cut where all that goes on is judged.
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      await one.rest();
      await fleet.ok('keys.updateKey', { keyId, enabled: true });
    }
    expect(await counted()).toBe(before.counted + 4);
    await fleet.until(async () => (await used()) > before.used);
    expect(await used()).toBe(before.used + 1);
    await fleet.until(async () => (await left()) !== undefined);
    expect(await left()).toBe(credits - 1);
  } finally {
    await fleet.stop();
  }
});

test('a long call takes no more of a limit', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { proxyAddress = '' } = await fleet.addVerifier({
      UPSTREAM_URL: upstream.address,
      PROXY_PORT: '0',
      PROXY_RECHECK_MS: '100',
      // Each use asks Redis, which a busy machine may hold up: that is 503, and not what is tested.
      LOOKUP_WAIT_MS: '5000',
    });
    const ratelimit = { limit: 3, duration: 30 * 86_400_000, async: false };
    const [limited, plain] = [
      await fleet.ok('keys.createKey', { apiId: 'shop', ratelimit }),
      await fleet.ok('keys.createKey', { apiId: 'shop' }),
    ];
    const status = async ({ key } = limited) =>
      (await fleet.get(`${proxyAddress}/a`, { 'x-api-key': key })).status;
    for (const each of [limited, plain]) await fleet.until(async () => (await status(each)) === 200);
    upstream.handle = (_request, response) => void response.write('first');
    /** Ends once all that goes on was judged so often. */
    const judged = async (times: number) => {
      for (let i = 0; i < times; i++) {
        const one = await streamOf(plain.key, proxyAddress);
        await fleet.ok('keys.updateKey', { keyId: plain.keyId, enabled: false });
        await one.rest();
        await fleet.ok('keys.updateKey', { keyId: plain.keyId, enabled: true });
      }
    };
    const one = await streamOf(limited.key, proxyAddress);
    await judged(4);
    // Of three uses the second was the one that goes on: the third is still there.
    upstream.handle = (_request, response) => void response.end('ok');
    await fleet.until(async () => (await status()) === 200);
    expect(await status()).toBe(429);
    upstream.handle = (_request, response) => void response.write('first');
    await judged(2);
    expect(one.ended).toBe(false);
    await fleet.ok('keys.updateKey', { keyId: limited.keyId, enabled: false });
    await one.rest();
  } finally {
    await fleet.stop();
  }
});

test('refuses a disabled key once updateKey returns', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { proxyAddress = '', adminAddress } = await fleet.addVerifier({
      UPSTREAM_URL: upstream.address,
      PROXY_PORT: '0',
    });
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Zoë' });
    /** That of its answer, once the verifier can decide. */
    const status = async () => {
      let last = 0;
      await fleet.until(async () => {
        last = (await fleet.get(`${proxyAddress}/orders`, { 'x-api-key': key })).status;
        return last !== 503;
      });
      return last;
    };
    expect(await status()).toBe(200);
    expect(upstream.seen.at(-1)).toMatchObject({
      url: '/orders',
      headers: { 'x-key-id': keyId, 'x-key-api-id': 'shop', 'x-key-name': 'Zo%C3%AB' },
    });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await status()).toBe(401);
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    expect(await status()).toBe(200);
    await upstream.close();
    expect(await status()).toBe(502);
    const { body } = await fleet.get(`${adminAddress}/metrics`);
    expect(body).toMatch(/^keyfence_relayed_in_flight\{to="api"\} 0$/m);
    expect(body).toMatch(/^keyfence_relay_faults_total\{to="api",fault="unreachable"\} 1$/m);
  } finally {
    await fleet.stop();
  }
});
