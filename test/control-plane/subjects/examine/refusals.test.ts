import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import type { Entry } from '../../../../shared/protocol/follower/key-cache.ts';
import {
  MISSING_LENGTH_MAX,
  REFUSALS_KEPT,
  REFUSALS_KEPT_S,
} from '../../../../shared/protocol/records/refusal-records.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import {
  latestRefusalsKey,
  refusalsKey,
  refusedKeysKey,
  refusedRequestsKey,
} from '../../../../shared/redis/redis-keys.ts';
import { send } from '../../../../shared/redis/script.ts';
import { Refusals, reportRefusals } from '../../../../shared/reports/refusals-report.ts';
import { questionAbout } from '../../../../verifier/core/question.ts';
import type { Verdict } from '../../../../verifier/core/verdict.ts';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';
import { Upstream } from '../../../harness/upstream.ts';
import { PATIENT } from '../../../harness/waiting.ts';
import { envOf, useCommandLine } from '../../clients/cli/keyfence.ts';

let fleet: Fleet;
let upstream: Upstream;
const commandLine = useCommandLine();
beforeAll(async () => {
  upstream = await Upstream.start();
  const env = { USAGE_PERIOD_MS: '50' };
  fleet = await Fleet.start({ verifiers: 0, env });
  for (const FAST_LANE of ['true', 'false'])
    await fleet.addVerifier({
      ...{ ...env, FAST_LANE, UPSTREAM_URL: upstream.address, PROXY_PORT: '0' },
      CLIENT_IP_HEADER: 'x-client-ip',
    });
});
afterAll(async () => {
  await fleet.stop();
  await upstream.close();
});

