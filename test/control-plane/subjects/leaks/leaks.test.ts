import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { Receiver } from '../webhooks/receiver.ts';
import { bodyOf, publish, Reporter, send } from './reporter.ts';

const github = new Reporter('90a421169f0a406205f1563a953312f0be898d3c7b6c06b681aa86a874555f4a');
const stranger = new Reporter(github.identifier);

/** A control plane with each policy, over one Redis. */
let fleet: Fleet;
const TELL = 0;
const DISABLE = 1;
const OFF = 2;
let keysFile = '';

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '2000', WEBHOOK_NETWORKS: '127.0.0.0/8' } });
  keysFile = join(fleet.directory, 'public-keys.json');
  publish(keysFile, [github]);
  const env = {
    LEASE_MS: '2000',
    WEBHOOK_NETWORKS: '127.0.0.0/8',
    LEAKS_PUBLIC_KEYS_FILE: keysFile,
    FAILURES_PER_MINUTE: '0',
  };
  const [off] = fleet.controlPlanes.splice(0);
  await fleet.addControlPlane({ ...env, LEAKS: 'tell' });
  await fleet.addControlPlane({ ...env, LEAKS: 'disable' });
  if (off) fleet.controlPlanes.push(off);
  await fleet.addVerifier({ LEASE_MS: '2000' });
});
afterAll(() => fleet.stop());

const addressOf = (at: number) => fleet.controlPlanes[at]?.address ?? '';
const report = (body: string, at = DISABLE, headers = github.headers(body)) =>
  send(addressOf(at), body, headers);
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const feedback = (secret: string, label: string) => ({
  token_hash: sha256(secret),
  token_type: 'shop_key',
  label,
});
const createKey = (fields: object = {}): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const enabledOf = async (keyId: string) => (await fleet.ok('keys.getKey', { keyId })).enabled !== false;
const eventsOf = async (filter: object) =>
  (await fleet.ok('audit.listEvents', { operation: 'leaks.report', ...filter })).events;
const leaksCounted = (kind: string, at = DISABLE) =>
  metric(fleet.controlPlanes[at]?.adminAddress, `keyfence_leaked_secrets_total{kind="${kind}"}`);

