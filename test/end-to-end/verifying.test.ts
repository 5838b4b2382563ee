import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { secretPointer } from '../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { Fleet } from '../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3 });
});
afterAll(() => fleet.stop());

const everywhere = [0, 1, 2];
/** The earliest end that a key may have, in 1973. */
const PAST = 100_000_000_000;

/** Every command that Redis runs, those of scripts too, as MONITOR tells it. */
class Monitor {
  readonly #lines: string[] = [];
  readonly #redis: Redis;
  readonly #feed: Socket;

  private constructor(redis: Redis, feed: Socket) {
    this.#redis = redis;
    this.#feed = feed;
    createInterface(feed).on('line', (line) => {
      const args = [...line.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, arg]) => arg);
      this.#lines.push(args.join(' ').toLowerCase());
    });
  }

  /** MONITOR on a socket of its own: ioredis takes a line that comes at once for the reply. */
  static async start(): Promise<Monitor> {
    const path = fleet.redisUrl.replace('unix://', '');
    const redis = new Redis({ path, lazyConnect: true });
    await redis.connect();
    const feed = connect(path);
    await once(feed, 'connect');
    const monitor = new Monitor(redis, feed);
    const isOn = once(feed, 'data');
    feed.write('MONITOR\r\n');
    await isOn;
    return monitor;
  }

  /** Number of times that the pointers of these keys were read since the start. */
  async lookups(...keys: string[]): Promise<number> {
    const mark = `mark-${Math.random()}`;
    await this.#redis.echo(mark);
    await fleet.until(() => this.#lines.some((line) => line === `echo ${mark}`));
    const wanted = new Set(keys.map((key) => `get ${secretPointer(hashSecret(key))}`.toLowerCase()));
    return this.#lines.filter((line) => wanted.has(line)).length;
  }

  stop(): void {
    this.#feed.destroy();
    this.#redis.disconnect();
  }
}

describe('a verdict', () => {
  test('is VALID everywhere once createKey answers', async () => {
    for (let i = 0; i < 20; i++) {
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'now', meta: { i } });
      for (const at of everywhere) {
        const answer = await fleet.verifyOnce(key, { at });
        if (answer.status === 503) expect(await fleet.verdict(key, { at })).toBe('VALID');
        else
          expect(answer.body).toMatchObject({
            valid: true,
            code: 'VALID',
            keyId,
            apiId: 'now',
            enabled: true,
            meta: { i },
          });
      }
    }
  });

  test('is DISABLED everywhere once updateKey answers', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'now' });
    for (const at of everywhere) expect(await fleet.verdict(key, { at })).toBe('VALID');
    for (let i = 0; i < 20; i++) {
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: i % 2 === 1 });
      expect(propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: 3, durable: true });
      for (const at of everywhere) {
        const { body } = await fleet.verify(key, { at });
        expect(body).toMatchObject({
          valid: i % 2 === 1,
          code: i % 2 === 1 ? 'VALID' : 'DISABLED',
          keyId,
          enabled: i % 2 === 1,
          meta: {},
        });
      }
    }
  });

  test('follows every other change of the key', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'now' });
    for (const at of everywhere) await fleet.verdict(key, { at });
    const long = { text: 'ä"\\\n'.repeat(1000) };
    const steps = [
      [{ name: 'Zoë "Z"' }, { name: 'Zoë "Z"' }],
      [{ externalId: 'öwner' }, { externalId: 'öwner', ownerId: 'öwner', name: 'Zoë "Z"' }],
      [{ environment: 'tést' }, { environment: 'tést', externalId: 'öwner' }],
      [{ meta: { a: [1, { b: null }] } }, { meta: { a: [1, { b: null }] } }],
      [{ meta: long }, { meta: long, name: 'Zoë "Z"' }],
      [{ meta: null, name: null }, { meta: {} }],
      [{ expires: 4_000_000_000_000 }, { valid: true, expires: 4_000_000_000_000 }],
      [{ expires: PAST }, { valid: false, code: 'EXPIRED', enabled: true, expires: PAST, meta: {} }],
      [{ enabled: false }, { valid: false, code: 'DISABLED', enabled: false }],
    ] as const;
    for (const [change, seen] of steps) {
      await fleet.ok('keys.updateKey', { keyId, ...change });
      for (const at of everywhere) {
        await fleet.verdict(key, { at });
        expect((await fleet.verify(key, { at })).body).toMatchObject(seen);
      }
    }
    await fleet.ok('keys.deleteKey', { keyId });
    for (const at of everywhere)
      expect((await fleet.verify(key, { at })).body).toEqual({
        valid: false,
        code: 'NOT_FOUND',
        requestId: expect.any(String),
      });
  });

  test('turns to EXPIRED in memory in time', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'now', expires: Date.now() + 700 });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.until(async () => (await fleet.verdict(key)) === 'EXPIRED');
  });

  test('a key of another API is FORBIDDEN, and the verdict shows nothing of the key', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'now', name: 'secret name' });
    expect(await fleet.verdict(key, { apiId: 'now' })).toBe('VALID');
    for (const change of [{}, { enabled: false }, { expires: PAST }, { enabled: true }]) {
      await fleet.ok('keys.updateKey', { keyId, ...change });
      await fleet.verdict(key, { apiId: 'other' });
      const { body } = await fleet.verify(key, { apiId: 'other' });
      expect(body).toEqual({ valid: false, code: 'FORBIDDEN', requestId: expect.any(String) });
    }
  });

  test('is FORBIDDEN for an API not served here', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'elsewhere' });
    await fleet.ok('apis.createApi', { name: 'served', apiId: 'served' });
    await fleet.addVerifier({ API_IDS: 'served' });
    expect((await fleet.verify(key, { at: 3 })).body).toEqual({
      valid: false,
      code: 'FORBIDDEN',
      requestId: expect.any(String),
    });
  });

  test('of every key of a deleted API is NOT_FOUND', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'deleted-api' });
    for (const at of everywhere) expect(await fleet.verdict(key, { at })).toBe('VALID');
    await fleet.ok('apis.deleteApi', { apiId: 'deleted-api' });
    for (const at of everywhere) expect(await fleet.verdict(key, { at })).toBe('NOT_FOUND');
  });
});

