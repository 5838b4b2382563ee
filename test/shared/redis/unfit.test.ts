import { spawn } from 'node:child_process';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { ConfigError, loadConfig } from '../../../shared/process/load-config.ts';
import { FreshOptions, redisFaults, redisSettings } from '../../../shared/redis/redis-settings.ts';
import { redisConfig } from '../../harness/config.ts';
import { Fleet } from '../../harness/fleet.ts';
import { COMPILED } from '../../harness/processes.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

const ROOT_KEY = `root-key-${'0123456789'.repeat(3)}`;
const PROCESSES = ['control-plane/main.ts', 'verifier/main.ts'] as const;
const SECRET = 'hunter2';
let node: RedisNode;
let redis: Redis;

beforeAll(async () => {
  node = await RedisNode.start(scratch('unfit'));
  redis = new Redis({ port: node.port });
});
afterAll(async () => {
  redis.disconnect();
  await node.stop();
});

/** Runs a process that is expected to end by itself. */
async function ending(file: string, env: Readonly<Record<string, string>>) {
  const child = spawn(process.execPath, [file], {
    env: { PATH: process.env['PATH'] ?? '', ...COMPILED, ROOT_KEY, PORT: '0', ADMIN_PORT: '0', ...env },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  const status = await new Promise((resolve) => child.once('close', resolve));
  return { status, output };
}

const setUser = (...rules: readonly string[]) =>
  redis.call('ACL', 'SETUSER', 'managed', 'reset', 'on', `>${SECRET}`, '~*', '&*', '+@all', ...rules);
const asManaged = () => ({ REDIS_URL: `redis://managed:${SECRET}@127.0.0.1:${node.port}` });

describe.each([
  ['control-plane/main.ts', ['-@dangerous'], '+info'],
  ['control-plane/main.ts', ['-hset', '-publish'], '+publish +hset'],
  ['verifier/main.ts', ['-time', '-hset'], '+time +hset'],
  ['verifier/main.ts', ['-eval', '-evalsha'], '+eval +evalsha'],
] as const)('%s, whose Redis user has %j,', (file, rules, names) => {
  test(`ends with status 78 and names ${names}`, async () => {
    await setUser(...rules);
    const { status, output } = await ending(file, asManaged());
    expect(output).toContain(`cannot use Redis:\n  its user lacks rights: permit ${names}, on the keys`);
    expect(output).not.toContain(SECRET);
    expect(status).toBe(78);
  });
});

test.each(PROCESSES)('%s needs database 0, not another in its place', async (file) => {
  await setUser('-select');
  const before = await redis.dbsize();
  const absent = await ending(file, { REDIS_URL: `redis://127.0.0.1:${node.port}/99` });
  expect(absent.output).toContain('REDIS_URL: database 99 cannot be used (ERR DB index is out of range)');
  const forbidden = await ending(file, { REDIS_URL: `${asManaged().REDIS_URL}/3` });
  expect(forbidden.output).toMatch(/database 3 cannot be used \(NOPERM .*permit \+select/);
  expect([absent.status, forbidden.status]).toEqual([78, 78]);
  expect(await redis.dbsize()).toBe(before);
});

test('a right taken away later is an outage', async () => {
  await setUser();
  const env = { REDIS_USERNAME: 'managed', REDIS_PASSWORD: SECRET };
  const fleet = await Fleet.start({ redisUrl: node.url, verifiers: 0, env });
  try {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'a' });
    // The first is what each script of a change runs first, the others are writes: half a change would tear the log.
    for (const right of ['hmget', 'hset', 'zadd', 'xadd']) {
      await setUser(`-${right}`);
      const calls = [
        await fleet.admin('keys.updateKey', { keyId, enabled: false }),
        await fleet.admin('keys.createKey', { apiId: 'a' }),
        await fleet.admin('keys.rerollKey', { keyId, expiration: 60_000 }),
      ];
      for (const refused of calls)
        expect(refused).toMatchObject({ status: 503, body: { error: { code: 'SERVICE_UNAVAILABLE' } } });
      await setUser();
      await fleet.until(
        async () => (await fleet.admin('keys.updateKey', { keyId, enabled: false })).status === 200,
      );
      await fleet.ok('keys.createKey', { apiId: 'a' });
    }
  } finally {
    await fleet.stop();
  }
});

test.each([
  ['redis://host/abc', /nothing but the number of a database after the host/],
  ['redis://host/1/2', /nothing but the number of a database/],
  ['redis://host/-1', /nothing but the number of a database/],
  ['redis://:hun%ter2@host', /a % that encodes nothing.*% as %25/],
  ['redis://:hunter2@@host', /second @.*@ as %40/],
  ['redis://:x@hunter2/@host', /second @/],
  ['redis://:hunter2/x@host', /must be redis:|nothing but the number of a database/],
  ['redis://:hunter2#x@host', /must be redis:|no raw/],
  ['redis://:hunter2?x@host', /must be redis:|no raw/],
  ['redis://:hun,ter2@host', /must be redis:.*comma as %2C/],
  ['redis://host?db=1', /no raw \?/],
  ['redis://host:99999', /must be redis:/],
  ['redis://', /must be redis:|must name a host/],
  ['redis:///1', /must be redis:|must name a host/],
  ['unix://', /must name a socket/],
  ['unix://run/redis.sock', /must have three slashes/],
  ['redis://127.0.0.1:0', /must have a port/],
  ['host:6379', /must be redis:/],
  ['redis://a/1,redis://a/2', /the same scheme, user, password and database in all addresses/],
  ['redis://a,rediss://a', /the same scheme/],
])('REDIS_URL %s is refused without repeating it', (REDIS_URL, fault) => {
  let faults: readonly string[] = [];
  try {
    loadConfig(redisSettings, { REDIS_URL });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    ({ faults } = error);
  }
  expect(faults).toEqual([expect.stringMatching(fault)]);
  expect(faults[0]).not.toMatch(/hunter2|hun%ter2|ter2/);
});

test('REDIS_URL may encode its special characters', () => {
  const optionsOf = (REDIS_URL: string) => new FreshOptions(redisConfig({ REDIS_URL }), systemClock).read();
  expect(optionsOf('rediss://us%40er:p%25%40%2F%3A%2C@[::1]:7/3')).toMatchObject({
    ...{ username: 'us@er', password: 'p%@/:,', host: '::1', port: 7, tls: {} },
  });
  expect(optionsOf('unix:///run/re%20dis.sock')).toMatchObject({ path: '/run/re dis.sock' });
  const cluster = loadConfig(redisSettings, { REDIS_URL: 'redis://a/1', REDIS_MODE: 'cluster' });
  expect(redisFaults(cluster)).toEqual([expect.stringContaining('a Cluster has only database 0')]);
});