describe('a signed report', () => {
  test('is told of under `tell`: in the audit log, in the log and in a metric, and the key stays', async () => {
    const { key, keyId } = await createKey();
    const before = (await leaksCounted('key', TELL)) ?? 0;
    const { status, body } = await report(bodyOf([key]), TELL);
    expect([status, body]).toEqual([200, [feedback(key, 'true_positive')]]);
    expect(await enabledOf(keyId)).toBe(true);
    const leak = { type: 'shop_key', source: 'content', url: 'https://github.example/blob/1/0.txt' };
    expect(await eventsOf({ keyId })).toMatchObject([
      { outcome: 'OK', on: { apiId: 'shop', keyId }, after: { leak }, by: { address: '127.0.0.1' } },
    ]);
    expect(fleet.logged.filter((line) => line.includes('a secret leaked'))).toContainEqual(
      expect.stringContaining(keyId),
    );
    expect(await leaksCounted('key', TELL)).toBe(before + 1);
  });

  test('is shown with its key, but not with the key that replaces it', async () => {
    const [{ key, keyId }] = [await createKey({ apiId: 'shown' }), await createKey({ apiId: 'shown' })];
    const before = Date.now();
    expect((await report(bodyOf([key]), TELL)).status).toBe(200);
    const { leaked } = await fleet.ok('keys.getKey', { keyId });
    expect(leaked.url).toBe('https://github.example/blob/1/0.txt');
    expect(leaked.at).toBeGreaterThanOrEqual(before);
    const rotated = await fleet.ok('keys.rerollKey', { keyId, expiration: 60_000 });
    expect(await fleet.ok('keys.getKey', { keyId: rotated.keyId })).not.toHaveProperty('leaked');
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shown', leaked: 'true' });
    expect(keys).toMatchObject([{ keyId, leaked }]);
  });

  test('disables the keys under `disable`, at every verifier before the answer, and leaves others alone', async () => {
    const [leaked, disabled, spared] = [await createKey(), await createKey(), await createKey()];
    const other = await createKey({ apiId: 'billing' });
    await fleet.ok('keys.updateKey', { keyId: disabled.keyId, enabled: false });
    for (const { key } of [leaked, spared, other]) expect(await fleet.verdict(key)).toBe('VALID');
    const unknown = generateKey(16, 'shop');
    const secrets = [leaked.key, unknown, other.key, disabled.key, leaked.key];
    const { status, body } = await report(bodyOf(secrets));
    expect(status).toBe(200);
    expect(body).toEqual([
      feedback(leaked.key, 'true_positive'),
      feedback(unknown, 'false_positive'),
      feedback(other.key, 'true_positive'),
      feedback(disabled.key, 'true_positive'),
    ]);
    for (const { key } of [leaked, other]) expect((await fleet.verifyOnce(key)).body.code).toBe('DISABLED');
    expect(await fleet.verdict(spared.key)).toBe('VALID');
    expect(await eventsOf({ keyId: leaked.keyId })).toMatchObject([
      { outcome: 'OK', before: { enabled: true }, after: { enabled: false, leak: {} }, sequence: 2 },
    ]);
    const [told] = await eventsOf({ keyId: disabled.keyId });
    expect(told).not.toHaveProperty('sequence');
  });

  test('is told to webhooks, and so is the disable', async () => {
    const receiver = await Receiver.start();
    const { endpointId } = await fleet.ok('webhooks.createEndpoint', {
      url: receiver.url,
      events: ['key.*'],
    });
    const [told, disabled] = [await createKey(), await createKey()];
    expect((await report(bodyOf([told.key]), TELL)).status).toBe(200);
    expect((await report(bodyOf([disabled.key]))).status).toBe(200);
    await fleet.until(() => receiver.typesOf(disabled.keyId).length === 3);
    expect(receiver.typesOf(told.keyId)).toEqual(['key.created', 'key.leaked']);
    expect(receiver.typesOf(disabled.keyId)).toEqual(['key.created', 'key.leaked', 'key.disabled']);
    const bodies = receiver.received.map(({ text }) => text).join();
    for (const { key } of [told, disabled]) expect(bodies).not.toContain(key);
    await fleet.ok('webhooks.deleteEndpoint', { endpointId });
    await receiver.stop();
  });

  test('a second time changes nothing, with whatever signature: not even a key that was enabled again', async () => {
    const { key, keyId } = await createKey();
    const body = bodyOf([key]);
    const first = github.headers(body);
    expect((await report(body, DISABLE, first)).status).toBe(200);
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    // Each signature of ECDSA is another.
    for (const headers of [first, github.headers(body)]) {
      const { status, body: answer } = await report(body, DISABLE, headers);
      expect([status, answer]).toEqual([200, [feedback(key, 'true_positive')]]);
    }
    expect(await enabledOf(keyId)).toBe(true);
    expect(await eventsOf({ keyId })).toHaveLength(1);
    // Another place is another leak.
    expect((await report(bodyOf([key], { url: 'https://github.example/elsewhere' }))).status).toBe(200);
    expect(await enabledOf(keyId)).toBe(false);
  });

  test('that comes again while it is handled waits for the first, which disables a key once', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'slow' });
    // A follower that says nothing keeps the change open until its lease is over.
    await fleet.client.zadd(apiKeys('slow').members, '0', `${PROTOCOL}.silent`);
    const body = bodyOf([key]);
    const first = report(body);
    await fleet.until(async () => !(await enabledOf(keyId)));
    await fleet.ok('keys.updateKey', { keyId, enabled: true, waitMs: 0 });
    expect((await report(body)).status).toBe(503);
    expect((await first).status).toBe(200);
    expect((await report(body)).status).toBe(200);
    expect(await enabledOf(keyId)).toBe(true);
  });

  test('disables a root key only under `disable`, and never one of the configuration', async () => {
    const rootKey = () => fleet.ok('rootKeys.createRootKey', { name: 'ci', permissions: ['api.*.read_key'] });
    const [told, stopped] = [await rootKey(), await rootKey()];
    expect((await report(bodyOf([told.key]), TELL)).body).toEqual([feedback(told.key, 'true_positive')]);
    const body = bodyOf([stopped.key, ROOT_KEY], {
      url: `https://github.example/${ROOT_KEY}/${stopped.key}`,
    });
    expect((await report(body)).body).toEqual(
      [stopped.key, ROOT_KEY].map((each) => feedback(each, 'true_positive')),
    );
    const states = new Map<string, boolean>();
    for (const each of (await fleet.ok('rootKeys.listRootKeys')).rootKeys)
      states.set(each.rootKeyId, each.enabled);
    expect([states.get(told.rootKeyId), states.get(stopped.rootKeyId)]).toEqual([true, false]);
    const refused = await fleet.admin('apis.listApis', {}, { rootKey: stopped.key });
    expect(refused.status).toBe(401);
    const [event] = (await eventsOf({})).filter(({ on }: { on: object }) =>
      JSON.stringify(on).includes(stopped.rootKeyId),
    );
    expect(event).toMatchObject({ before: { enabled: true }, after: { enabled: false } });
    expect(JSON.stringify(await eventsOf({}))).toContain('bootstrap_');
  });

  test('leaves no secret in the log, the audit log or Redis', async () => {
    const { key, keyId } = await createKey();
    const foreign = 'sk_live_51HbDeFgHiJkLmNoPqRsTuVwXyZ0123456789';
    const body = bodyOf([key, foreign], { url: `https://github.example/?key=${key}&other=${foreign}` });
    expect((await report(body)).status).toBe(200);
    const [event] = await eventsOf({ keyId });
    expect(event.after.leak.url).toBe('https://github.example/?key=[a key]&other=[a key]');
    const stored = (await fleet.client.xrange('kf:{!audit}:done', '-', '+')).flat(2).join('\n');
    const marks = (await fleet.client.keys('kf:l:*')).join('\n');
    for (const secret of [key, foreign, ROOT_KEY])
      for (const text of [fleet.logged.join('\n'), stored, marks]) expect(text).not.toContain(secret);
  });

  test('about a deleted key, and about a key that was replaced, says so', async () => {
    const [deleted, replaced] = [await createKey(), await createKey()];
    await fleet.ok('keys.deleteKey', { keyId: deleted.keyId });
    const { key: next } = await fleet.ok('keys.rerollKey', { keyId: replaced.keyId, expiration: 60_000 });
    const { body } = await report(bodyOf([deleted.key, replaced.key]));
    expect(body).toEqual([feedback(deleted.key, 'false_positive'), feedback(replaced.key, 'true_positive')]);
    expect(await fleet.verdict(replaced.key)).toBe('DISABLED');
    expect(await fleet.verdict(next)).toBe('VALID');
  });

  test('of hundreds of keys disables all of them', async () => {
    const keys = await Promise.all(Array.from({ length: 200 }, () => createKey()));
    const { status, body } = await report(bodyOf(keys.map(({ key }) => key)));
    expect([status, body.length]).toEqual([200, 200]);
    const { keys: listed } = await fleet.ok('apis.listKeys', { apiId: 'shop', limit: '100' });
    for (const { keyId, enabled } of listed)
      if (keys.some((each) => each.keyId === keyId)) expect(enabled).toBe(false);
    expect(await enabledOf(keys.at(-1)?.keyId ?? '')).toBe(false);
  });
});

