import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, expectTypeOf, test } from 'vitest';
import type { Alias, IdentityField, KeyField } from '../../../shared/protocol/records/key-record.ts';
import type { redisSettings } from '../../../shared/redis/redis-settings.ts';
import { generateKey } from '../../../shared/rules/key-format.ts';
import type { VerdictCode } from '../../../shared/rules/verdict-codes.ts';
import type { VerdictValues } from '../../../verifier/core/verdict-body.ts';
import type { engineSettings } from '../../../verifier/engine.ts';
import { createClient } from '../../../verifier/library/client.ts';
import { createVerifier, VerifierError } from '../../../verifier/library/create-verifier.ts';
import type {
  KeyVerdict,
  KeyVerifier,
  RedisConnectionOptions,
  ValidKey,
  VerifierOptions,
} from '../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../harness/fleet.ts';

let fleet: Fleet;
const opened: KeyVerifier[] = [];
const lines: { fields: object; message: string }[] = [];
const say = (fields: object, message: string) => void lines.push({ fields, message });
const log = { debug: say, info: say, warn: say, error: say };

/** With a wait for look-ups that a slow machine does not exceed. */
function open(options: Partial<VerifierOptions> = {}): KeyVerifier {
  const verifier = createVerifier({
    redis: fleet.redisUrl,
    apiIds: ['shop'],
    lookupWaitMs: 5000,
    log,
    ...options,
  });
  opened.push(verifier);
  return verifier;
}

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000', USAGE_PERIOD_MS: '100' } });
  await fleet.ok('apis.createApi', { apiId: 'other', name: 'other' });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
});
afterAll(async () => {
  await Promise.all(opened.map((verifier) => verifier.close()));
  await fleet.stop();
});

/** Fails unless it rejects with a VerifierError of this code. */
const refusal = (code: string) => expect.objectContaining({ constructor: VerifierError, code });

test('every verdict is what verifyKey answers', async () => {
  const verifier = open({ apiIds: [] });
  const inAMoment = Date.now() + 60_000;
  const made = [
    {},
    { enabled: false },
    { expires: Date.now() + 5000 },
    { name: 'Ada', externalId: 'o1', environment: 'live', meta: { plan: { seats: 3 } }, expires: inAMoment },
  ];
  const keys = await Promise.all(
    made.map(
      async (fields) => (await fleet.ok('keys.createKey', { apiId: 'shop', ...fields })).key as string,
    ),
  );
  await fleet.until(async () => (await fleet.verdict(keys[2] ?? '')) === 'EXPIRED');
  const asked: [string, { apiId: string }?][] = [
    ...keys.map((key): [string] => [key]),
    [keys[0] ?? '', { apiId: 'other' }],
    [generateKey(16)],
    ['no key at all'],
  ];
  const codes = new Set<string>();
  for (const [key, options] of asked) {
    await fleet.verdict(key, options);
    const { requestId: _, ...wanted } = (await fleet.verify(key, options)).body;
    expect(await verifier.verify(key, options)).toEqual(wanted);
    expect(verifier.decide(key, options)).toEqual(wanted);
    expect(verifier.decide(key, options)).toEqual(wanted);
    codes.add(wanted.code);
  }
  expect([...codes].sort()).toEqual(['DISABLED', 'EXPIRED', 'FORBIDDEN', 'NOT_FOUND', 'VALID']);
});

test('a verdict is its own, with frozen meta', async () => {
  const verifier = open();
  const meta = { plan: { seats: [3] } };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Ada', meta });
  const first = (await verifier.verify(key)) as ValidKey & { name: string };
  first.name = 'Eve';
  for (const part of [first.meta, first.meta['plan'], (first.meta['plan'] as typeof meta.plan).seats])
    expect(Object.isFrozen(part)).toBe(true);
  expect(verifier.decide(key)).toMatchObject({ name: 'Ada', meta });
  await fleet.ok('keys.updateKey', { keyId, name: 'Bea', meta: { plan: 'none' } });
  expect(await verifier.verify(key)).toMatchObject({ name: 'Bea', meta: { plan: 'none' } });
});

test('a later change does not alter a question', async () => {
  const verifier = open();
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const options = { apiId: 'other' };
  expect((await verifier.verify(key, options)).code).toBe('FORBIDDEN');
  options.apiId = 'shop';
  expect((await verifier.verify(key, options)).code).toBe('VALID');
  const fixed = Object.freeze({ apiId: 'other' });
  for (const asked of [fixed, fixed, options, fixed])
    expect((await verifier.verify(key, asked)).code).toBe(asked === fixed ? 'FORBIDDEN' : 'VALID');
});

