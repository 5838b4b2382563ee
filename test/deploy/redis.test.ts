import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OwnFiles, OwnRedis } from './own-redis.ts';

describe('Redis as deploy/redis/start.sh starts it', () => {
  const files = new OwnFiles();
  let redis: OwnRedis;
  beforeAll(async () => {
    redis = await OwnRedis.start(files);
  });
  afterAll(async () => {
    await redis?.stop();
    files.remove();
  });

  it('keeps what a script wrote over a restart', async () => {
    const script = "redis.call('HSET', KEYS[1], 's', '1') redis.call('ZADD', KEYS[2], 1, 'key_1')";
    await redis.as('control-plane').eval(script, 2, 'kf:{a}:head', 'kf:{a}:idx');
    await redis.restart();
    expect(await redis.as('control-plane').hget('kf:{a}:head', 's')).toBe('1');
  });

  it('keeps a user off that somebody set to off', async () => {
    const rules = async () => ((await redis.as('operator').acl('LIST')) as string[]).join('\n');
    await redis.as('operator').acl('SETUSER', 'verifier', 'off');
    await redis.as('operator').call('ACL', 'SAVE');
    await redis.restart();
    expect(await rules()).toMatch(/^user verifier off /m);
    const file = join(redis.env['DATA'] ?? '', 'users.acl');
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace('user control-plane on', 'user control-plane off'),
    );
    await redis.restart();
    expect(await rules()).toMatch(/^user control-plane off (.|\n)*^user verifier off /m);
    for (const user of ['verifier', 'control-plane']) await redis.as('operator').acl('SETUSER', user, 'on');
    await redis.as('operator').call('ACL', 'SAVE');
    await redis.restart();
    expect(await rules()).toMatch(/^user verifier on /m);
  });

  it('Redis refuses everybody who is not one of its users', async () => {
    await expect(redis.connect().get('kf:p:x')).rejects.toThrow(/NOAUTH/);
    for (const user of ['default', 'control-plane', 'verifier', 'replica', 'sentinel']) {
      await expect(redis.connect({ protocol: 2 }).auth(user, '')).rejects.toThrow(/WRONGPASS/);
    }
    await expect(redis.as('probe').get('kf:p:x')).rejects.toThrow(/NOPERM/);
  });

  it('a user without a password may only send PING', async () => {
    const users = ((await redis.as('operator').acl('LIST')) as string[]).filter((user) =>
      /nopass/.test(user),
    );
    expect(users).toEqual([expect.stringMatching(/^user probe /)]);
    const stranger = redis.as('probe', { password: 'any' });
    expect(await stranger.ping()).toBe('PONG');
    for (const command of ['ROLE', 'INFO', 'TIME'])
      await expect(stranger.call(command)).rejects.toThrow(/NOPERM/);
  });

  it('Redis listens on loopback, or where BIND says', async () => {
    const listens = async (env: NodeJS.ProcessEnv) => {
      const server = await OwnRedis.start(files, { env });
      const [, bind] = (await server.as('operator').config('GET', 'bind')) as string[];
      await server.stop();
      return bind;
    };
    expect(await listens({})).toBe('127.0.0.1 -::1');
    expect(await listens({ BIND: '127.0.0.1' })).toBe('127.0.0.1');
  });

  it('lets two passwords overlap during a change', async () => {
    const old = redis.as('verifier');
    expect(await old.get('kf:p:x')).toBeNull();
    await redis.as('operator').acl('SETUSER', 'verifier', '>new');
    expect(await redis.as('verifier', { password: 'new' }).get('kf:p:x')).toBeNull();
    expect(await old.get('kf:p:x')).toBeNull();

    writeFileSync(join(files.folder, 'secrets', 'verifier-password'), 'new\n\nverifier\n');
    await redis.restart();
    expect(await redis.as('verifier', { password: 'new' }).get('kf:p:x')).toBeNull();
    expect(await redis.as('verifier').get('kf:p:x')).toBeNull();

    await redis.as('operator').acl('SETUSER', 'verifier', '<verifier');
    for (const wrong of ['verifier', '']) {
      await expect(redis.connect({ protocol: 2 }).auth('verifier', wrong)).rejects.toThrow(/WRONGPASS/);
    }
    expect(await redis.as('verifier', { password: 'new' }).get('kf:p:x')).toBeNull();
  });

  it('refuses new keys before memory runs out', async () => {
    const limit = 256 * 1024 * 1024;
    const small = await OwnRedis.start(files, { env: { MEMORY_LIMIT_BYTES: String(limit) } });
    const [, maxmemory] = (await small.as('operator').config('GET', 'maxmemory')) as string[];
    expect(Number(maxmemory)).toBeLessThan(limit * 0.61);
    expect(Number(maxmemory)).toBeGreaterThan(limit * 0.59);
    await small.stop();
  });

  it('syncs every write and evicts nothing', async () => {
    const operator = redis.as('operator');
    const settings = await operator.config('GET', 'a*', 'maxmemory-policy', 'hash-max-listpack-value');
    expect(settings).toEqual(expect.arrayContaining(['appendonly', 'yes', 'appendfsync', 'always']));
    expect(settings).toEqual(expect.arrayContaining(['maxmemory-policy', 'noeviction']));
    await operator.hset('kf:{a}:k:x', 'p', 'x'.repeat(64));
    expect(await operator.object('ENCODING', 'kf:{a}:k:x')).toBe('listpack');
  });
});
