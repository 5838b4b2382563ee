import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { takeFolder, tell } from '../../../../deploy/dev/folder.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { necessaryCommands } from '../../../../shared/protocol/writer/control-plane-commands.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { freePort } from '../../../harness/ports.ts';
import { RedisNode } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';
import { envOf, useCommandLine } from './keyfence.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
const directory = scratch('doctor');
const COMMANDS =
  `+hello +info +time +config|get +cluster|slots +wait +eval +evalsha +publish +get +getdel +mget +set +del +exists
  +incr +pexpire +pttl +hget +hmget +hgetall +hset +hdel +hexists +hincrby +hlen +hscan +hvals +zadd +zrem +zcard +zcount +zscore
  +zrange +zrangebyscore +zrevrangebyscore +zrangebylex +xadd +xlen +xrange +xrevrange
  +xdel +xgroup|create +xgroup|setid +xreadgroup +xack +xinfo|stream +xinfo|groups`.split(/\s+/);
const ENOUGH = '1073741824';
let node: RedisNode;
let redis: Redis;
let fleet: Fleet;

/** A Redis in which the control plane's user may do what the doctor says is needed, and nobody else is let in. */
beforeAll(async () => {
  node = await RedisNode.start(directory);
  await node.command('ACL', 'SETUSER', 'admin', 'on', '>pw', '~*', '&*', '+@all');
  redis = new Redis({ port: node.port, username: 'admin', password: 'pw' });
  await permit(...COMMANDS);
  await redis.call('ACL', 'SETUSER', 'default', 'off');
  await redis.config('SET', 'maxmemory', ENOUGH);
  fleet = await Fleet.start({ redisUrl: node.url, verifiers: 0, env: as('control-plane') });
  await fleet.addVerifier(as('admin'));
});
afterAll(async () => {
  await fleet.stop();
  redis.disconnect();
  await node.stop();
  rmSync(directory, { recursive: true, force: true });
});

const as = (user: string) => ({ REDIS_USERNAME: user, REDIS_PASSWORD: 'pw' });
const permit = (...commands: readonly string[]) => {
  const rules = ['on', '>pw', 'resetchannels', '~kf:*', '&kf:*', '-@all', ...commands];
  return redis.call('ACL', 'SETUSER', 'control-plane', ...rules);
};

interface Finding {
  check: string;
  found: string;
  change?: string;
}
const commandLine = useCommandLine();
const examine = async (env = {}) => {
  const there = envOf(fleet, { ...as('control-plane'), ...env });
  const { status, stdout } = await commandLine.run(['doctor', '--json'], there);
  const { findings, healthy } = JSON.parse(stdout) as { findings: Finding[]; healthy: boolean };
  expect(status).toBe(healthy ? 0 : 1);
  const of = (check: string) => findings.find((finding) => finding.check === check);
  return { findings, of, toChange: findings.filter(({ change }) => change).map(({ check }) => check) };
};
test('finds nothing to change when all is well', async () => {
  const { findings, toChange } = await examine();
  expect(toChange, JSON.stringify(findings)).toEqual([]);
  const { stdout, stderr } = await commandLine.run(['doctor'], envOf(fleet, as('control-plane')));
  expect(stdout).toMatch(/^✓ control plane: .*knows the root key$/m);
  expect(stderr).toBe('Nothing to change.\n');
});