test('counts verdicts by the tags of the question', async () => {
  const verifier = open({ apiIds: ['tagged'], usagePeriodMs: 100 });
  const { key } = await fleet.ok('keys.createKey', { apiId: 'tagged' });
  const client = createClient({ url: fleet.verifiers[0]?.address ?? '' });
  opened.push(client);
  const validOf = (one: KeyVerifier, tags: string[]) =>
    fleet.until(async () => {
      const verdict = await one.verify(key, { tags }).catch(() => undefined);
      return verdict?.code === 'VALID';
    });
  await validOf(verifier, ['path=/orders']);
  await validOf(verifier, ['path=/orders']);
  await validOf(client, ['by=client']);
  await fleet.until(() => verifier.decide(key, { tags: ['method=GET', 'path=/orders'] }) !== undefined);
  for (const one of [verifier, client]) {
    const wrong: [unknown, RegExp][] = [
      ['a', /^tags: must be a list/],
      [[''], /^tags: must have 1 to 128/],
      [[5], /^tags: must be strings/],
    ];
    for (const [tags, message] of wrong) {
      const options = { tags: tags as string[] };
      expect(() => one.decide(key, options)).toThrow(message);
      await expect(one.verify(key, options)).rejects.toBeInstanceOf(TypeError);
    }
  }
  await fleet.until(async () => {
    const asked = { apiId: 'tagged', groupBy: 'tag' };
    const { verifications } = await fleet.ok('apis.getVerifications', asked);
    const counts = new Map<string, number>(
      verifications.map(({ tag, success }: { tag: string; success: number }) => [tag, success]),
    );
    return (
      counts.get('path=/orders') === 3 && counts.get('method=GET') === 1 && (counts.get('by=client') ?? 0) > 0
    );
  });
});

test('a question asks for permissions', async () => {
  const verifier = open();
  const client = createClient({ url: fleet.verifiers[0]?.address ?? '', timeoutMs: 10_000 });
  opened.push(client);
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', permissions: ['a', 'b'], remaining: 2 });
  for (const one of [verifier, client]) {
    expect(await one.verify(key, { permissions: 'a AND c' })).toMatchObject({
      ...{ valid: false, code: 'INSUFFICIENT_PERMISSIONS', permissions: ['a', 'b'] },
    });
    const good = await one.verify(key, { permissions: { and: ['a', { or: ['b', 'c'] }] } });
    expect(good).toMatchObject({ valid: true, permissions: ['a', 'b'] });
  }
  expect(await verifier.verify(key, { permissions: 'a' })).toMatchObject({ code: 'USAGE_EXCEEDED' });
});

test('a question names rate limits and their costs', async () => {
  const verifier = open();
  const client = createClient({ url: fleet.verifiers[0]?.address ?? '', timeoutMs: 10_000 });
  opened.push(client);
  const month = 30 * 86_400_000;
  const { key } = await fleet.ok('keys.createKey', {
    apiId: 'shop',
    ratelimit: { limit: 3, duration: month, async: false },
    ratelimits: [{ name: 'tokens', limit: 500, duration: month }],
  });
  const tokens = (cost: number) => ({ ratelimits: [{ name: 'tokens', cost }] });
  expect(await verifier.verify(key, tokens(250))).toMatchObject({
    code: 'VALID',
    ratelimit: { limit: 3, remaining: 2 },
    ratelimits: [{ name: 'default' }, { name: 'tokens', remaining: 250, exceeded: false }],
  });
  expect(await client.verify(key, tokens(251))).toMatchObject({
    code: 'RATE_LIMITED',
    ratelimits: [{ name: 'default' }, { name: 'tokens', remaining: 250, exceeded: true }],
  });
  const own = { name: 'uploads', limit: 1, duration: month };
  expect((await client.verify(key, { ratelimits: [own] })).code).toBe('VALID');
  expect((await verifier.verify(key, { ratelimits: [own] })).code).toBe('RATE_LIMITED');
  expect((await verifier.verify(key)).code).toBe('VALID');
  for (const one of [verifier, client]) {
    expect(await one.verify(key)).toMatchObject({ code: 'RATE_LIMITED', ratelimit: { remaining: 0 } });
    const unknown = one.verify(key, { ratelimits: [{ name: 'none' }] });
    await expect(unknown).rejects.toThrow(
      /^ratelimits: neither the key nor its identity or roles have a limit named none/,
    );
    await expect(unknown).rejects.toBeInstanceOf(TypeError);
    expect((await one.verify(key, { ratelimits: [{ name: 'default', cost: 0 }] })).code).toBe('VALID');
  }
});