const keyFor = (fields: object): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const refusalsOf = async (keyId: string) => (await fleet.ok('keys.listRefusals', { keyId })).refusals;
/** The refusals of a key once there are so many. */
async function refusals(keyId: string, count: number) {
  await fleet.until(async () => (await refusalsOf(keyId)).length >= count, `${count} refusals`);
  return refusalsOf(keyId);
}
describe.each([0, 1])('a refusal by verifier %i is listed', (at) => {
  test('with code, request, verifier and address', async () => {
    const { key, keyId } = await keyFor({ enabled: false, allowedIps: ['192.0.2.1'] });
    const before = Date.now();
    const first = await fleet.verify(key, { at, clientIp: '192.0.2.1' });
    const second = await fleet.verify(key, { at });
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    const third = await fleet.verify(key, { at, clientIp: '10.0.0.1' });
    const fourth = await fleet.verify(key, {
      at,
      clientIp: '192.0.2.1',
      authorization: { permissions: 'a' },
    });
    const other = await fleet.verify(key, { at, apiId: 'other' });
    expect((await fleet.verify(key, { at, clientIp: '192.0.2.1' })).body.code).toBe('VALID');
    const { verifiers } = await fleet.ok('fleet.listVerifiers');
    const listed = await refusals(keyId, 5);
    expect(listed).toHaveLength(5);
    const requestIds = [other, fourth, third, second, first].map(({ body }) => body.requestId);
    const byRequest = new Map(listed.map((each: { requestId: string }) => [each.requestId, each]));
    expect(requestIds.map((id) => byRequest.get(id))).toMatchObject([
      { code: 'FORBIDDEN', reason: 'api', question: { apiId: 'other' } },
      { code: 'INSUFFICIENT_PERMISSIONS', clientIp: '192.0.2.1', missingPermissions: ['a'] },
      { code: 'FORBIDDEN', reason: 'address', clientIp: '10.0.0.1' },
      { code: 'DISABLED', detail: 'the key is disabled' },
      { code: 'DISABLED', clientIp: '192.0.2.1' },
    ]);
    expect(listed.map(({ time }: { time: number }) => time)).toEqual(
      listed.map(({ time }: { time: number }) => time).sort((a: number, b: number) => b - a),
    );
    for (const { time, verifierId, code, reason, clientIp } of listed) {
      expect(time).toBeGreaterThanOrEqual(before);
      expect(verifiers.map(({ id }: { id: string }) => id)).toContain(verifierId);
      if (code === 'FORBIDDEN' && reason === undefined) expect(clientIp).toBeUndefined();
    }
    expect(JSON.stringify(listed)).not.toContain(key);
  });

  test('with what decided, and its question', async () => {
    const externalId = `acme-${at}`;
    await fleet.ok('identities.createIdentity', { externalId });
    await fleet.ok('permissions.createRole', { name: `night-${at}`, permissions: ['b'] });
    const { key, keyId } = await keyFor({
      ...{ externalId, permissions: ['a'], roles: [`night-${at}`], remaining: 5 },
      ratelimits: [{ name: 'burst', limit: 10, duration: 3_600_000 }],
    });
    const ask = (question: object) => fleet.verify(key, { at, ...question });
    const own = { name: 'own', limit: 2, duration: 3_600_000, cost: 3 };
    const permissions = { or: ['c', { and: ['b', 'd'] }] };
    const questions = [
      { authorization: { permissions } },
      { ratelimits: [{ name: 'burst', cost: 11 }] },
      { ratelimits: [own] },
      { remaining: { cost: 7 }, authorization: { permissions: 'a AND b' } },
    ];
    const requestIds: string[] = [];
    for (const question of questions) requestIds.push((await ask(question)).body.requestId);
    await fleet.ok('identities.updateIdentity', { externalId, enabled: false });
    requestIds.push((await ask({})).body.requestId);
    const expiring = await keyFor({ expires: Date.now() + 60_000 });
    await fleet.ok('keys.updateKey', { keyId: expiring.keyId, expires: 1_000_000_000_000 });
    await fleet.verify(expiring.key, { at });

    const listed = await refusals(keyId, 5);
    const of = (id: string) => listed.find(({ requestId }: { requestId: string }) => requestId === id);
    const limit = (of: object) => ({ duration: 3_600_000, ...of });
    expect(requestIds.map(of)).toMatchObject([
      {
        code: 'INSUFFICIENT_PERMISSIONS',
        ...{ missingPermissions: ['c', 'd'], detail: 'lacks c, d' },
        question: { permissions: 'c OR (b AND d)' },
      },
      {
        code: 'RATE_LIMITED',
        ratelimit: limit({ name: 'burst', limit: 10, remaining: 10, cost: 11 }),
        detail: 'burst: 10 an hour, 10 left, takes 11',
        question: { ratelimits: [{ name: 'burst', cost: 11 }] },
      },
      {
        code: 'RATE_LIMITED',
        ratelimit: limit({ name: 'own', limit: 2, remaining: 2, cost: 3 }),
        question: { ratelimits: [own] },
      },
      {
        code: 'USAGE_EXCEEDED',
        ...{ credits: { remaining: 5, cost: 7 }, detail: '5 credits left, takes 7' },
        question: { cost: 7, permissions: 'a AND b' },
      },
      { code: 'DISABLED', reason: 'identity', externalId, detail: `${externalId} is disabled` },
    ]);
    const [expired] = await refusals(expiring.keyId, 1);
    expect(expired).toMatchObject({
      expires: 1_000_000_000_000,
      detail: 'expired at 2001-09-09T01:46:40.000Z',
      question: {},
    });

    await fleet.ok('identities.updateIdentity', { externalId, enabled: true });
    const explain = async (id: string) =>
      (await fleet.ok('keys.explain', { keyId, ...of(id).question })).code;
    expect(await Promise.all(requestIds.map(explain))).toEqual([
      ...['INSUFFICIENT_PERMISSIONS', 'RATE_LIMITED', 'RATE_LIMITED', 'USAGE_EXCEEDED', 'VALID'],
    ]);
    const run = (id = '') => commandLine.run(['keys', 'explain', '--request', id], envOf(fleet));
    const explained = await run(requestIds[0]);
    expect(explained.stdout).toContain('c: missing; b: by role');
    expect(explained.status).toBe(1);
    await fleet.ok('keys.addPermissions', { keyId, permissions: ['c'] });
    expect((await run(requestIds[0])).status).toBe(0);
  });

  test('without a question that is too long', async () => {
    const { key, keyId } = await keyFor({ permissions: ['held'] });
    const slugs = Array.from({ length: 60 }, (_, i) => `permission.${i}`);
    await fleet.verify(key, { at, authorization: { permissions: { and: ['held', ...slugs] } } });
    const [refusal] = await refusals(keyId, 1);
    expect(refusal.question).toBeUndefined();
    expect(refusal.missingPermissions).toEqual(slugs.slice(0, refusal.missingPermissions.length));
    expect(refusal.missingPermissions.join('').length).toBeLessThanOrEqual(MISSING_LENGTH_MAX);
    const stored = await fleet.client.hgetall(refusalsKey('shop', keyId));
    for (const text of Object.values(stored)) expect(text.length).toBeLessThan(2048);
  });

  test('with its route, and never with its query', async () => {
    const { key, keyId } = await keyFor({ allowedIps: ['192.0.2.1'] });
    const verifier = fleet.verifiers[at];
    const authorization = `Bearer ${key}`;
    const gateway = { authorization, 'x-client-ip': '10.0.0.1' };
    const told = { 'x-original-method': 'POST', 'x-original-uri': '/orders/7?secret=x' };
    const forwarded = { 'x-forwarded-method': 'PUT', 'x-forwarded-uri': '/orders/8' };
    const answers = [
      await fleet.decided(() =>
        fleet.get(`${verifier?.address}/authz/api/shop/auth-request`, { ...gateway, ...told }),
      ),
      await fleet.decided(() =>
        fleet.get(`${verifier?.address}/authz/api/shop/auth-request`, { ...gateway, ...told }),
      ),
      await fleet.decided(() =>
        fleet.get(`${verifier?.address}/authz/api/shop/forward-auth`, { ...gateway, ...forwarded }),
      ),
      await fleet.decided(() => fleet.get(`${verifier?.proxyAddress}/orders/9?secret=x`, { authorization })),
    ];
    expect(answers.map(({ status }) => status)).toEqual([403, 403, 403, 403]);
    const listed = await refusals(keyId, 4);
    const routeOf = new Map(
      listed.map(({ requestId, route }: { requestId: string; route: string }) => [requestId, route]),
    );
    expect(answers.map(({ headers }) => routeOf.get(String(headers['x-request-id'])))).toEqual([
      'POST /orders/7',
      'POST /orders/7',
      'PUT /orders/8',
      'GET /orders/9',
    ]);
    expect(listed.find(({ route }: { route: string }) => route === 'GET /orders/9').clientIp).toBe(
      '127.0.0.1',
    );
    expect(JSON.stringify(listed)).not.toContain('secret');
  });
});

