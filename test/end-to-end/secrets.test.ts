import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { hashSecret } from '../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { Document } from '../harness/openapi.ts';

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
    for (const secret of secrets) {
      const headers = { authorization: `Bearer ${ROOT_KEY}`, 'x-request-id': secret };
      note(await fleet.post(`${fleet.controlPlanes[0]?.address}/v1/keys.updateKey`, { keyId }, headers));
    }
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

/** What a field of a request needs to be, where the operation asks for it. */
const REQUIRED: Readonly<Record<string, unknown>> = {
  ...{
    apiId: 'a',
    enabled: false,
    expiration: 1000,
    op: 'set',
    value: 1,
    sequence: '1',
    name: 'n',
    slug: 'n',
  },
  ...{ externalId: 'ada', permissions: ['a'], roles: [], keys: [{ sha256: hashSecret('other') }] },
};
const ID_LIKE = /Ids?$|^(cursor|slug|roles)$/;
/** What names something by a text that the caller chooses: a secret that nobody here knows is a name like others. */
const NAMES_NEW =
  /(createApi|createKey|importKeys) apiId|(createKey|updateKey|createIdentity) (externalId|ownerId)|createPermission slug/;

test('no operation writes down a secret that is sent in place of an id', async () => {
  const fleet = await Fleet.start({ verifiers: 0, env: { LOG_LEVEL: 'trace', FOREIGN_KEYS: 'on' } });
  try {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'a' });
    const root = await fleet.ok('rootKeys.createRootKey', { name: 'r', permissions: ['api.b.read_key'] });
    const [foreign, unknown] = ['sk_live_4eC39HqLyjWDarjtT1zdp7dc', 'rk_live_9yTq2WbV7nXcLs0KdJh3GfAe'];
    const imported = [{ sha256: hashSecret(foreign), name: 'f' }];
    const { results } = await fleet.ok('keys.importKeys', { apiId: 'a', keys: imported });
    const { body } = await fleet.get(`${fleet.controlPlanes[0]?.address}/openapi.json`);
    const tried = new Set<string>();
    for (const { path, parameters = [], requestBody } of new Document(body).operations) {
      const operation = path.replace('/v1/', '');
      const { properties = {}, required = [] } = requestBody?.content['application/json']?.schema ?? {};
      const names = [...Object.keys(properties), ...parameters.map(({ name }) => name)];
      const needed = [...required, ...parameters.filter((each) => each.required).map(({ name }) => name)];
      const input = Object.fromEntries(
        needed.map((name) => [name, name === 'keyId' ? keyId : REQUIRED[name]]),
      );
      for (const field of names.filter((name) => ID_LIKE.test(name))) {
        for (const secret of [key, root.key, ROOT_KEY, foreign, unknown]) {
          if (secret === unknown && NAMES_NEW.test(`${operation} ${field}`)) continue;
          const sent = /s$/.test(field) ? [secret] : secret;
          for (const rootKey of [root.key, ROOT_KEY])
            await fleet.admin(operation, { ...input, [field]: sent }, { rootKey });
          tried.add(`${operation} ${field}`);
        }
      }
    }
    // In the items of a list, too.
    const owned = [{ sha256: hashSecret('owned'), externalId: foreign }];
    expect((await fleet.admin('keys.importKeys', { apiId: 'a', keys: owned })).status).toBe(400);
    expect(tried.size).toBeGreaterThan(60);
    expect([...tried]).toEqual(
      expect.arrayContaining([
        ...['keys.deleteKey keyId', 'rootKeys.updateRootKey rootKeyId', 'keys.updateKeys apiId'],
        ...['keys.updateKeys keyIds', 'keys.createKey apiId', 'keys.rerollKey operationId'],
      ]),
    );
    const [stored, logged] = [await everythingIn(fleet.redisUrl), fleet.logged.join('')];
    for (const secret of [key, root.key, ROOT_KEY, foreign, unknown]) {
      expect(around(stored, secret), 'in Redis').toEqual([]);
      expect(around(logged, secret), 'in a log line').toEqual([]);
    }
    // What was sent is told by its length and a hash, and what there is by its id.
    const { events } = await fleet.ok('audit.listEvents', { refused: 'true', operation: 'keys.deleteKey' });
    const digest = createHash('sha256').update(unknown).digest('hex').slice(0, 16);
    expect(events.map(({ on }: { on: { keyId: string } }) => on.keyId)).toContain(
      `(${unknown.length} bytes, sha256 ${digest})`,
    );
    const rest = { refused: 'true', operation: 'apis.updateApi' };
    await fleet.admin('apis.updateApi', { apiId: 'a', name: 'n' }, { rootKey: root.key });
    expect((await fleet.ok('audit.listEvents', rest)).events[0].on).toEqual({ apiId: 'a' });
    expect(results[0].keyId).toMatch(/^key_/);
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
