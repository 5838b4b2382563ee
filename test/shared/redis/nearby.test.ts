import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { RedisNearby } from '../../../shared/protocol/follower/nearby.ts';
import { parseAddresses } from '../../../shared/redis/redis-settings.ts';
import { hashSecret } from '../../../shared/rules/key-format.ts';
import { redisConfig } from '../../harness/config.ts';
import { Fleet } from '../../harness/fleet.ts';
import { RedisCluster } from '../../harness/redis-cluster.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

const API = 'near';
const ends: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A primary with a replica, and a fleet whose verifier looks keys up there. Memory has room for `room` keys. */
async function regions(
  room = 100,
  hasFiles = false,
): Promise<{ fleet: Fleet; primary: RedisNode; replica: RedisNode }> {
  const directory = scratch('nearby');
  ends.push(async () => rmSync(directory, { recursive: true }));
  const quick = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
  const primary = await RedisNode.start(`${directory}/primary`, quick);
  const of = ['--replicaof', '127.0.0.1', String(primary.port)];
  const replica = await RedisNode.start(`${directory}/replica`, [...quick, ...of]);
  ends.push(() => Promise.all([primary.stop(), replica.stop()]));
  await copied(primary, replica);
  const fileOf = (name: string, url: string) => {
    writeFileSync(`${directory}/${name}`, `${url}\n`);
    return { [`${name}_FILE`]: `${directory}/${name}` };
  };
  const urls = hasFiles
    ? { REDIS_URL: '', ...fileOf('REDIS_URL', primary.url), ...fileOf('REDIS_READ_URL', replica.url) }
    : { REDIS_READ_URL: replica.url };
  const fleet = await Fleet.start({
    redisUrl: primary.url,
    env: { ...urls, CACHE_KEYS_MAX: String(room), SYNC_PERIOD_MS: '50' },
  });
  ends.push(() => fleet.stop());
  return { fleet, primary, replica };
}

/** Waits until the replica has all that the primary has. */
async function copied(primary: RedisNode, replica: RedisNode): Promise<void> {
  await replica.until(async () => {
    const offset = async (node: RedisNode) =>
      /master_repl_offset:(\d+)/.exec(String(await node.command('INFO', 'replication')))?.[1];
    const link = String(await replica.command('INFO', 'replication'));
    return link.includes('master_link_status:up') && (await offset(primary)) === (await offset(replica));
  });
}

async function create(fleet: Fleet): Promise<{ key: string; keyId: string }> {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: API });
  return { key, keyId };
}