test('keeps the latest 50 of a key', async () => {
  const { key, keyId } = await keyFor({ enabled: false });
  await fleet.verify(key);
  const ids: string[] = [];
  for (let round = 0; round < 4; round++)
    for (const { body } of await Promise.all(Array.from({ length: 60 }, () => fleet.verify(key))))
      ids.push(body.requestId);
  const last = (await fleet.verify(key)).body.requestId;
  await fleet.until(async () =>
    (await refusalsOf(keyId)).some(({ requestId }: { requestId: string }) => requestId === last),
  );
  const listed = await refusalsOf(keyId);
  expect(listed).toHaveLength(REFUSALS_KEPT.ofKey);
  for (const { requestId } of listed) expect([...ids, last]).toContain(requestId);
  const name = refusalsKey('shop', keyId);
  expect(await fleet.client.hlen(name)).toBe(REFUSALS_KEPT.ofKey + 1);
  expect(await fleet.client.ttl(name)).toBeGreaterThan(REFUSALS_KEPT_S - 100);
});

test('lists the keys refused in a time, and why', async () => {
  const api = { apiId: 'refusing' };
  const off = await keyFor({ ...api, name: 'off', externalId: 'ada', enabled: false });
  const bare = await keyFor({ ...api, permissions: [] });
  const asked = { authorization: { permissions: 'files.write' } };
  for (const question of [{}, {}]) await fleet.verify(off.key, question);
  const latest = Math.max(...(await refusals(off.keyId, 2)).map(({ time }: { time: number }) => time));
  // Later by the clock, which tells whole milliseconds.
  await fleet.until(() => Date.now() > latest);
  await fleet.verify(bare.key, asked);
  const [last] = await refusals(bare.keyId, 1);
  const listed = async (conditions: object = {}) =>
    (await fleet.ok('apis.listRefusedKeys', { ...api, ...conditions })).keys;
  const ofBare = { keyId: bare.keyId, count: 1, refusal: { detail: 'lacks files.write' } };
  const ofOff = { keyId: off.keyId, name: 'off', externalId: 'ada', count: 2, refusal: { code: 'DISABLED' } };
  expect(await listed()).toMatchObject([ofBare, ofOff]);
  expect(await listed({ code: 'DISABLED' })).toMatchObject([ofOff]);
  expect(await listed({ code: 'EXPIRED' })).toEqual([]);
  expect(await listed({ since: String(last.time) })).toMatchObject([ofBare]);
  expect(await listed({ until: String(last.time - 1) })).toMatchObject([ofOff]);
  expect(await listed({ limit: '1' })).toHaveLength(1);
  await fleet.ok('keys.deleteKey', { keyId: off.keyId });
  expect(await listed()).toMatchObject([ofBare]);
  expect((await fleet.admin('apis.listRefusedKeys', { apiId: 'never' })).status).toBe(404);
});