test('its rights are enough for a control plane', async () => {
  const { keyId } = await fleet.ok('keys.createKey', {
    apiId: 'shop',
    externalId: 'o1',
    meta: { a: 'x'.repeat(99) },
  });
  await fleet.ok('keys.importKeys', { apiId: 'shop', keys: [{ sha256: hashSecret('one') }] });
  expect((await fleet.ok('keys.updateKey', { keyId, enabled: false })).propagation.state).toBe('complete');
  const credits = { remaining: 9, refill: { interval: 'daily', amount: 9 } };
  await fleet.ok('keys.createKey', { apiId: 'shop', ...credits });
  await fleet.ok('keys.updateKey', { keyId, ...credits });
  await fleet.ok('keys.updateRemaining', { keyId, op: 'decrement', value: 20 });
  await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
  await fleet.ok('keys.getKey', { keyId });
  await fleet.ok('apis.listKeys', { apiId: 'shop', externalId: 'o1', sort: '-createdAt' });
  const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', {
    name: 'r',
    permissions: ['api.*.read_api'],
  });
  await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
  for (const list of ['rootKeys.listRootKeys', 'fleet.listVerifiers', 'audit.listEvents', 'apis.listApis']) {
    await fleet.ok(list);
  }
  await fleet.ok('keys.deleteKey', { keyId });
  await fleet.ok('apis.deleteApi', { apiId: 'shop' });
  await fleet.until(async () => (await redis.exists(apiKeys('shop').head)) === 0);
});

test('names who declares what, and how much of it differs', async () => {
  expect((await examine()).of('declared')).toBeUndefined();
  const cluster = '0'.repeat(36);
  await fleet.ok('apis.createApi', { apiId: 'declared', name: 'D', managedBy: 'files' });
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'declared', managedBy: 'files' });
  for (const digit of ['1', '2'])
    await fleet.ok('keys.createKey', { apiId: 'declared', managedBy: `${cluster}/${digit.repeat(36)}` });
  const found = async () => (await examine()).of('declared')?.found;
  expect(await found()).toBe(`4 things by files (2), Kubernetes ${cluster} (2); changed by others: none`);
  await fleet.ok('permissions.updateRole', { roleId, permissions: ['a'] });
  expect(await found()).toMatch(/; changed by others: 1, since /);
  await fleet.ok('permissions.deleteRole', { roleId });
  await fleet.ok('apis.deleteApi', { apiId: 'declared' });
});

test('names missing and needless rights', async () => {
  await permit(...COMMANDS, '-xrevrange', '-config');
  const { of } = await examine();
  await permit(...COMMANDS);
  expect(of('rights')?.change).toContain('+config|get +xrevrange');
  expect(of('persistence')?.change).toContain('+config|get');
  const wide = await examine(as('admin'));
  expect(wide.toChange).toEqual(['rights']);
  expect(wide.of('rights')?.found).toContain('flushall');
  await redis.call('ACL', 'SETUSER', 'default', 'on', 'nopass');
  const open = await examine();
  await redis.call('ACL', 'SETUSER', 'default', 'off');
  expect(open.toChange).toEqual(['strangers']);
});

test('names only INFO where Redis denies it', async () => {
  await permit(...COMMANDS, '-info');
  const { of, toChange } = await examine();
  await permit(...COMMANDS);
  expect(toChange).toEqual(['rights']);
  expect(of('rights')?.change).toBe('permit +info on ~kf:* and &kf:*');
});

test('names what Redis could lose and the fix', async () => {
  await redis.config('SET', 'appendfsync', 'everysec', 'maxmemory-policy', 'allkeys-lru');
  const { of } = await examine({ REDIS_REPLICAS: '1' });
  await redis.config('SET', 'appendfsync', 'always', 'maxmemory-policy', 'noeviction');
  expect(of('persistence')?.change).toContain('appendfsync always');
  expect(of('memory')).toMatchObject({
    found: expect.stringMatching(/^at most 1024 MiB, then allkeys-lru; \d % used$/),
    change: expect.stringContaining('noeviction'),
  });
  expect(of('replication')?.change).toContain('min-replicas-to-write 1');
});

