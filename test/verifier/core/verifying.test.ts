import { request } from 'node:http';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { recordKey, rootKeyIndex, rootKeyRecord, SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { ROOT_KEYS_ID } from '../../../shared/rules/key-format.ts';
import { createClient } from '../../../verifier/library/client.ts';
import { envOf, useCommandLine } from '../../control-plane/clients/cli/keyfence.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../harness/fleet.ts';

/** Verifiers that ask for a root key. */
const VERIFIERS = 3;
const REQUIRED = { VERIFY_ROOT_KEYS: 'required', LOOKUP_WAIT_MS: '10000' };
let fleet: Fleet;
const commandLine = useCommandLine();
const keys = { mine: '', theirs: '' };
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const CONTROL_PLANE_URL = fleet.controlPlanes[0]?.address ?? '';
  for (let i = 0; i < VERIFIERS; i++) await fleet.addVerifier({ ...REQUIRED, CONTROL_PLANE_URL });
  keys.mine = (await fleet.ok('keys.createKey', { apiId: 'mine' })).key;
  keys.theirs = (await fleet.ok('keys.createKey', { apiId: 'theirs', remaining: 3 })).key;
});
afterAll(() => fleet.stop());

const rootKeyWith = (...permissions: string[]): Promise<{ key: string; rootKeyId: string }> =>
  fleet.ok('rootKeys.createRootKey', { name: 'gateway', permissions });
const addressOf = (at: number) => fleet.verifiers[at % VERIFIERS]?.address ?? '';
const PATHS = { v1: '/v1/keys.verifyKey', v2: '/v2/keys.verifyKey', limit: '/v2/ratelimit.limit' };
const LIMIT = { namespace: 'n', identifier: 'i', limit: 1000, duration: 60_000 };

/** Asks once in the form that the fast lane answers, with a header or none. */
const askWith = (authorization: string | undefined, path: string, body: object, at = 0): Promise<Answer> =>
  fleet.post(`${addressOf(at)}${path}`, body, authorization === undefined ? {} : { authorization });
/** Asks with a root key, again while the verifier cannot decide. */
async function ask(rootKey: string, path: string, body: object, at = 0): Promise<Answer> {
  for (;;) {
    const answer = await askWith(`Bearer ${rootKey}`, path, body, at);
    if (answer.status !== 503) return answer;
  }
}
const codeFor = async (rootKey: string, key: string, at = 0) =>
  (await ask(rootKey, PATHS.v1, { key }, at)).body.code;