test('a disable waits for each verifier here', async () => {
  const [one, two] = [open(), open()];
  await Promise.all([one.ready(), two.ready()]);
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  for (const verifier of [one, two]) {
    expect(verifier.decide(key)).toBeUndefined();
    expect((await verifier.verify(key)).code).toBe('VALID');
  }
  await one.close();
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(two.decide(key)).toMatchObject({ valid: false, code: 'DISABLED', keyId });
  expect(propagation).toMatchObject({ state: 'complete', by: 'acks' });
  expect(one.decide(key)).toBeUndefined();
  await expect(one.verify(key)).rejects.toEqual(refusal('CLOSED'));
});

test('closing leaves the fence, also if said twice', async () => {
  const verifier = open({ apiIds: ['left'] });
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'left' });
  await verifier.ready();
  const listed = async () =>
    (await fleet.ok('fleet.listVerifiers')).verifiers.filter(({ apis }: { apis: { apiId: string }[] }) =>
      apis.some(({ apiId }) => apiId === 'left'),
    ).length;
  const update = async () =>
    (await fleet.ok('keys.updateKey', { keyId, enabled: true })).propagation.verifiers;
  await fleet.until(async () => (await listed()) === 1);
  expect(await update()).toBe(1);
  await Promise.all([verifier.close(), verifier.close()]);
  expect(await update()).toBe(0);
  expect(await listed()).toBe(0);
});

test('rejects what is asked while it closes', async () => {
  const verifier = open();
  await verifier.ready();
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const ready = verifier.ready();
  const asked = Promise.allSettled([verifier.verify(key), verifier.ready(), ready]);
  await verifier.close();
  for (const result of await asked) {
    if (result.status === 'rejected') expect(result.reason).toEqual(refusal('CLOSED'));
    else expect(result.value ?? { code: 'VALID' }).toMatchObject({ code: 'VALID' });
  }
  await expect(verifier.verify(key)).rejects.toEqual(refusal('CLOSED'));
  await expect(verifier.ready()).rejects.toEqual(refusal('CLOSED'));
});

test('a missing Redis gives no verdict, no throw', async () => {
  const verifier = open({ redis: { url: 'unix:///tmp/keyfence-no-such-socket', password: 'hidden-word' } });
  await expect(verifier.ready({ timeoutMs: 50 })).rejects.toEqual(refusal('SERVICE_UNAVAILABLE'));
  await expect(verifier.ready({ timeoutMs: 0 })).rejects.toThrow(/not ready within 0 ms/);
  const error = await verifier.verify(generateKey(16)).catch((reason) => reason);
  expect(error).toEqual(refusal('SERVICE_UNAVAILABLE'));
  expect(error.retryAfterSeconds).toBe(1);
  const waiting = expect(verifier.ready()).rejects.toEqual(refusal('CLOSED'));
  await verifier.close();
  await waiting;
});

test('tells what it waits for', async () => {
  const silent = createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const waiting = open({ apiIds: ['other', 'shop'], redis: `redis://127.0.0.1:${port}` });
  await expect(waiting.ready({ timeoutMs: 50 })).rejects.toThrow(/: not yet in sync: other, shop$/);
  silent.close();
  const nowhere = open({ redis: 'unix:///tmp/keyfence-no-such-socket' });
  await expect
    .poll(() => nowhere.ready({ timeoutMs: 50 }).catch(({ message }: Error) => message))
    .toMatch(/: not yet in sync: shop; .*ENOENT/);
});

test('is ready without APIs once Redis answers', async () => {
  const nowhere = open({ apiIds: [], redis: 'unix:///tmp/keyfence-no-such-socket' });
  await expect(nowhere.ready({ timeoutMs: 50 })).rejects.toThrow(/Redis has not answered yet/);
  await open({ apiIds: [] }).ready();
});