describe('Redis is spared', () => {
  let monitor: Monitor;
  beforeAll(async () => {
    monitor = await Monitor.start();
  });
  afterAll(() => monitor.stop());

  test('keys with a wrong checksum never cost a look-up', async () => {
    const keys = Array.from({ length: 200 }, () => `${generateKey(16)}x`);
    for (const key of keys) expect((await fleet.verify(key)).body.code).toBe('NOT_FOUND');
    expect(await monitor.lookups(...keys)).toBe(0);
  });

  test('an unknown key is looked up once a second', async () => {
    const key = generateKey(16);
    expect(await fleet.verdict(key)).toBe('NOT_FOUND');
    const answers = await Promise.all(Array.from({ length: 100 }, () => fleet.verify(key)));
    expect(new Set(answers.map(({ body }) => body.code))).toEqual(new Set(['NOT_FOUND']));
    expect(await monitor.lookups(key)).toBeLessThanOrEqual(2);
  });

  test('many who ask for a key cost one look-up', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'crowd' });
    const answers = await Promise.all(Array.from({ length: 200 }, () => fleet.verifyOnce(key, { at: 1 })));
    expect(answers.filter(({ status }) => status === 200).every(({ body }) => body.code === 'VALID')).toBe(
      true,
    );
    expect(await monitor.lookups(key)).toBe(1);
  });

  test('a flood of made-up keys pushes no known key out of memory', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'flood' });
    await fleet.addVerifier({ CACHE_KEYS_MAX: '1', UNKNOWN_KEYS_MAX: '10', LOOKUP_WAIT_MS: '5000' });
    const at = fleet.verifiers.length - 1;
    expect(await fleet.verdict(key, { at })).toBe('VALID');
    expect(await monitor.lookups(key)).toBe(1);
    const flood = Array.from({ length: 300 }, () => fleet.verify(generateKey(16), { at }));
    for (const { status } of await Promise.all(flood)) expect(status).toBe(200);
    expect((await fleet.verify(key, { at })).body.code).toBe('VALID');
    expect(await monitor.lookups(key)).toBe(1);
  });

  test('look-ups over the limit get 503', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shed' });
    await fleet.addVerifier({ LOOKUPS_IN_FLIGHT_MAX: '1', LOOKUPS_QUEUED_MAX: '0' });
    const at = fleet.verifiers.length - 1;
    expect(await fleet.verdict(key, { at })).toBe('VALID');
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => fleet.verifyOnce(generateKey(16), { at })),
    );
    const shed = answers.filter(({ status }) => status === 503);
    expect(shed.length).toBeGreaterThan(0);
    for (const { headers, body } of shed) {
      expect(headers['retry-after']).toBe('1');
      expect(body.error.code).toBe('SERVICE_UNAVAILABLE');
    }
    expect((await fleet.verify(key, { at })).body.code).toBe('VALID');
  });

  test('foreign keys need FOREIGN_KEYS for a look-up', async () => {
    expect(await fleet.verdict('sk_live_imported')).toBe('NOT_FOUND');
    expect(await monitor.lookups('sk_live_imported')).toBe(0);
    await fleet.addVerifier({ FOREIGN_KEYS: 'true' });
    expect(await fleet.verdict('sk_live_imported', { at: fleet.verifiers.length - 1 })).toBe('NOT_FOUND');
    expect(await monitor.lookups('sk_live_imported')).toBe(1);
  });
});

test('without Redis answers known keys for a lease', async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'away' });
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.redis.stop();
  expect((await fleet.verify(key)).body.code).toBe('VALID');
  const unknown = await fleet.verifyOnce(generateKey(16));
  expect(unknown.status).toBe(503);
  expect(unknown.headers['retry-after']).toBe('1');
  await fleet.until(async () => (await fleet.verifyOnce(key)).status === 503);
  await fleet.startRedis();
  await fleet.until(async () => (await fleet.verifyOnce(key)).status === 200);
  await fleet.until(
    async () => (await fleet.admin('keys.updateKey', { keyId, enabled: false })).status === 200,
  );
  expect(await fleet.verdict(key)).toBe('DISABLED');
});
