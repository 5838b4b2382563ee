import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';
import { PATIENT, RedisPods } from './redis-pods.ts';

const DEPLOY = join(import.meta.dirname, '../../deploy');
const stops: (() => unknown)[] = [];
let secrets: string;
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** The settings of a process whose secrets are copies, as on another machine. */
function copied(files: OwnFiles, env: Record<string, string>): Record<string, string> {
  secrets = join(files.folder, 'copies');
  cpSync(join(files.folder, 'secrets'), secrets, { recursive: true });
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [
      name,
      name.endsWith('_FILE') ? value.replace(join(files.folder, 'secrets'), secrets) : value,
    ]),
  );
}

/** Changes a key again and again, and counts what the answers are. */
function changing(fleet: Fleet, keyId: string) {
  const statuses: number[] = [];
  let goes = true;
  const running = (async () => {
    for (let i = 0; goes; i++)
      statuses.push((await fleet.admin('keys.updateKey', { keyId, name: String(i) })).status);
  })();
  const more = async () => {
    const enough = statuses.length + 20;
    await fleet.until(() => statuses.length >= enough);
  };
  const end = async () => {
    goes = false;
    await running;
    return [...new Set(statuses)];
  };
  return { more, end };
}

const USERS = ['control-plane', 'verifier'];
/** Gives both users another password while changes go on; then only new connections are left. */
async function rotate(fleet: Fleet, servers: readonly OwnRedis[], options: object): Promise<void> {
  const { key, keyId } = await vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'shop' }), PATIENT);
  expect(await fleet.verdict(key)).toBe('VALID');
  const load = changing(fleet, keyId);
  const onAll = async (...command: string[]) => {
    for (const server of servers) {
      const operator = server.as('operator', options);
      await operator.call(command[0] ?? '', ...command.slice(1));
      operator.disconnect();
    }
  };
  for (const user of USERS) await onAll('ACL', 'SETUSER', user, `>new-${user}`);
  await load.more();
  for (const user of USERS) writeFileSync(join(secrets, `${user}-password`), `new-${user}\n`);
  await load.more();
  for (const user of USERS) await onAll('ACL', 'SETUSER', user, `<${user}`);
  await load.more();
  expect(await load.end()).toEqual([200]);

  for (const user of USERS) await onAll('CLIENT', 'KILL', 'USER', user);
  const other = await vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'shop' }), PATIENT);
  expect(await fleet.verdict(other.key)).toBe('VALID');
  expect(await fleet.verdict(key)).toBe('VALID');
}

test('Redis passwords rotate without a restart', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const as = (user: string) =>
    copied(files, {
      REDIS_URL: `redis://127.0.0.1:${redis.port}`,
      REDIS_USERNAME: user,
      REDIS_PASSWORD_FILE: join(files.folder, 'secrets', `${user}-password`),
    });
  const fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: as('control-plane') });
  stops.push(() => fleet.stop());
  await fleet.addVerifier(as('verifier'));
  await rotate(fleet, [redis], {});
});

test('passwords that Vault replaces reach every new connection', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const passwords = Object.fromEntries(USERS.map((user) => [user, user]));
  let asked = 0;
  const vault = createServer(({ url = '', headers }, response) => {
    asked++;
    const isKnown = headers['x-vault-token'] === 'a-token';
    response.writeHead(isKnown ? 200 : 403);
    const password = passwords[url.replace('/v1/database/static-creds/', '')];
    response.end(JSON.stringify({ data: { ttl: 60, password, username: 'x' } }));
  });
  await once(vault.listen(0, '127.0.0.1'), 'listening');
  stops.push(() => vault.close());
  writeFileSync(join(files.folder, 'token'), 'a-token\n');
  vi.stubEnv('VAULT_ADDR', `http://127.0.0.1:${(vault.address() as AddressInfo).port}`);
  vi.stubEnv('VAULT_TOKEN_FILE', join(files.folder, 'token'));
  stops.push(() => vi.unstubAllEnvs());
  const as = (user: string) => ({
    REDIS_URL: `redis://127.0.0.1:${redis.port}`,
    REDIS_USERNAME: user,
    REDIS_PASSWORD_COMMAND: `${join(DEPLOY, 'examples/vault-password.sh')} ${user}`,
  });
  const fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: as('control-plane') });
  stops.push(() => fleet.stop());
  await fleet.addVerifier({ ...as('verifier'), LOOKUP_WAIT_MS: '5000' });
  const { keyId } = await vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'shop' }), PATIENT);
  const load = changing(fleet, keyId);
  const operator = redis.as('operator');
  stops.push(() => operator.disconnect());
  for (let round = 0; round < 4; round++) {
    for (const user of USERS) {
      // Vault takes the old password away at once; and the verifier must connect again.
      passwords[user] = `${user}-${round}`;
      await operator.acl('SETUSER', user, 'resetpass', `>${passwords[user]}`);
    }
    await operator.client('KILL', 'USER', 'verifier');
    const { key, ...other } = await vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'shop' }), PATIENT);
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.ok('keys.updateKey', { keyId: other.keyId, enabled: false });
    expect((await fleet.decided(() => fleet.verifyOnce(key))).body.code).toBe('DISABLED');
    await load.more();
  }
  expect(await load.end()).toEqual([200]);
  expect(asked).toBeLessThan(40);
  expect(fleet.logged.join('')).toContain('Redis refused a password that has changed meanwhile');
});