test('lists those of an API in order, from a cursor', async () => {
  const apiId = 'followed';
  const named = await keyFor({ apiId, name: 'Ada', enabled: false });
  const other = await keyFor({ apiId, allowedIps: ['192.0.2.1'] });
  const list = (input: object = {}) => fleet.ok('apis.listRefusals', { apiId, ...input });
  const { cursor: start, ...none } = await list();
  expect(none).toEqual({ refusals: [], missed: 0 });
  const ids: string[] = [];
  for (const { key, keyId } of [named, other, named]) {
    ids.push((await fleet.verify(key)).body.requestId);
    await fleet.until(async () =>
      (await refusalsOf(keyId)).some(({ requestId }: { requestId: string }) => requestId === ids.at(-1)),
    );
  }
  const all = await list({ after: start });
  expect(all.refusals.map(({ requestId }: { requestId: string }) => requestId)).toEqual(ids);
  const { keyId, key } = named;
  expect(all.refusals[0]).toMatchObject({
    keyId,
    name: 'Ada',
    code: 'DISABLED',
    detail: 'the key is disabled',
  });
  expect(key.startsWith(all.refusals[0].start)).toBe(true);
  expect(all.refusals[1]).not.toHaveProperty('name');
  const first = await list({ after: start, limit: '2' });
  expect(first.refusals).toEqual(all.refusals.slice(0, 2));
  expect((await list({ after: first.cursor })).refusals).toEqual(all.refusals.slice(2));
  expect((await list({ after: all.cursor })).refusals).toEqual([]);
  expect((await list({ limit: '1' })).refusals).toEqual(all.refusals.slice(2));

  await fleet.ok('keys.deleteKey', { keyId });
  expect((await list()).refusals[0]).not.toHaveProperty('start');
  expect((await fleet.admin('apis.listRefusals', { apiId: 'absent' })).status).toBe(404);
  const wrong = await fleet.admin('apis.listRefusals', { apiId, after: 'x' });
  expect(wrong.body.error.message).toMatch(/^after: must be one that listRefusals returned/);
  // What Redis has forgotten it begins anew, and tells what a reader has missed.
  await fleet.client.hset(latestRefusalsKey(apiId), '#', REFUSALS_KEPT.ofApi + 3);
  expect(await list({ after: all.cursor })).toMatchObject({ refusals: [], missed: 100 });
  expect(await list({ after: start })).toMatchObject({ refusals: [], missed: 103 });
  await fleet.client.hset(latestRefusalsKey(apiId), '#', 2);
  expect((await list({ after: all.cursor })).refusals).toHaveLength(2);
});

test('traces a request for who may read its key', async () => {
  const { key, keyId } = await keyFor({ enabled: false });
  const { requestId } = (await fleet.verify(key)).body;
  await refusals(keyId, 1);
  expect(await fleet.ok('verdicts.find', { requestId })).toMatchObject({
    ...{ apiId: 'shop', keyId, refusal: { code: 'DISABLED', requestId } },
  });
  await fleet.ok('apis.createApi', { apiId: 'other', name: 'other' });
  const rootKeyFor = async (permission: string) =>
    (await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: [permission] })).key;
  const rootKey = await rootKeyFor('api.other.read_key');
  expect((await fleet.admin('verdicts.find', { requestId }, { rootKey })).status).toBe(404);
  expect((await fleet.admin('keys.listRefusals', { keyId }, { rootKey })).status).toBe(404);
  const own = await rootKeyFor('api.shop.read_key');
  expect((await fleet.ok('verdicts.find', { requestId }, { rootKey: own })).keyId).toBe(keyId);
  expect((await fleet.admin('verdicts.find', { requestId: 'unknown' })).status).toBe(404);
  const run = (line: string) => commandLine.run(line.split(' '), envOf(fleet));
  expect((await run(`keys refusals --request ${requestId}`)).stdout).toContain(keyId);
  expect((await run(`keys refusals ${keyId}`)).stdout).toMatch(
    new RegExp(`DISABLED  the key is disabled +${requestId}`),
  );
  expect((await run('keys refusals')).status).toBe(64);
});