test('a non-key is unknown, a non-question throws', async () => {
  const verifier = open();
  for (const key of ['', 'x'.repeat(513), '\ud800', 'ä'])
    expect(await verifier.verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
  const wrong: [unknown, unknown, RegExp][] = [
    [undefined, undefined, /^key: must be a string/],
    [['a'], undefined, /^key: must be a string/],
    ['a', { apiId: undefined }, /^apiId: must match/],
    ['a', { apiId: '' }, /^apiId: must match/],
    ['a', { apiId: 'no api' }, /^apiId: must match/],
    ['a', { apiID: 'shop' }, /^apiID: unknown option/],
    ['a', null, /^options: must be an object/],
    ['a', { remaining: undefined }, /^remaining: must not be undefined/],
    ['a', { remaining: 1 }, /^remaining: must be an object/],
    ['a', { remaining: { cost: -1 } }, /^remaining\.cost: must be a whole number/],
    ['a', { remaining: { price: 1 } }, /^remaining\.price: unknown option/],
    ['a', { permissions: undefined }, /^permissions: must not be undefined/],
    ['a', { permissions: 'a AND' }, /^permissions: expected a permission/],
    ['a', { permissions: { and: [] } }, /^permissions: must be a permission/],
    ['a', { authorization: { permissions: 'a' } }, /^authorization: unknown option/],
    ['a', { ratelimits: undefined }, /^ratelimits: must not be undefined/],
    ['a', { ratelimits: { name: 'a' } }, /^ratelimits: must be a list/],
    ['a', { ratelimits: [{ name: 'a', cost: Number.NaN }] }, /^ratelimits\.0\.cost: must be a whole number/],
    [
      'a',
      { ratelimits: [{ name: 'a', limit: 5 }] },
      /^ratelimits\.0: limit and duration must be set together/,
    ],
    ['a', { ratelimits: [{ name: 'a' }, { name: 'a' }] }, /^ratelimits: must contain a only once/],
  ];
  for (const [key, options, message] of wrong) {
    const ask = [key, options] as Parameters<KeyVerifier['verify']>;
    expect(() => verifier.decide(...ask)).toThrow(message);
    await expect(verifier.verify(...ask)).rejects.toThrow(message);
    await expect(verifier.verify(...ask)).rejects.toBeInstanceOf(TypeError);
  }
});

/** The name of a setting in code. */
type CamelCase<S> = S extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<CamelCase<Rest>>}`
  : S extends string
    ? Lowercase<S>
    : never;
type WithoutPrefix<S> = S extends `REDIS_${infer Name}` ? Name : never;

test('the types name every verdict and field', () => {
  expectTypeOf<Exclude<VerdictCode, KeyVerdict['code']>>().toEqualTypeOf<never>();
  expectTypeOf<
    Exclude<
      Exclude<KeyField, IdentityField | 'concurrency' | 'allowedIps' | 'allowedOrigins'> | Alias,
      keyof ValidKey
    >
  >().toEqualTypeOf<never>();
  expectTypeOf<Exclude<keyof VerdictValues, keyof ValidKey>>().toEqualTypeOf<never>();
  expectTypeOf<Exclude<keyof ValidKey, keyof VerdictValues | 'valid' | 'code'>>().toEqualTypeOf<never>();
});

describe('options', () => {
  test('the types name every setting and no more', () => {
    type Engine = Exclude<keyof VerifierOptions, 'redis' | 'apiIds' | 'log'>;
    expectTypeOf<Engine>().toEqualTypeOf<CamelCase<keyof typeof engineSettings>>();
    type Connection = CamelCase<WithoutPrefix<keyof typeof redisSettings>>;
    expectTypeOf<keyof RedisConnectionOptions>().toEqualTypeOf<Connection>();
  });

  const faultsOf = (options: unknown) => {
    let fault: unknown;
    try {
      createVerifier(options as VerifierOptions);
    } catch (error) {
      fault = error;
    }
    expect(fault).toBeInstanceOf(TypeError);
    return (fault as Error).message;
  };

  test.each<[unknown, RegExp]>([
    [undefined, /options: must be an object/],
    [{}, /redis: must be an object/],
    [{ redis: '' }, /redis\.url: required/],
    [{ redis: {} }, /redis\.url: required/],
    [{ redis: 'http://x' }, /redis\.url: must be redis:/],
    [{ redis: { url: 'redis://a,redis://b' } }, /redis\.url: several addresses need redis\.mode/],
    [{ redis: { url: 'redis://a', mode: 'many' } }, /redis\.mode: "many" is not allowed/],
    [{ redis: { url: 'redis://a', hots: 'b' } }, /redis\.hots: unknown option/],
    [
      { redis: { url: 'redis://a', replicas: 9 } },
      /redis\.replicas: "9" is not allowed \(integer 0\.\.8 replicas\)/,
    ],
    [
      { redis: 'redis://a', cacheKeysMax: 0 },
      /cacheKeysMax: "0" is not allowed \(integer 1\.\.16000000 keys\)/,
    ],
    [{ redis: 'redis://a', cacheKeysMax: '5' }, /cacheKeysMax: must be a number/],
    [{ redis: 'redis://a', cacheKeysMax: null }, /cacheKeysMax: must be a number/],
    [{ redis: 'redis://a', lookupWaitMs: 1.5 }, /lookupWaitMs: "1\.5" is not allowed/],
    [{ redis: 'redis://a', foreignKeys: 'true' }, /foreignKeys: must be a boolean/],
    [{ redis: 'redis://a', foreignDigests: 'sha512' }, /foreignDigests: must be an array of digests/],
    [
      { redis: 'redis://a', foreignKeys: true, foreignDigests: ['md5'] },
      /foreignDigests: "md5" is not allowed/,
    ],
    [{ redis: 'redis://a', foreignDigests: ['sha1'] }, /foreignDigests: needs foreignKeys=true/],
    [
      { redis: 'redis://a', foreignKeys: true, foreignDigests: ['hmacSha256'] },
      /foreignPepper: required for hmacSha256 in foreignDigests/,
    ],
    [{ redis: 'redis://a', cacheKeyMax: 5 }, /cacheKeyMax: unknown option/],
    [{ redis: 'redis://a', toString: 5 }, /toString: unknown option/],
    [{ redis: 'redis://a', apiIds: 'shop' }, /apiIds: must be an array/],
    // An empty id must not come to mean every API.
    [{ redis: 'redis://a', apiIds: [''] }, /apiIds\[0\]: must match/],
    [{ redis: 'redis://a', apiIds: ['shop', undefined] }, /apiIds\[1\]: must match/],
    [{ redis: 'redis://a', log: console.log }, /log: must have the methods debug, info, warn, error/],
  ])('%j: %s', (options, message) => {
    expect(faultsOf(options)).toMatch(message);
  });

  test('tells all faults at once, without a secret', () => {
    const message = faultsOf({
      redis: { url: 'nonsense://user:hidden-word@a', password: 5, mode: 'many' },
    });
    expect(message).toMatch(/redis\.url: .*\n.*redis\.mode|redis\.mode: .*\n.*redis\.url/);
    expect(message).not.toContain('hidden-word');
  });
});

test('events tell when an API is in sync, or not', async () => {
  const verifier = open({ apiIds: ['told'] });
  const heard: string[] = [];
  const live = Promise.withResolvers<object>();
  const off = verifier.on('live', () => void heard.push('once'));
  verifier.on('live', live.resolve);
  expect(await live.promise).toEqual({ apiId: 'told' });
  expect(heard).toEqual(['once']);
  off();
  const dropped = Promise.withResolvers<object>();
  const again = Promise.withResolvers<object>();
  verifier.on('dropped', dropped.resolve);
  verifier.on('live', again.resolve);
  const redis = new Redis(fleet.redisUrl.replace('unix://', ''));
  await redis.del('kf:{told}:members');
  redis.disconnect();
  expect(await dropped.promise).toEqual({ apiId: 'told', reason: 'noreg' });
  expect(await again.promise).toEqual({ apiId: 'told' });
  expect(heard).toEqual(['once']);
  expect(() => verifier.on('toString' as 'live', () => undefined)).toThrow(/event: must be live or dropped/);
  expect(() => verifier.on('live', undefined as never)).toThrow(/listener: must be a function/);
});

test('without Redis a known key lasts one lease', async () => {
  const verifier = open();
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  expect((await verifier.verify(key)).code).toBe('VALID');
  await fleet.redis.stop();
  await expect(verifier.verify(generateKey(16))).rejects.toEqual(refusal('SERVICE_UNAVAILABLE'));
  await fleet.until(() => verifier.decide(key) === undefined);
  await expect(verifier.verify(key)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE'));
  await fleet.startRedis();
  await fleet.until(async () => {
    const verdict = await verifier.verify(key).catch(() => undefined);
    return verdict?.code === 'VALID';
  });
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'shop' })).status === 200);
});

test('logs what happens, never a key or a password', async () => {
  const verifier = open({ redis: { url: fleet.redisUrl, username: 'nobody', password: 'hidden-word' } });
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await expect(verifier.ready({ timeoutMs: 300 })).rejects.toThrow(/WRONGPASS|password/i);
  await verifier.verify(key).catch(() => undefined);
  const said = JSON.stringify(lines);
  expect(said).toContain('following');
  expect(said).not.toContain('hidden-word');
  expect(said).not.toContain(key);
});
