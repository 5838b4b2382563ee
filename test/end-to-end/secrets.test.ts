import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { hashSecret } from '../../shared/key-format.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

test('no secret is in any log line, listing, error, metric or value in Redis', async () => {
  const fleet = await Fleet.start({ env: { LOG_LEVEL: 'trace' } });
  try {
    const seen: unknown[] = [];
    const note = (answer: unknown) => void seen.push(answer);
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'a', prefix: 'pre', name: 'n' });
    const root = await fleet.ok('rootKeys.createRootKey', { name: 'r', permissions: ['*'] });
    const secrets = [key as string, root.key as string, ROOT_KEY];

    // Ordinary traffic, and every way to send a secret to the wrong place.
    for (const operation of [
      'keys.getKey',
      'keys.updateKey',
      'keys.createKey',
      'apis.listKeys',
      'rootKeys.listRootKeys',
      'nowhere',
    ]) {
      for (const input of [
        { keyId },
        { apiId: 'a' },
        { keyId: key },
        { key },
        { [key]: key },
        { apiId: 'a', name: 7, prefix: key },
      ]) {
        for (const rootKey of [ROOT_KEY, root.key, key, `${ROOT_KEY}x`])
          note(await fleet.admin(operation, input, { rootKey }));
      }
    }
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    for (const apiId of ['a', 'b', key]) note(await fleet.verify(key, { apiId }));
    const url = `${fleet.verifiers[0]?.address}/v1/keys.verifyKey`;
    note(await fleet.post(url, { [key]: 1 }));
    note(await fleet.post(url, { key: [key] }));
    note(await fleet.send(`${url}?key=${key}`, { method: 'GET' }));
    note(
      await fleet.send(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: `{"key":"${key}"`,
      }),
    );
    for (const { adminAddress } of [...fleet.controlPlanes, ...fleet.verifiers])
      note(await fleet.get(`${adminAddress}/metrics`));

    const stored = await everythingIn(fleet.redisUrl);
    expect(stored.includes(hashSecret(key))).toBe(true);
    const told = JSON.stringify(seen);
    const logged = fleet.logged.join('');
    expect(logged.includes('"msg":"request"')).toBe(true);
    for (const secret of secrets) {
      expect(around(stored, secret), 'in Redis').toEqual([]);
      expect(around(told, secret), 'in an answer').toEqual([]);
      expect(around(logged, secret), 'in a log line').toEqual([]);
    }
    expect(around(told, hashSecret(key))).toEqual([]);
    expect(around(logged, hashSecret(key))).toEqual([]);
  } finally {
    await fleet.stop();
  }
});

/** Every place where `text` holds the secret, with what is around it. */
function around(text: string, secret: string): string[] {
  const places: string[] = [];
  for (let at = text.indexOf(secret); at >= 0; at = text.indexOf(secret, at + 1)) {
    places.push(text.slice(Math.max(0, at - 80), at + secret.length + 20));
  }
  return places;
}

async function everythingIn(url: string): Promise<string> {
  const redis = new Redis({ path: url.replace('unix://', ''), lazyConnect: true });
  await redis.connect();
  const all: unknown[] = [];
  for (const key of await redis.keys('*')) {
    const type = await redis.type(key);
    all.push(key, type);
    if (type === 'string') all.push(await redis.get(key));
    if (type === 'hash') all.push(await redis.hgetall(key));
    if (type === 'zset') all.push(await redis.zrange(key, '0', '-1', 'WITHSCORES'));
    if (type === 'stream') all.push(await redis.xrange(key, '-', '+'));
  }
  redis.disconnect();
  return JSON.stringify(all);
}