test('records no valid, unknown or malformed key', async () => {
  const { key, keyId } = await keyFor({});
  const marker = await keyFor({ enabled: false });
  await fleet.verify(key);
  await fleet.verify('unknown');
  await fleet.verifyOnce(key, { wrong: 1 });
  await fleet.verify(marker.key);
  await refusals(marker.keyId, 1);
  expect(await refusalsOf(keyId)).toEqual([]);
});

test('a library verifier reports refusals too', async () => {
  const { key, keyId } = await keyFor({ enabled: false });
  const verifier = createVerifier({
    redis: fleet.redisUrl,
    apiIds: ['shop'],
    lookupWaitMs: 5000,
    usagePeriodMs: 600_000,
  });
  await verifier.ready();
  expect(await verifier.verify(key, { clientIp: '192.0.2.1' })).toMatchObject({ code: 'DISABLED' });
  await verifier.close();
  const [refusal] = await refusals(keyId, 1);
  expect(refusal).toMatchObject({ code: 'DISABLED', clientIp: '192.0.2.1' });
  expect(refusal.requestId).toBeUndefined();
});

test('drops and counts them while Redis is away', async () => {
  const { key, keyId } = await keyFor({ enabled: false });
  await fleet.verify(key);
  await refusals(keyId, 1);
  const dropped = async () => {
    const { body } = await fleet.get(`${fleet.verifiers[0]?.adminAddress}/metrics`);
    return Number(/^keyfence_refusals_dropped_total (\d+)$/m.exec(body)?.[1]);
  };
  await fleet.redis.stop();
  try {
    expect((await fleet.verifyOnce(key)).body.code).toBe('DISABLED');
    await fleet.until(async () => (await dropped()) >= 1);
  } finally {
    await fleet.startRedis();
  }
  expect((await fleet.verify(key)).body.code).toBe('DISABLED');
  // The tests after this one create keys. Readiness alone may be of before the outage.
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'shop' })).status === 200);
});

test('a killed verifier loses only the unreported', async () => {
  const { key, keyId } = await keyFor({ enabled: false });
  const verifier = new Process('verifier/main.ts', {
    ...{ REDIS_URL: fleet.redisUrl, API_IDS: 'shop', USAGE_PERIOD_MS: '50' },
  });
  const refused = async () => {
    const answer = await fleet.decided(() => fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key }));
    expect(answer.body.code).toBe('DISABLED');
    return answer.body.requestId;
  };
  const listed = async (count: number) =>
    (await refusals(keyId, count)).map(({ requestId }: { requestId: string }) => requestId);
  try {
    await verifier.start();
    const first = await refused();
    expect(await listed(1)).toEqual([first]);
    await verifier.stop('SIGKILL');
    await verifier.start();
    expect(await listed(1)).toEqual([first]);
    const second = await refused();
    expect(await listed(2)).toEqual([second, first]);
  } finally {
    await verifier.stop('SIGKILL');
  }
});