test('names a Redis that is full or has no limit', async () => {
  const memoryNow = async () => (await examine()).of('memory');
  const used = Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
  await redis.config('SET', 'maxmemory', String(Math.round(used * 1.1)));
  const full = await memoryNow();
  expect(full?.found).toMatch(/; 9\d % used$/);
  // What it says to run is enough.
  const [, limit = ''] =
    /no key can be created: .*`CONFIG SET maxmemory (\w+)`/.exec(full?.change ?? '') ?? [];
  await redis.config('SET', 'maxmemory', limit);
  expect(await memoryNow()).not.toHaveProperty('change');
  await redis.config('SET', 'maxmemory', '0');
  const { found, change = '' } = (await memoryNow()) ?? {};
  await redis.config('SET', 'maxmemory', ENOUGH);
  expect(found).toBe('no limit');
  expect(change).toMatch(/there is no limit, .*`CONFIG SET maxmemory \d+mb` on every server/);
});

test('names a disk that Redis cannot write to', async () => {
  const obstacle = join(directory, 'appendonlydir', 'temp-appendonly.aof.manifest');
  mkdirSync(obstacle);
  await redis.bgrewriteaof().catch(() => undefined);
  const status = async (value: string) =>
    (await redis.info('persistence')).includes(`bgrewrite_status:${value}`);
  await fleet.until(() => status('err'));
  const { found, change } = (await examine()).of('disk') ?? {};
  rmSync(obstacle, { recursive: true });
  expect(found).toBe('Redis failed to write to it');
  expect(change).toMatch(/\(aof_last_bgrewrite_status\).*make room on its disk, then run `BGREWRITEAOF`/);
  await redis.bgrewriteaof();
  await fleet.until(() => status('ok'));
  expect((await examine()).of('disk')).not.toHaveProperty('change');
});

test('names root keys that differ', async () => {
  expect((await examine()).of('bootstrap root keys')).toBeUndefined();
  const env = { ...as('control-plane'), ROOT_KEY: `withdrawn-${ROOT_KEY}` };
  const other = await fleet.addControlPlane(env);
  await fleet.until(async () => (await examine()).of('bootstrap root keys') !== undefined);
  const { found, change } = (await examine()).of('bootstrap root keys') ?? {};
  expect(found).toMatch(/different ones: bootstrap_\w{8}, bootstrap_\w{8}$/);
  expect(change).toContain('a withdrawn root key may still work');
  await other.stop();
  fleet.controlPlanes.pop();
  await redis.del('kf:{!root}:bootstrap');
});

test('names verifiers with a wrong clock', async () => {
  const clock = { ...systemClock, wallMs: () => systemClock.wallMs() + 60_000 };
  const verifier = await fleet.addVerifier({ ...as('admin'), STATUS_PERIOD_MS: '100' }, true, clock);
  await fleet.until(async () => (await examine()).of('fleet')?.change !== undefined);
  expect((await examine()).of('fleet')?.change).toMatch(
    /^the clock of verifier_\w+ on \S+ is 60 s ahead of that of Redis.*NTP/,
  );
  expect(await metric(verifier.adminAddress, 'keyfence_clock_offset_seconds')).toBeCloseTo(60, 0);
  await fleet.verifiers.pop()?.stop();
  expect((await examine()).of("Redis' clock")?.found).toBe("agrees with this machine's");
});

test('takes no cut-off verifier for a stranger', async () => {
  const { address } = await fleet.addVerifier({ REDIS_URL: 'redis://127.0.0.1:2' }, false);
  const { of } = await examine({ KEYFENCE_VERIFIER_URL: address });
  await fleet.verifiers.pop()?.stop();
  expect(of('verifier')?.change).toContain('it cannot reach Redis');
  expect(of('fleet')).not.toHaveProperty('change');
});