test('a running Redis takes what the files say', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const secret = join(files.folder, 'secrets', 'verifier-password');
  const apply = (text: string) => {
    writeFileSync(secret, text);
    execFileSync('sh', [join(files.folder, 'files', 'apply.sh')], { env: redis.env, stdio: 'pipe' });
  };
  const open = redis.as('verifier');
  expect(await open.get('kf:p:x')).toBeNull();
  const rules = async () =>
    ((await redis.as('operator').acl('LIST')) as string[]).map((rule) =>
      rule.replace(' sanitize-payload', ''),
    );
  const before = await rules();
  apply('verifier\na new one\n');
  for (const password of ['verifier', 'a new one'])
    expect(await redis.as('verifier', { password }).get('kf:p:x')).toBeNull();
  apply('a new one\n');
  await expect(redis.connect({ protocol: 2 }).auth('verifier', 'verifier')).rejects.toThrow(/WRONGPASS/);
  expect(await open.get('kf:p:x')).toBeNull();
  await redis.as('operator').acl('SETUSER', 'verifier', 'off');
  apply('verifier\n');
  expect((await rules()).join('\n')).toMatch(/^user verifier off /m);
  await redis.as('operator').acl('SETUSER', 'verifier', 'on');
  expect(await rules()).toEqual(before);
  // An empty file is no wish for a user without a password.
  expect(() => apply('\n')).toThrow('no password can be read there');
  expect(await rules()).toEqual(before);
});

test('a new right needs no restart of Redis', async () => {
  const files = new OwnFiles((acl) => acl.replace(' +wait +time\n  &kf', ' +wait\n  &kf'));
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  await expect(redis.as('verifier').time()).rejects.toThrow(/NOPERM/);
  cpSync(join(DEPLOY, 'redis/users.acl'), join(files.folder, 'files', 'users.acl'));
  execFileSync('sh', [join(files.folder, 'files', 'apply.sh')], { env: redis.env, stdio: 'pipe' });
  expect(await redis.as('verifier').time()).toHaveLength(2);
});

test('a password in REDIS_URL_FILE rotates without a restart', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const REDIS_URL_FILE = join(files.folder, 'url');
  const write = (password: string) =>
    writeFileSync(REDIS_URL_FILE, `redis://control-plane:${password}@127.0.0.1:${redis.port}\n`);
  write('control-plane');
  const fleet = await Fleet.start({ redisUrl: '', verifiers: 0, env: { REDIS_URL: '', REDIS_URL_FILE } });
  stops.push(() => fleet.stop());
  await redis.as('operator').acl('SETUSER', 'control-plane', '>new', '<control-plane');
  await redis.as('operator').call('CLIENT', 'KILL', 'USER', 'control-plane');
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'shop' })).status === 503);
  write('new');
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'shop' })).status === 200);
});

test('an authority rotates without a restart', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  files.certify('127.0.0.1');
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const env = copied(files, {
    REDIS_URL: `rediss://127.0.0.1:${redis.port}`,
    REDIS_USERNAME: 'control-plane',
    REDIS_PASSWORD_FILE: join(files.folder, 'secrets', 'control-plane-password'),
    REDIS_TLS_CA_FILE: files.ca,
  });
  const fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env });
  stops.push(() => fleet.stop());
  await fleet.ok('keys.createKey', { apiId: 'shop' });
  files.certify('127.0.0.1');
  const ca = env['REDIS_TLS_CA_FILE'] ?? '';
  writeFileSync(ca, readFileSync(ca, 'utf8') + readFileSync(files.ca, 'utf8'));
  const folder = join(files.folder, 'secrets', 'tls');
  const operator = redis.as('operator', files.tls);
  const set = ['tls-cert-file', join(folder, 'tls.crt'), 'tls-key-file', join(folder, 'tls.key')];
  await operator.call('CONFIG', 'SET', ...set, 'tls-ca-cert-file', files.ca);
  await operator.call('CLIENT', 'KILL', 'USER', 'control-plane');
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'shop' })).status === 200);
});

// macOS has one loopback address.
const noGroup = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';
test.skipIf(noGroup)(`with Sentinel all passwords rotate${noGroup}`, async () => {
  const group = await RedisPods.start({});
  stops.push(() => group.stop());
  await group.untilReady();
  const as = (user: string) => copied(group.files, group.env(user));
  const fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: as('control-plane') });
  stops.push(() => fleet.stop());
  await fleet.addVerifier(as('verifier'));
  // The Sentinels first: each new connection asks one of them.
  const passwords = join(group.files.folder, 'secrets', 'sentinel-client-password');
  const restartSentinels = async (text: string) => {
    writeFileSync(passwords, text);
    for (const { sentinel } of group.pods) await sentinel.restart();
  };
  await restartSentinels('new\nsentinel-client\n');
  writeFileSync(join(secrets, 'sentinel-client-password'), 'new\n');
  await restartSentinels('new\n');
  await rotate(
    fleet,
    group.pods.map(({ redis }) => redis),
    {},
  );
});