describe('a report', () => {
  const apiId = 'bounds';
  let nodes: RedisNodes;
  beforeAll(() => {
    const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
    nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
  });
  afterAll(() => nodes.close());

  type Noted = { keyId: string; requestId: string };
  const of = (keyId: string, from: number, to: number): Noted[] =>
    Array.from({ length: to - from }, (_, i) => ({ keyId, requestId: `${keyId}_${from + i}` }));
  const keys = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, i) => of(`key_${from + i}`, 0, 1)).flat();
  /** Reports these refusals, in this order. Returns how many were dropped. */
  async function report(noted: readonly Noted[]): Promise<number> {
    const log = createLogger('verifier', 'silent');
    const waiting = new Refusals({ nodes, clock: systemClock, log, verifier: 'v', periodMs: 600_000 });
    const entries = new Map(noted.map(({ keyId }) => [keyId, { keyId, epoch: { apiId } } as Entry]));
    for (const { keyId, requestId } of noted)
      waiting.note({ code: 'DISABLED', entry: entries.get(keyId) } as Verdict, questionAbout('k'), {
        requestId,
      });
    waiting.run();
    await waiting.stop();
    return waiting.dropped;
  }
  const requestsOf = async (keyId: string) =>
    Object.entries(await fleet.client.hgetall(refusedRequestsKey(apiId)))
      .flatMap(([requestId, owner]) => (owner === keyId ? [requestId] : []))
      .sort();
  const idsOf = (noted: readonly Noted[]) => noted.map(({ requestId }) => requestId).sort();

  test('has the latest 50 of a key, the oldest first', async () => {
    expect(await report(of('often', 100, 223))).toBe(0);
    expect(await requestsOf('often')).toEqual(idsOf(of('often', 173, 223)));
    await report(of('often', 223, 233));
    expect(await requestsOf('often')).toEqual(idsOf(of('often', 183, 233)));
  });

  test('has at most 5,000 refusals, of 2,000 keys', async () => {
    // What finds no room is dropped, if its key has none of which it could take the place.
    expect(await report([...keys(0, 5100), ...of('key_4999', 1, 3)])).toBe(100);
    expect(await requestsOf('key_4999')).toEqual(['key_4999_2']);
    expect(await fleet.client.hlen(refusedRequestsKey(apiId))).toBe(2000);
    expect(await report(keys(5100, 5110))).toBe(0);
    expect(await fleet.client.hlen(refusedRequestsKey(apiId))).toBe(2000);
    expect(await fleet.client.hlen(refusedKeysKey(apiId))).toBe(1 + 2 * 2000);
    const kept = ['often', 'key_0', 'key_3009', 'key_3010', 'key_4999', 'key_5000', 'key_5109'];
    expect(await Promise.all(kept.map((keyId) => fleet.client.exists(refusalsKey(apiId, keyId))))).toEqual([
      0, 0, 0, 1, 1, 0, 1,
    ]);
  });
});

describe('report-refusals.lua', () => {
  const report = (keyId: string, ids: readonly string[], [keysKept = 3, kept = 2]: readonly number[] = []) =>
    send(
      fleet.client,
      reportRefusals({
        ...{ keys: refusedKeysKey('lua'), requests: refusedRequestsKey('lua'), keysKept, kept },
        ...{ latest: latestRefusalsKey('lua'), latestKept: 4 },
        ...{ names: [refusalsKey('lua', keyId)], prefix: refusalsKey('lua', ''), seconds: 1000 },
        refusals: [keyId, ids.length, ...ids.flatMap((id) => [id, `{"r":"${id}"}`])],
      }),
    );
  const requests = async () => Object.entries(await fleet.client.hgetall(refusedRequestsKey('lua'))).sort();

  test('bounds refusals and keys, forgetting the rest', async () => {
    await report('a', ['a1', 'a2', 'a3']);
    expect(await requests()).toEqual([
      ['a2', 'a'],
      ['a3', 'a'],
    ]);
    for (const keyId of ['b', 'c', 'a', 'd', 'e']) await report(keyId, [`${keyId}9`]);
    // `a` and `b` were refused first.
    expect((await requests()).map(([id]) => id)).toEqual(['c9', 'd9', 'e9']);
    expect(await fleet.client.exists(refusalsKey('lua', 'a'), refusalsKey('lua', 'b'))).toBe(0);
    expect(await fleet.client.exists(...['c', 'd', 'e'].map((keyId) => refusalsKey('lua', keyId)))).toBe(3);
    expect(await fleet.client.hlen(refusedKeysKey('lua'))).toBe(1 + 2 * 3);
    expect(Object.values(await fleet.client.hgetall(latestRefusalsKey('lua'))).sort()).toEqual([
      ...['5 c {"r":"c9"}', '6 a {"r":"a9"}', '7 d {"r":"d9"}', '8', '8 e {"r":"e9"}'],
    ]);
    await report('a', ['a5', '', '']);
    expect((await requests()).map(([id]) => id)).toEqual(['d9', 'e9']);
    for (const name of await fleet.client.keys('kf:{lua}:u:*'))
      expect(await fleet.client.ttl(name)).toBeGreaterThan(900);
  });
});