describe('a question', () => {
  test('without a good root key is refused', async () => {
    await ask(ROOT_KEY, PATHS.v1, { key: keys.mine });
    const { key: mayRead } = await rootKeyWith('api.mine.read_key');
    const wrong: [string | undefined, number, RegExp][] = [
      [undefined, 401, /^Authorization: required, as "Bearer <root key>"$/],
      [ROOT_KEY, 401, /put "Bearer " before the root key$/],
      ['Basic abc def', 401, /^Authorization: must be of the form/],
      [`Bearer ${ROOT_KEY}x`, 401, /^Authorization: the root key is unknown or disabled$/],
      [`Bearer ${keys.mine}`, 401, /unknown or disabled$/],
      [
        `Bearer ${mayRead}`,
        403,
        /lacks the permission (api\.<apiId>\.verify_key|root\.\*\.check_rate_limit)$/,
      ],
    ];
    for (const [authorization, status, message] of wrong) {
      for (const path of Object.values(PATHS)) {
        const body = path === PATHS.limit ? LIMIT : { key: keys.mine };
        const answer = await askWith(authorization, path, body);
        expect(answer.status).toBe(status);
        expect(path === PATHS.v1 ? answer.body.error.message : answer.body.error.detail).toMatch(message);
        expect(answer.headers['www-authenticate']).toBe(status === 401 ? 'Bearer' : undefined);
        expect(JSON.stringify(answer.body)).not.toContain(keys.mine);
      }
      // Nobody without a root key learns what a question should be.
      expect((await askWith(authorization, PATHS.v1, { wrong: true })).status).toBe(status);
    }
  });

  test('with a root key for all APIs is answered', async () => {
    const { key: all } = await rootKeyWith('api.*.verify_key', 'root.*.check_rate_limit');
    const { key: everything } = await rootKeyWith('*');
    for (const rootKey of [ROOT_KEY, all, everything]) {
      for (const at of [0, 1, 2]) {
        expect((await ask(rootKey, PATHS.v1, { key: keys.mine }, at)).body).toMatchObject({ code: 'VALID' });
        expect((await ask(rootKey, PATHS.v2, { key: keys.mine }, at)).body.data).toMatchObject({
          code: 'VALID',
        });
        expect((await ask(rootKey, PATHS.limit, LIMIT, at)).body.data).toMatchObject({ success: true });
      }
      expect((await ask(rootKey, PATHS.v1, { wrong: true })).status).toBe(400);
    }
  });

  test('by a root key of some APIs learns nothing of the keys of others, and takes nothing of theirs', async () => {
    const { key: mine } = await rootKeyWith('api.mine.verify_key');
    const unknown = (await ask(mine, PATHS.v1, { key: 'unknown' })).body;
    for (let at = 0; at < 2 * VERIFIERS; at++) {
      expect(await codeFor(mine, keys.mine, at)).toBe('VALID');
      const { body } = await ask(mine, PATHS.v1, { key: keys.theirs }, at);
      expect({ ...body, requestId: '' }).toEqual({ ...unknown, requestId: '' });
      expect((await ask(mine, PATHS.v2, { key: keys.theirs }, at)).body.data).toMatchObject({
        code: 'NOT_FOUND',
      });
      expect((await ask(mine, PATHS.v1, { key: keys.theirs, apiId: 'theirs' }, at)).body.code).toBe(
        'NOT_FOUND',
      );
    }
    for (let i = 0; i < 3; i++) expect(await codeFor(ROOT_KEY, keys.theirs)).toBe('VALID');
    expect(await codeFor(mine, keys.theirs)).toBe('NOT_FOUND');
    expect(await codeFor(ROOT_KEY, keys.theirs)).toBe('USAGE_EXCEEDED');
    expect((await ask(mine, PATHS.limit, LIMIT)).status).toBe(403);
  });

  test('at a verifier of other APIs is told nothing', async () => {
    const { address } = await fleet.addVerifier({ ...REQUIRED, API_IDS: 'mine' });
    const codes = async (rootKey: string) => {
      const answers = [];
      for (let i = 0; i < 3; i++) {
        const headers = { authorization: `Bearer ${rootKey}` };
        answers.push((await fleet.post(`${address}${PATHS.v1}`, { key: keys.theirs }, headers)).body.code);
      }
      return answers;
    };
    const { key: mine } = await rootKeyWith('api.mine.verify_key');
    await fleet.until(async () => (await codes(ROOT_KEY)).every((code) => code === 'FORBIDDEN'));
    expect(await codes(mine)).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND']);
  });

  test('of a client with one address is answered', async () => {
    const { key: rootKey } = await rootKeyWith('api.mine.verify_key', 'root.*.check_rate_limit');
    const unkey = new Unkey({ rootKey, serverURL: addressOf(1), retryConfig: { strategy: 'none' } });
    await ask(rootKey, PATHS.v2, { key: keys.mine }, 1);
    expect((await unkey.keys.verifyKey({ key: keys.mine })).data.code).toBe('VALID');
    expect((await unkey.ratelimit.limit(LIMIT)).data.success).toBe(true);
  });

  test('of our own clients sends a root key if asked', async () => {
    const { key: rootKey } = await rootKeyWith('api.mine.verify_key');
    await ask(rootKey, PATHS.v1, { key: keys.mine });
    const verify = (KEYFENCE_ROOT_KEY: string) =>
      commandLine.run(['keys', 'verify'], envOf(fleet, { KEYFENCE_ROOT_KEY, KEYFENCE_KEY: keys.mine }));
    expect(await verify(rootKey)).toMatchObject({ status: 0, stdout: expect.stringContaining('VALID') });
    expect(await verify('')).toMatchObject({ status: 77, stderr: expect.stringContaining('root key') });
    const client = createClient({ url: addressOf(0), rootKey });
    expect(await client.verify(keys.mine)).toMatchObject({ code: 'VALID' });
    await client.close();
    const stranger = createClient({ url: addressOf(0) });
    await expect(stranger.verify(keys.mine)).rejects.toThrow(
      /asks for a root key that may verify keys \(rootKey\)/,
    );
    await stranger.close();
  });

  test('from a gateway needs no root key', async () => {
    const headers = { authorization: `Bearer ${keys.mine}` };
    const answer = await fleet.get(`${addressOf(0)}/authz/api/*/forward-auth`, headers);
    expect(answer.status).toBeLessThan(300);
    expect((await fleet.get(`${addressOf(0)}/authz/api/*/forward-auth`)).status).toBe(401);
  });
});

