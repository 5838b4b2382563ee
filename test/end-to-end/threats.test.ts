import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settings as controlPlaneSettings } from '../../control-plane/config.ts';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { settings as verifierSettings } from '../../verifier/config.ts';
import { Fleet } from '../harness/fleet.ts';
import { metric } from '../harness/metrics.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

describe('SECURITY.md', () => {
  const threats = read('SECURITY.md')
    .split('\n## ')
    .find((section) => section.startsWith('Threats'));
  const rows = (threats ?? '').split('\n').filter((line) => /^\| (?!threat )/.test(line));

  test('names for every line the test that holds it, and that test exists', () => {
    expect(rows.length).toBeGreaterThan(20);
    for (const row of rows) {
      const named = [...row.matchAll(/`(test\/[\w/-]+\.test\.ts)`: ([^;|]+)/g)];
      expect(named, row).not.toHaveLength(0);
      for (const [, file = '', name = ''] of named) expect(read(file), file).toContain(name.trim());
    }
  });
});

test('every listener is on a loopback address by default', () => {
  for (const settings of [controlPlaneSettings, verifierSettings]) {
    expect([settings.HOST.default, settings.ADMIN_HOST.default]).toEqual(['127.0.0.1', '127.0.0.1']);
  }
});

test('configured root keys are compared as digests and in constant time', () => {
  const uses = read('control-plane/root-keys/bootstrap-keys.ts')
    .split('\n')
    .filter((line) => line.includes('this.all') && !line.includes('this.all ='));
  expect(uses).toEqual([
    expect.stringContaining('.map(({ id }) => id)'),
    expect.stringMatching(/\.filter\(.*timingSafeEqual\(Buffer\.from\(key\.secretHash\), digest\)/),
  ]);
});

describe('on a running fleet', () => {
  let fleet: Fleet;
  let redis: Redis;
  const { channel, head } = apiKeys('shop');
  const messages: string[] = [];

  beforeAll(async () => {
    fleet = await Fleet.start({ env: { API_IDS: 'shop' } });
    redis = new Redis({ path: fleet.redisUrl.replace('unix://', '') });
    const listener = redis.duplicate();
    await listener.subscribe(channel);
    listener.on('message', (_channel, message) => void messages.push(message));
    stops.push(
      () => fleet.stop(),
      async () => listener.disconnect(),
      async () => redis.disconnect(),
    );
  });
  const stops: (() => Promise<void>)[] = [];
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  /** A key that was enabled, then disabled, and the messages that said so. */
  const disabledKey = async () => {
    messages.length = 0;
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', enabled: false });
    expect(await fleet.verdict(key)).toBe('DISABLED');
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await fleet.until(() => messages.length === 2);
    return { key, keyId, enabling: messages[0] ?? '' };
  };
  const drops = () => metric(fleet.verifiers[0]?.adminAddress, 'keyfence_drops_total{reason="diverged"}');

  test('a message that is sent again changes nothing', async () => {
    const { key, keyId, enabling } = await disabledKey();
    for (let i = 0; i < 50; i++) {
      await redis.publish(channel, enabling);
      expect(await fleet.verdict(key)).toBe('DISABLED');
    }
    expect((await fleet.ok('keys.updateKey', { keyId, name: 'x' })).propagation.by).toBe('acks');
    expect(await fleet.verdict(key)).toBe('DISABLED');
  });

  test('a forged message that does not continue the history changes nothing', async () => {
    const { key, enabling } = await disabledKey();
    const [, , hash, ...rest] = enabling.split('|');
    const next = Number(await redis.hget(head, 's')) + 1;
    const before = await drops();
    for (const sequence of [next, next + 1, 999_999]) {
      for (const previous of [hash, '0'.repeat(40), '']) {
        await redis.publish(channel, [sequence, previous, hash, ...rest].join('|'));
        expect(await fleet.verdict(key)).toBe('DISABLED');
      }
    }
    for (const nonsense of ['', '|||', 'x'.repeat(100_000), `${next}|${hash}|${hash}|k|{`]) {
      await redis.publish(channel, nonsense);
      expect(await fleet.verdict(key)).toBe('DISABLED');
    }
    expect(await drops()).toBe(before);
  });

  test('a forged message that continues the history is exposed by the SYNC that it triggers', async () => {
    const { key, keyId, enabling } = await disabledKey();
    const [, , hash, ...rest] = enabling.split('|');
    const [sequence, present] = await redis.hmget(head, 's', 'h');
    const before = await drops();
    await redis.publish(channel, [Number(sequence) + 1, present, hash, ...rest].join('|'));
    await fleet.until(async () => (await drops()) > before);
    expect(await fleet.verdict(key)).toBe('DISABLED');
    expect((await fleet.ok('keys.updateKey', { keyId, name: 'x' })).propagation.state).toBe('complete');
  });

  test('the admin listeners show nothing about keys and change nothing', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'a name to be kept' });
    for (const { adminAddress } of [...fleet.controlPlanes, ...fleet.verifiers]) {
      for (const path of ['/livez', '/readyz', '/metrics']) {
        const { status, body } = await fleet.get(`${adminAddress}${path}`);
        expect(status).toBe(200);
        expect(String(body)).not.toContain(keyId);
        expect(String(body)).not.toContain('a name to be kept');
        expect((await fleet.post(`${adminAddress}${path}`, {})).status).toBe(405);
      }
      for (const path of [
        '/',
        '/v1/keys.verifyKey',
        '/v1/apis.listApis',
        '/debug/pprof',
        '/metrics/../v1/apis.listApis',
      ]) {
        expect((await fleet.get(`${adminAddress}${path}`)).status).toBe(404);
      }
    }
  });

  test('a root key without any permission on an API cannot tell it from one that does not exist', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
      name: 'of another API',
      permissions: ['api.other.read_key', 'api.other.update_key', 'api.other.read_api'],
    });
    const told = async (operation: string, input: Record<string, string>) => {
      const { status, body } = await fleet.admin(operation, input, { rootKey });
      const text = Object.values(input).reduce(
        (all, id) => all.replaceAll(id, 'ID'),
        body.error.message as string,
      );
      return { status, text };
    };
    for (const [operation, field, there, missing] of [
      ['keys.getKey', 'keyId', keyId, 'key_0000000000000000'],
      ['keys.updateKey', 'keyId', keyId, 'key_0000000000000000'],
      ['apis.getApi', 'apiId', 'shop', 'nothing-here'],
      ['apis.listKeys', 'apiId', 'shop', 'nothing-here'],
    ] as const) {
      const present = await told(operation, { [field]: there });
      expect(present.status).toBe(404);
      expect(present, operation).toEqual(await told(operation, { [field]: missing }));
    }
  });
});