describe('no report', () => {
  let key = '';
  let keyId = '';
  let body = '';
  beforeAll(async () => {
    ({ key, keyId } = await createKey());
    body = bodyOf([key]);
  });
  const changed = (name: string, value: string | undefined) => {
    const { [`github-public-key-${name}`]: _, ...headers } = github.headers(body);
    return value === undefined ? headers : { ...headers, [`github-public-key-${name}`]: value };
  };

  test.each([
    ['without a signature', () => changed('signature', undefined)],
    ['without an identifier', () => changed('identifier', undefined)],
    ['with a signature of another key', () => stranger.headers(body)],
    ['with a signature of another body', () => ({ ...github.headers(body), ...github.headers(`${body} `) })],
    ['with a signature that is no base64', () => changed('signature', 'ä!')],
    ['with an empty signature', () => changed('signature', '')],
    ['with the identifier of an unknown key', () => changed('identifier', 'f'.repeat(64))],
    [
      'with only a root key',
      () => ({ 'content-type': 'application/json', authorization: `Bearer ${ROOT_KEY}` }),
    ],
  ])('is believed %s', async (_, headersOf) => {
    const { status, body: answer } = await report(body, DISABLE, headersOf());
    expect([status, answer.error.code]).toEqual([401, 'UNAUTHORIZED']);
    expect(answer.error.message).toMatch(/^Github-Public-Key-/);
    expect(await enabledOf(keyId)).toBe(true);
  });

  test('is believed whose body was edited on the way', async () => {
    const edited = `${body} `;
    expect((await report(edited, DISABLE, github.headers(body))).status).toBe(401);
  });

  test.each([
    ['that is not JSON', '[', 400],
    ['that is no list', '{"token":"x","type":"y"}', 400],
    ['without a token', '[{"type":"y"}]', 400],
    ['with a token that is no text', '[{"token":1,"type":"y"}]', 400],
    ['with a token that is too long', JSON.stringify([{ token: 'x'.repeat(513), type: 'y' }]), 400],
    ['of more than 1,000 secrets', JSON.stringify(Array(1001).fill({ token: 'x', type: 'y' })), 413],
    ['over the limit of bytes', `[${' '.repeat(262_144)}]`, 413],
  ])('is taken %s', async (_, wrong, wanted) => {
    const { status, body: answer } = await report(wrong);
    expect(status).toBe(wanted);
    expect(answer.error.message).not.toBe('');
  });

  test('is taken where LEAKS is off', async () => {
    expect((await report(body, OFF)).status).toBe(404);
    expect(await enabledOf(keyId)).toBe(true);
  });
});

