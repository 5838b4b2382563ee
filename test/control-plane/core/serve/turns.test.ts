import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { CostlyReads, Turns } from '../../../../control-plane/core/serve/turns.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { settled } from '../../../harness/waiting.ts';

/** Those who have their turn, in order. */
async function begun(turns: Turns, callers: readonly string[]) {
  const order: string[] = [];
  const back = new Map<string, () => void>();
  callers.forEach((name) => {
    void turns.take(name[0] ?? '')?.then((giveBack) => {
      order.push(name);
      back.set(name, giveBack);
    });
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  await settle();
  return { order, giveBack: async (name: string) => [back.get(name)?.(), await settle()] };
}

test('a busy caller waits only for itself', async () => {
  const { order, giveBack } = await begun(new Turns({ atOnce: 2, waitingMax: 9 }), [
    'a1',
    'a2',
    'a3',
    'a4',
    'b1',
  ]);
  expect(order).toEqual(['a1', 'a2', 'b1']);
  await giveBack('a2');
  expect(order).toEqual(['a1', 'a2', 'b1', 'a3']);
  await giveBack('a2');
  expect(order, 'a turn that is given back twice is one').toHaveLength(4);
  await giveBack('b1');
  expect(order).toHaveLength(4);
  await giveBack('a1');
  expect(order.at(-1)).toBe('a4');
});

test('a caller who gave all back begins anew', async () => {
  const turns = new Turns({ atOnce: 1, waitingMax: 1 });
  for (let i = 0; i < 3; i++) {
    const { order, giveBack } = await begun(turns, ['a1', 'a2']);
    expect(order).toEqual(['a1']);
    await giveBack('a1');
    expect(order).toEqual(['a1', 'a2']);
    await giveBack('a2');
  }
});

test('refuses callers beyond the queue at once', async () => {
  const turns = new Turns({ atOnce: 1, waitingMax: 1 });
  const { order, giveBack } = await begun(turns, ['a1', 'a2', 'a3', 'b1']);
  expect(order).toEqual(['a1', 'b1']);
  expect(turns.take('a')).toBe(undefined);
  await giveBack('a1');
  expect(order).toEqual(['a1', 'b1', 'a2']);
  expect(turns.take('a'), 'there is a place again').toBeInstanceOf(Promise);
});

test('works on so many calls of a root key at once', async () => {
  const env = {
    ROOT_KEY_CALLS_AT_ONCE: '6',
    ROOT_KEY_CALLS_WAITING_MAX: '4',
    WEBHOOK_NETWORKS: '127.0.0.0/8',
  };
  const fleet = await Fleet.start({ verifiers: 0, env });
  const working: ServerResponse[] = [];
  const hook = createServer((_request, response) => void working.push(response));
  await once(hook.listen(0, '127.0.0.1'), 'listening');
  try {
    const url = `http://127.0.0.1:${Object(hook.address()).port}/`;
    const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url, events: ['key.expiring'] });
    const permissions = ['root.*.update_webhook', 'api.*.read_api'];
    const [a, b] = await Promise.all(
      ['a', 'b'].map(async (name) => ({
        rootKey: (await fleet.ok('rootKeys.createRootKey', { name, permissions })).key as string,
      })),
    );
    const ten = <T>(call: () => Promise<T>) => Promise.all(Array.from({ length: 10 }, call));
    // Calls that fail have ended, too.
    const failures = await ten(() => fleet.admin('apis.getApi', { apiId: 'none' }, a));
    expect(new Set(failures.map(({ status }) => status))).toEqual(new Set([404]));
    const calls = ten(() => fleet.ok('webhooks.test', { endpointId }, a));
    await fleet.until(() => working.length === 6);
    const other = fleet.ok('webhooks.test', { endpointId }, b);
    await fleet.until(() => working.length === 7);
    expect(
      await settled(
        () => working.length,
        () => fleet.ok('apis.listApis', {}, b),
      ),
    ).toBe(7);
    for (const response of working.splice(0)) response.end();
    await other;
    await fleet.until(() => working.length === 4);
    for (const response of working) response.end();
    await calls;
  } finally {
    hook.close();
    hook.closeAllConnections();
    await fleet.stop();
  }
});

test('refuses too many calls of one root key', async () => {
  const env = {
    ROOT_KEY_CALLS_AT_ONCE: '2',
    ROOT_KEY_CALLS_WAITING_MAX: '1',
    ROOT_KEY_CALLS_PER_MINUTE: '0',
    REDIS_COMMAND_TIMEOUT_MS: '60000',
  };
  const fleet = await Fleet.start({ verifiers: 0, env });
  try {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    fleet.redis.process.kill('SIGSTOP');
    const calls = Array.from({ length: 5 }, () => fleet.admin('apis.getApi', { apiId: 'shop' }));
    const answers = async () => {
      const settled = await Promise.all(
        calls.map((call) => Promise.race([call, Promise.resolve(undefined)])),
      );
      return settled.filter((answer) => answer !== undefined);
    };
    await fleet.until(async () => (await answers()).length === 2);
    for (const { status, headers, body } of await answers()) {
      expect({ status, code: body.error.code }).toEqual({ status: 429, code: 'RATE_LIMITED' });
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    }
    const stop = fleet.admin('keys.updateKey', { keyId, enabled: false });
    fleet.redis.process.kill('SIGCONT');
    expect((await stop).status).toBe(200);
    const all = (await Promise.all(calls)).map(({ status }) => status).toSorted();
    expect(all).toEqual([200, 200, 200, 429, 429]);
  } finally {
    fleet.redis.process.kill('SIGCONT');
    await fleet.stop();
  }
});

test('a change gives its turn back for its fence', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  const redis = new Redis(fleet.redisUrl);
  try {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const { log, members } = apiKeys('shop');
    // A verifier that acknowledges nothing is waited for.
    await redis.zadd(members, 0, 'silent');
    let answered = 0;
    const changes = Array.from({ length: 40 }, async (_, i) => {
      await fleet.admin('keys.updateKey', { keyId, name: `name ${i}` });
      answered++;
    });
    await fleet.until(async () => (await redis.xlen(log)) === changes.length);
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ keyId });
    expect(answered).toBe(0);
    await redis.zrem(members, 'silent');
    await Promise.all(changes);
  } finally {
    redis.disconnect();
    await fleet.stop();
  }
});

test('two costly reads run, one of a caller', async () => {
  const reads = new CostlyReads();
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const end = async (name: string) => {
    ends.get(name)?.();
    await settle();
  };
  const ask = (name: string) =>
    reads.run(name[0] ?? '', () => {
      begun.push(name);
      return new Promise<string>((resolve) => ends.set(name, () => resolve(name)));
    });
  const flood = Array.from({ length: 33 }, (_, i) => ask(`a${i}`));
  const refused = ask('a33').catch(({ code }) => code);
  const others = ['b', 'c'].map(ask);
  await settle();
  expect(begun).toEqual(['a0', 'b']);
  expect(await refused).toBe('RATE_LIMITED');
  await end('a0');
  expect(begun).toEqual(['a0', 'b', 'c']);
  await end('b');
  expect(begun).toEqual(['a0', 'b', 'c', 'a1']);
  await end('c');
  for (let i = 1; i < 33; i++) await end(`a${i}`);
  expect(await Promise.all([...flood, ...others])).toHaveLength(35);
});