describe('a root key that is disabled', () => {
  /** Asks in a form that the fast lane leaves to Node, and sends the end of the body only when it should. */
  const begin = (rootKey: string, key: string) => {
    const body = JSON.stringify({ key });
    const started = request(`${addressOf(0)}${PATHS.v1}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'transfer-encoding': 'chunked',
        authorization: `Bearer ${rootKey}`,
      },
    });
    started.write(body.slice(0, 5));
    const status = new Promise<number>((resolve, reject) => {
      started.on('response', (response) => resolve(response.resume().statusCode ?? 0)).on('error', reject);
    });
    return { end: () => started.end(body.slice(5)), status };
  };

  test('is refused by every verifier once its call has answered, and so is whatever it made', async () => {
    for (let round = 0; round < 10; round++) {
      const parent = await rootKeyWith('api.mine.verify_key', 'root.*.create_root_key');
      const child = await fleet.ok(
        'rootKeys.createRootKey',
        { name: 'child', permissions: ['api.mine.verify_key'] },
        { rootKey: parent.key },
      );
      const asks = [parent.key, child.key].flatMap((rootKey) =>
        [0, 1, 2].flatMap((at) => [PATHS.v1, PATHS.v2].map((path) => ({ rootKey, at, path }))),
      );
      const askAll = () =>
        Promise.all(asks.map(({ rootKey, at, path }) => ask(rootKey, path, { key: keys.mine }, at)));
      for (const { status } of await askAll()) expect(status).toBe(200);
      let isOver = false;
      const hammering = asks.map(async ({ rootKey, at, path }) => {
        while (!isOver) await ask(rootKey, path, { key: keys.mine }, at);
      });
      const { propagation } = await fleet.ok('rootKeys.updateRootKey', {
        rootKeyId: parent.rootKeyId,
        enabled: false,
      });
      const after = askAll();
      expect(propagation).toMatchObject({ state: 'complete', verifiers: VERIFIERS + 1 });
      for (const { status } of await after) expect(status).toBe(401);
      isOver = true;
      await Promise.all(hammering);
      await fleet.ok('rootKeys.updateRootKey', { rootKeyId: parent.rootKeyId, enabled: true });
      for (const { status } of await askAll()) expect(status).toBe(200);
    }
  });

  test('is refused too while its body arrives', async () => {
    const { key, rootKeyId } = await rootKeyWith('api.mine.verify_key');
    await ask(key, PATHS.v1, { key: keys.mine });
    const question = begin(key, keys.mine);
    await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
    question.end();
    expect(await question.status).toBe(401);
  });

  test('is refused even if its control plane died', async () => {
    const { key, rootKeyId } = await rootKeyWith('api.mine.verify_key');
    expect(await codeFor(key, keys.mine)).toBe('VALID');
    const secretHash = (await fleet.client.hget(rootKeyIndex, rootKeyId)) ?? '';
    await fleet.client.hset(rootKeyRecord(secretHash), 'enabled', '0');
    await fleet.addControlPlane();
    await fleet.until(
      async () => (await askWith(`Bearer ${key}`, PATHS.v1, { key: keys.mine })).status === 401,
    );
  });

  test('can be disabled while Redis is full', async () => {
    const { key, rootKeyId } = await rootKeyWith('api.mine.verify_key');
    expect(await codeFor(key, keys.mine)).toBe('VALID');
    await fleet.client.config('SET', 'maxmemory', '1mb');
    try {
      await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
      expect((await ask(key, PATHS.v1, { key: keys.mine })).status).toBe(401);
    } finally {
      await fleet.client.config('SET', 'maxmemory', '0');
    }
  });
});

describe('what verifiers know of root keys', () => {
  test('is rebuilt if lost, and judges nobody before', async () => {
    await ask(ROOT_KEY, PATHS.v1, { key: keys.mine });
    await fleet.client.del(recordKey(SHARED_LOG, ROOT_KEYS_ID));
    const { address } = await fleet.addVerifier(REQUIRED);
    const once = (rootKey: string) =>
      fleet.post(`${address}${PATHS.v1}`, { key: keys.mine }, { authorization: `Bearer ${rootKey}` });
    expect((await once(ROOT_KEY)).status).toBe(503);
    expect((await once(`${ROOT_KEY}x`)).status).toBe(503);
    await fleet.addControlPlane();
    await fleet.until(async () => (await once(ROOT_KEY)).status === 200);
    expect((await once(`${ROOT_KEY}x`)).status).toBe(401);
  });

  test('has the root keys of all configurations', async () => {
    const other = 'another-root-key-0123456789abcdef0123456789';
    const controlPlane = await fleet.addControlPlane({ ROOT_KEY: other });
    const statusOf = async (rootKey: string) => (await ask(rootKey, PATHS.v1, { key: keys.mine })).status;
    await fleet.until(async () => (await statusOf(other)) === 200);
    // Whichever control plane publishes next leaves the others' root keys in.
    await rootKeyWith('api.mine.verify_key');
    expect([await statusOf(other), await statusOf(ROOT_KEY)]).toEqual([200, 200]);
    await controlPlane.stop();
    const announcements = await fleet.client.zrange('kf:{!root}:bootstrap', '0', '-1');
    for (const ids of announcements)
      await fleet.client.zadd('kf:{!root}:bootstrap', String(Date.now() - 91_000), ids);
    await rootKeyWith('api.mine.verify_key');
    expect([await statusOf(other), await statusOf(ROOT_KEY)]).toEqual([401, 200]);
  });

  test('ends right after simultaneous changes', async () => {
    const other = await fleet.addControlPlane();
    const at = [0, fleet.controlPlanes.indexOf(other)];
    const made = await Promise.all(Array.from({ length: 6 }, () => rootKeyWith('api.mine.verify_key')));
    for (let round = 0; round < 5; round++) {
      // Of each root key, the change that is made last holds.
      const wanted = await Promise.all(
        made.map(async ({ key, rootKeyId }, i) => {
          const enabled = (i + round) % 2 === 0;
          const change = (isOn: boolean, where: number) =>
            fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: isOn }, { at: at[where % 2] ?? 0 });
          await change(!enabled, i);
          await change(enabled, i + 1);
          const { status } = await ask(key, PATHS.v1, { key: keys.mine }, i);
          return [status, enabled ? 200 : 401];
        }),
      );
      for (const [status, expected] of wanted) expect(status).toBe(expected);
    }
  });

  test('holds for many root keys made at once', async () => {
    const made = await Promise.all(Array.from({ length: 30 }, () => rootKeyWith('api.mine.verify_key')));
    for (const { key } of made) expect((await ask(key, PATHS.v1, { key: keys.mine }, 1)).status).toBe(200);
    expect(await fleet.client.hget(recordKey(SHARED_LOG, ROOT_KEYS_ID), 'm')).toBeNull();
  });

  test('serves a lease without Redis, then nobody', async () => {
    const { key } = await rootKeyWith('api.mine.verify_key');
    expect(await codeFor(key, keys.mine)).toBe('VALID');
    await fleet.redis.stop();
    try {
      const statuses = new Set<number>();
      await fleet.until(async () => {
        const { status } = await askWith(`Bearer ${key}`, PATHS.v1, { key: keys.mine });
        statuses.add(status);
        return status === 503;
      });
      expect([...statuses].every((status) => status === 200 || status === 503)).toBe(true);
      await fleet.until(
        async () => (await askWith('Bearer made-up', PATHS.v1, { key: keys.mine })).status === 503,
      );
    } finally {
      await fleet.startRedis();
    }
    expect(await codeFor(key, keys.mine)).toBe('VALID');
  });
});