test('strange fields of a report are ignored, and an empty list is answered with one', async () => {
  const { key } = await createKey();
  const { status, body } = await report(bodyOf([key], { url: 7, future: [{}] }));
  expect([status, body]).toEqual([200, [feedback(key, 'true_positive')]]);
  expect((await report('[]')).body).toEqual([]);
});

test('thousands of secrets that are not ours cost Redis nothing, and unknown keys one look-up each', async () => {
  const commands = async () => {
    const stats = await fleet.client.info('commandstats');
    return (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  };
  const NAMES = ['get', 'hmget', 'hgetall', 'set', 'xadd', 'exists', 'eval', 'evalsha'];
  const spent = async (secrets: readonly string[]) => {
    const before = await commands();
    for (let i = 0; i < secrets.length; i += 1000) {
      const body = bodyOf(secrets.slice(i, i + 1000), { url: '' });
      expect((await report(body)).status).toBe(200);
    }
    const after = await commands();
    return Object.fromEntries(NAMES.map((name) => [name, after(name) - before(name)]));
  };
  // What runs beside it: verifiers that report, and checks of Redis.
  const noise = 100;
  const foreign = await spent(
    Array.from({ length: 5000 }, (_, i) => `ghp_${sha256(String(i)).slice(0, 36)}`),
  );
  for (const name of NAMES) expect([name, foreign[name]]).toEqual([name, expect.toSatisfy((n) => n < noise)]);
  const unknown = await spent(Array.from({ length: 2000 }, () => generateKey(16, 'shop')));
  expect(unknown['get']).toBeGreaterThanOrEqual(2000);
  expect(unknown['get']).toBeLessThan(2000 + noise);
  for (const name of NAMES.slice(1))
    expect([name, unknown[name]]).toEqual([name, expect.toSatisfy((n) => n < noise)]);
});

test('a replaced file of public keys is read again', async () => {
  const next = new Reporter('next');
  const file = join(fleet.directory, 'rotated.json');
  publish(file, [github]);
  let nowMs = 0;
  const { ReportKeys } = await import('../../../../control-plane/subjects/leaks/leaks.ts');
  const { systemClock } = await import('../../../../shared/process/clock.ts');
  const warnings: unknown[] = [];
  const log = { warn: (fields: unknown) => void warnings.push(fields) };
  const keys = new ReportKeys(file, { ...systemClock, monotonicMs: () => nowMs }, log);
  const check = (by: Reporter) => keys.check(by.identifier, by.sign('[]'), Buffer.from('[]'));
  publish(file, [next]);
  expect([await check(github), await check(next)]).toEqual(['valid', 'unknown key']);
  nowMs = 10_000;
  expect([await check(github), await check(next)]).toEqual(['unknown key', 'valid']);
  publish(file, []);
  nowMs = 20_000;
  expect(await check(next)).toBe('valid');
  expect(warnings).toHaveLength(1);
});

test('strangers are limited as strangers are anywhere, and not GitHub', async () => {
  const limited = await fleet.addControlPlane({
    ...{ LEAKS: 'disable', LEAKS_PUBLIC_KEYS_FILE: keysFile, LEASE_MS: '2000', FAILURES_PER_MINUTE: '3' },
  });
  const body = bodyOf([generateKey(16)]);
  const statuses: number[] = [];
  for (let i = 0; i < 5; i++)
    statuses.push((await send(limited.address, body, stranger.headers(body))).status);
  expect(statuses).toEqual([401, 401, 401, 429, 429]);
  expect((await send(limited.address, body, github.headers(body))).status).toBe(200);
});

test('while Redis is away a report is refused with 503, and counts once it is back', async () => {
  const { key, keyId } = await createKey();
  const body = bodyOf([key]);
  await fleet.redis.stop();
  const { status, headers } = await report(body);
  expect([status, headers['retry-after']]).toEqual([503, '1']);
  await fleet.startRedis();
  await fleet.until(async () => (await report(body)).status === 200);
  expect(await enabledOf(keyId)).toBe(false);
});