test('names replicas awaited in vain or not at all', async () => {
  const options = [
    '--replicaof',
    '127.0.0.1',
    String(node.port),
    '--masteruser',
    'admin',
    '--masterauth',
    'pw',
  ];
  expect((await examine()).of('replication')).not.toHaveProperty('change');
  const isMissing = async () => (await examine({ REDIS_REPLICAS: '1' })).of('replication')?.change;
  const until = 'until 1 replicas are connected';
  expect(await isMissing()).toContain(`changes stay pending, and no key can be created, ${until}`);
  expect(await isMissing()).toContain('verifiers answer for keys with credits from slices, then with 503');
  await redis.config('SET', 'min-replicas-to-write', '1');
  expect(await isMissing()).toContain(`every write is refused ${until}`);
  await redis.config('SET', 'min-replicas-to-write', '0');
  const replica = await RedisNode.start(join(directory, 'replica'), options);
  try {
    await fleet.until(async () => /^slave0:.*state=online/m.test(await redis.info('replication')));
    expect((await examine()).of('replication')?.change).toContain('set REDIS_REPLICAS=1');
    const { change = '' } = (await examine({ REDIS_REPLICAS: '1' })).of('replication') ?? {};
    expect(change).not.toMatch(/REDIS_REPLICAS|until/);
  } finally {
    await replica.stop();
  }
});

test('tells unreachable and wrong servers apart', async () => {
  const nowhere = 'http://127.0.0.1:2';
  const { of, toChange } = await examine({
    KEYFENCE_URL: nowhere,
    KEYFENCE_VERIFIER_URL: fleet.controlPlanes[0]?.address,
    REDIS_URL: 'redis://127.0.0.1:2',
  });
  expect(toChange).toEqual(['control plane', 'verifier', 'Redis']);
  expect(of('control plane')?.found).toContain('ECONNREFUSED');
  expect((await examine({ KEYFENCE_ROOT_KEY: 'wrong' })).of('control plane')?.change).toContain('root key');
  expect((await examine({ KEYFENCE_ROOT_KEY: '' })).of('control plane')).not.toHaveProperty('change');
});

test('a verifier of another fleet, one that asks too seldom, and keys that none accepts are named', async () => {
  const { of } = await examine();
  expect(of('fleet')).toEqual({ check: 'fleet', found: expect.stringMatching(/: 1; APIs/) });

  await fleet.ok('keys.importKeys', {
    apiId: 'old',
    keys: [{ sha256: hashSecret('legacy'), foreign: true }],
  });
  expect((await examine()).of('fleet')?.change).toMatch(
    /API old has keys of a foreign format, which no verifier accepts: set FOREIGN_KEYS=true/,
  );
  await fleet.addVerifier({ ...as('admin'), FOREIGN_KEYS: 'true', API_IDS: 'old', SYNC_PERIOD_MS: '3000' });
  const { change } = (await examine()).of('fleet') ?? {};
  expect(change).toMatch(/asks Redis every 3000 ms but may answer for only 2000 ms.*SYNC_PERIOD_MS/);
  expect(change).not.toContain('another format');
  await fleet.verifiers.pop()?.stop();

  const other = await Fleet.start();
  try {
    const elsewhere = await examine({ KEYFENCE_VERIFIER_URL: other.verifiers[0]?.address });
    expect(elsewhere.of('fleet')?.change).toMatch(
      /verifier that was asked \(verifier_\w+\) belongs to another fleet: .*REDIS_URL/,
    );
  } finally {
    await other.stop();
  }
  await fleet.ok('apis.deleteApi', { apiId: 'old' });
});

test('names old verifiers and the APIs they miss', async () => {
  const { apiId } = await fleet.ok('apis.createApi', { name: 'Newer' });
  expect((await examine()).of('fleet')).not.toHaveProperty('change');
  await redis.hset(apiKeys(apiId).head, 'P', PROTOCOL + 1);
  expect((await examine()).of('fleet')?.change).toMatch(
    new RegExp(
      `^verifier_\\w+ on .* speaks protocol ${PROTOCOL}, and finds no keys of ${apiId}, .*: upgrade it$`,
    ),
  );
  await fleet.ok('apis.deleteApi', { apiId });
});
test('looks at npm start by default', async () => {
  const folder = join(directory, 'started');
  mkdirSync(folder);
  takeFolder(folder);
  tell(folder, {
    pid: 1,
    controlPlane: fleet.controlPlanes[0]?.address ?? '',
    verifier: fleet.verifiers[0]?.address ?? '',
    redisUrl: `redis://admin:pw@127.0.0.1:${node.port}`,
  });
  writeFileSync(join(folder, 'root-key'), `${ROOT_KEY}\n`);
  const { PATH = '' } = envOf(fleet);
  const { stdout, stderr } = await commandLine.run(['doctor'], { PATH, KEYFENCE_DATA: folder });
  expect(stderr).not.toContain('out of reach');
  expect(stdout).toMatch(/^✓ control plane: .*knows the root key$/m);
  expect(stdout).toMatch(/^✓ Redis: version/m);
  expect(stdout).toMatch(/^✓ fleet: .*: 1; APIs/m);
});

