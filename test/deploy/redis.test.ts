import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const READY_MS_MAX = 10_000;

describe('Redis as deploy/redis/start.sh starts it', () => {
  let folder = '';
  let server: ChildProcess | undefined;
  const clients: Redis[] = [];

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'keyfence-redis-'));
    mkdirSync(join(folder, 'secrets'));
    mkdirSync(join(folder, 'data'));
    for (const user of ['control-plane', 'verifier']) {
      writeFileSync(join(folder, 'secrets', `${user}-password`), `password of ${user}\n`);
    }
    await start();
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.disconnect();
    await stop();
    rmSync(folder, { recursive: true });
  });

  it('still holds what a script wrote after a restart', async () => {
    const script = "redis.call('HSET', KEYS[1], 's', '1') redis.call('ZADD', KEYS[2], 1, 'key_1')";
    await as('control-plane').eval(script, 2, 'kf:{a}:head', 'kf:{a}:idx');
    await stop();
    await start();
    expect(await as('control-plane').hget('kf:{a}:head', 's')).toBe('1');
  });

  it('refuses everybody who is not one of its users', async () => {
    await expect(connect().get('kf:p:x')).rejects.toThrow(/NOAUTH/);
    await expect(connect({ protocol: 2 }).auth('default', '')).rejects.toThrow(/WRONGPASS/);
    await expect(connect({ protocol: 2 }).auth('replica', '')).rejects.toThrow(/WRONGPASS/);
    await expect(connect({ username: 'probe', password: 'any' }).get('kf:p:x')).rejects.toThrow(/NOPERM/);
  });

  it('keeps a verifier from changing a record, speaking for the control plane, and reading root keys', async () => {
    const verifier = as('verifier');
    const write = "redis.call('HSET', KEYS[1], 'e', '1')";
    await expect(verifier.eval(write, 1, 'kf:{a}:k:key_1')).rejects.toThrow(/can't run this command/);
    await expect(verifier.publish('kf:{a}:chg', 'x')).rejects.toThrow(/NOPERM/);
    await expect(verifier.hmget('kf:{!root}:k:x', 'id')).rejects.toThrow(/NOPERM/);
    await expect(verifier.eval('return 1', 1, 'kf:{!root}:k:x')).rejects.toThrow(/NOPERM/);
    expect(await verifier.zadd('kf:{a}:members', 1, 'me')).toBe(1);
  });

  async function start(): Promise<void> {
    const env = {
      ...process.env,
      SECRETS: join(folder, 'secrets'),
      DATA: join(folder, 'data'),
      PORT: '0',
    };
    const own = ['--unixsocket', join(folder, 'redis.sock')];
    server = spawn('sh', ['deploy/redis/start.sh', ...own], { cwd: root, env, stdio: 'ignore' });
    const probe = connect({ username: 'probe', password: 'any', retryStrategy: () => 20 });
    await expect.poll(() => probe.ping().catch(() => ''), { timeout: READY_MS_MAX }).toBe('PONG');
  }

  async function stop(): Promise<void> {
    if (!server || server.exitCode !== null) return;
    const exited = once(server, 'exit');
    server.kill('SIGTERM');
    await exited;
  }

  function as(username: 'control-plane' | 'verifier'): Redis {
    return connect({ username, password: `password of ${username}` });
  }

  function connect(options: object = {}): Redis {
    const client = new Redis({ path: join(folder, 'redis.sock'), enableReadyCheck: false, ...options });
    client.on('error', () => undefined);
    clients.push(client);
    return client;
  }
});