/** Reads that the replica did for look-ups. */
async function readsOf(replica: RedisNode): Promise<number> {
  const stats = String(await replica.command('INFO', 'commandstats'));
  return Number(/cmdstat_evalsha_ro:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

/** Asks for further keys of the API until the verifier uses what it reads at the replica. */
async function warm(fleet: Fleet, replica: RedisNode): Promise<void> {
  const { key } = await create(fleet);
  expect(await fleet.verdict(key)).toBe('VALID');
  const before = await readsOf(replica);
  await fleet.until(async () => {
    await fleet.verify((await create(fleet)).key);
    return (await readsOf(replica)) > before;
  });
}

describe('with REDIS_READ_URL', () => {
  test.each([
    ['', false],
    [', also where both addresses are in files', true],
  ])('a key is looked up without the primary%s', async (_, hasFiles) => {
    const { fleet, primary, replica } = await regions(100, hasFiles);
    const [first, second] = [await create(fleet), await create(fleet)];
    await warm(fleet, replica);
    expect(await fleet.verdict(first.key)).toBe('VALID');
    await copied(primary, replica);
    primary.signal('SIGSTOP');
    expect((await fleet.verify(second.key)).body).toMatchObject({ valid: true, keyId: second.keyId });
    primary.signal('SIGCONT');
  });

  test('roles and identities are read there, too', async () => {
    const { fleet, primary, replica } = await regions();
    await warm(fleet, replica);
    const roles = ['a', 'b'];
    for (const name of roles)
      await fleet.ok('permissions.createRole', { name, permissions: [`${name}.read`] });
    const make = (name: string) =>
      fleet.ok('keys.createKey', { apiId: API, roles: [name], externalId: `of-${name}` });
    const [a, b] = [await make('a'), await make('b')];
    expect(await fleet.verdict(a.key)).toBe('VALID');
    await copied(primary, replica);
    await fleet.until(async () => {
      const { body } = await fleet.verify((await create(fleet)).key);
      return body.valid === true;
    });
    await copied(primary, replica);
    primary.signal('SIGSTOP');
    expect((await fleet.verify(b.key, { authorization: { permissions: 'b.read' } })).body).toMatchObject({
      code: 'VALID',
    });
    primary.signal('SIGCONT');
  });

  test('a replica that stands still makes no key valid', async () => {
    const { fleet, primary, replica } = await regions(1);
    const made = [await create(fleet), await create(fleet)];
    await warm(fleet, replica);
    await copied(primary, replica);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    for (const { key, keyId } of made) {
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect((await fleet.verify(key)).body.code).toBe('DISABLED');
    }
    for (const { keyId } of made) await fleet.ok('keys.updateKey', { keyId, enabled: true });
    for (const { key } of made) expect((await fleet.verify(key)).body.code).toBe('VALID');
    for (const { keyId } of made) await fleet.ok('keys.deleteKey', { keyId });
    for (const { key } of made) expect((await fleet.verify(key)).body.code).toBe('NOT_FOUND');
  });

  test('a key that only the replica has is unknown', async () => {
    const { fleet, primary, replica } = await regions();
    const known = await create(fleet);
    await warm(fleet, replica);
    await copied(primary, replica);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    await fleet.addControlPlane({ REDIS_URL: replica.url });
    const { body } = await fleet.admin('keys.createKey', { apiId: API }, { at: 1 });
    expect(await readsOf(replica)).toBeGreaterThan(0);
    for (let i = 0; i < 20; i++) expect((await fleet.verify(body.key)).body.code).toBe('NOT_FOUND');
    expect(await fleet.verdict(known.key)).toBe('VALID');
  });

  test('a deleted API that was made anew has none of its keys', async () => {
    const { fleet, primary, replica } = await regions();
    const old = await create(fleet);
    await warm(fleet, replica);
    await copied(primary, replica);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    await fleet.ok('apis.deleteApi', { apiId: API });
    await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: API })).status === 200);
    const made = await create(fleet);
    expect(await fleet.verdict(made.key)).toBe('VALID');
    for (let i = 0; i < 20; i++) expect((await fleet.verify(old.key)).body.code).toBe('NOT_FOUND');
  });

  test('the user `reader` of users.acl suffices, and writes nothing', async () => {
    const acl = readFileSync('deploy/redis/users.acl', 'utf8').replaceAll(/\n +/g, ' ');
    const [, rules = ''] = /^user reader (.*)$/m.exec(acl) ?? [];
    const words = rules.replace('#@reader-password@', '>secret').match(/\([^)]*\)|\S+/g) ?? [];
    const { fleet, primary, replica } = await regions();
    for (const node of [primary, replica]) await node.command('ACL', 'SETUSER', 'reader', ...words);
    const asReader = new Redis(replica.url.replace('//', '//reader:secret@'));
    ends.push(async () => asReader.disconnect());
    for (const [name, ...args] of [
      ['SET', 'kf:p:x', 'v'],
      ['HGET', 'kf:{!root}:ids', 'x'],
      ['EVAL', 'return 1', '0'],
      ['EVAL_RO', "return redis.call('HMGET', KEYS[1], 'x')", '1', 'kf:{!root}:ids'],
    ] as const)
      await expect(asReader.call(name, ...args)).rejects.toThrow(/NOPERM|permission/);
    await fleet.addVerifier({ REDIS_READ_URL: replica.url.replace('//', '//reader:secret@') });
    const made = await create(fleet);
    expect(await fleet.verdict((await create(fleet)).key, { at: 1 })).toBe('VALID');
    await copied(primary, replica);
    await fleet.until(async () => {
      await fleet.verify((await create(fleet)).key, { at: 1 });
      return (await readsOf(replica)) > 0;
    });
    expect(await fleet.verdict(made.key, { at: 1 })).toBe('VALID');
  });

  test('a password without a user counts, not that of REDIS_URL', async () => {
    const { fleet, primary, replica } = await regions();
    const { key, keyId } = await create(fleet);
    await copied(primary, replica);
    await replica.command('CONFIG', 'SET', 'requirepass', 'secret');
    const config = redisConfig({ REDIS_URL: primary.url.replace('//', '//another:password@') });
    const REDIS_READ_URL = parseAddresses(replica.url.replace('//', '//:secret@'));
    const log = createLogger('verifier', 'silent');
    const nearby = new RedisNearby({ ...config, REDIS_READ_URL }, systemClock, log);
    ends.push(() => nearby.close());
    await fleet.until(async () => (await nearby.lookUp(hashSecret(key)))?.keyId === keyId);
  });

  test('a replica that hangs delays few answers', async () => {
    const { fleet, primary, replica } = await regions();
    const made = [];
    for (let i = 0; i < 30; i++) made.push(await create(fleet));
    await warm(fleet, replica);
    await copied(primary, replica);
    replica.signal('SIGSTOP');
    for (const { key } of made) expect(await fleet.verdict(key)).toBe('VALID');
    replica.signal('SIGCONT');
    const before = await readsOf(replica);
    await fleet.until(async () => {
      await fleet.verify((await create(fleet)).key);
      return (await readsOf(replica)) > before;
    });
  });
});

test('replicas of a Cluster are read, each for its slots', async () => {
  const directory = scratch('nearby-cluster');
  ends.push(async () => rmSync(directory, { recursive: true }));
  const cluster = await RedisCluster.start(directory, 1);
  ends.push(() => cluster.stop());
  const replicas = await cluster.replicas();
  const env = { REDIS_MODE: 'cluster', REDIS_READ_URL: replicas.map(({ url }) => url).join(',') };
  const fleet = await Fleet.start({ redisUrl: cluster.url, env: { ...env, SYNC_PERIOD_MS: '50' } });
  ends.push(() => fleet.stop());
  for (const apiId of ['a', 'b', 'c', 'd', 'e', 'f']) {
    const { key } = await fleet.ok('keys.createKey', { apiId });
    expect(await fleet.verdict(key)).toBe('VALID');
  }
  const read = async () => (await Promise.all(replicas.map(readsOf))).filter((calls) => calls > 0).length;
  await fleet.until(async () => {
    for (const apiId of ['a', 'b', 'c', 'd', 'e', 'f']) {
      const { key } = await fleet.ok('keys.createKey', { apiId });
      expect(await fleet.verdict(key)).toBe('VALID');
    }
    return (await read()) === replicas.length;
  });
});