test('Redis out of reach from here is no fault', async () => {
  const { findings, of } = await examine({ REDIS_URL: '' });
  // As the control plane finds them.
  expect(of('persistence')).toBeDefined();
  expect(findings.map(({ check }) => check)).not.toContain('strangers');
  // And as people read it.
  const { stdout, stderr } = await commandLine.run(['doctor'], envOf(fleet, { REDIS_URL: '' }));
  expect(stderr).not.toMatch(/Error/);
  expect(stdout).toMatch(/^[✓✗] persistence: \S/m);
  expect(stdout).not.toContain('undefined');
});

test('a verifier that is frozen is found before people give up', async () => {
  // The kernel of a frozen process takes its connections, too.
  const frozen = createServer(() => undefined);
  await new Promise<void>((resolve) => frozen.listen(0, '127.0.0.1', resolve));
  const KEYFENCE_VERIFIER_URL = `http://127.0.0.1:${(frozen.address() as AddressInfo).port}`;
  const { of } = await examine({ KEYFENCE_VERIFIER_URL });
  frozen.close();
  expect(of('verifier')?.change).toContain('restart it');
});

test('a primary that is dead, and that Sentinels still name, is told from wrong settings', async () => {
  // One Sentinel of two that have to agree.
  const sentinel = await RedisNode.startSentinel(join(directory, 'sentinel'), await freePort(), 2);
  try {
    const { of } = await examine({ REDIS_MODE: 'sentinel', REDIS_URL: sentinel.url });
    expect(of('Redis')?.change).toMatch(/^the Sentinels answer, and name this primary: start it/);
  } finally {
    await sentinel.stop();
  }
  const { of } = await examine({ REDIS_MODE: 'sentinel', REDIS_URL: sentinel.url });
  expect(of('Redis')?.change).toContain('set REDIS_URL');
});

test('a clock that is wrong is found', async () => {
  const server = createServer((_, response) => {
    response.setHeader('date', new Date(Date.now() + 60_000).toUTCString());
    response.end('{"apis":[]}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const KEYFENCE_URL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { of } = await examine({ KEYFENCE_URL });
  server.close();
  expect(of("control plane's clock")?.found).toMatch(/^\d\d s ahead of/);
  expect(of("control plane's clock")?.change).toContain('NTP');
});

test('its rights are all the control plane uses', () => {
  const asked = necessaryCommands({ REDIS_MODE: 'cluster', REDIS_REPLICAS: 1 });
  const needed = ['config', ...asked.map((command) => command.split(' ')[0])];
  const used = globSync('control-plane/{core,subjects,unkey-v2,clients/{client,operator}}/**/*.{ts,lua}', {
    cwd: ROOT,
  }).flatMap((file) => {
    const text = readFileSync(join(ROOT, file), 'utf8');
    return [...text.matchAll(/redis\.p?call\('([A-Z]+)'|\bredis\.([a-z]+)\(/g)].map(
      ([, lua, ts]) => lua ?? ts ?? '',
    );
  });
  const notCommands = new Set(['pipeline', 'sha', 'call', 'pcall', 'acl', 'defineCommand', 'on', 'once']);
  const commands = [...new Set(used.map((name) => name.toLowerCase()))].filter(
    (name) => !notCommands.has(name),
  );
  expect(commands.length).toBeGreaterThan(20);
  expect(commands.filter((name) => !needed.includes(name))).toEqual([]);
});
