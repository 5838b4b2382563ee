import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Fleet } from '../fleet.ts';
import { freePort } from '../redis/nodes.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

const HOSTS = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
// macOS has one loopback address.
const reason = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';

describe.skipIf(reason)(`three Redis and Sentinels as deploy/redis starts them, over TLS${reason}`, () => {
  const files = new OwnFiles();
  const group: OwnRedis[] = [];
  const sentinels: OwnRedis[] = [];
  let fleet: Fleet;
  const secret = (name: string) => join(files.folder, 'secrets', `${name}-password`);

  beforeAll(async () => {
    files.certify(...HOSTS);
    const [port, sentinelPort] = [await freePort(), await freePort()];
    const shared = {
      GROUP_PRIMARY: HOSTS[0],
      REDIS_PORT: String(port),
      DOWN_AFTER_MS: '1000',
      FAILOVER_MS: '3000',
    };
    for (const host of HOSTS) {
      const env = { ...shared, GROUP_SELF: host };
      group.push(await OwnRedis.start(files, { port, env }));
      sentinels.push(await OwnRedis.start(files, { port: sentinelPort, env, script: 'start-sentinel.sh' }));
    }
    const common = {
      REDIS_MODE: 'sentinel',
      REDIS_URL: HOSTS.map((host) => `rediss://${host}:${sentinelPort}`).join(','),
      REDIS_REPLICAS: '2',
      REDIS_TLS_CA_FILE: files.ca,
      REDIS_SENTINEL_PASSWORD_FILE: secret('sentinel-client'),
    };
    const as = (user: string) => ({ ...common, REDIS_USERNAME: user, REDIS_PASSWORD_FILE: secret(user) });
    fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: as('control-plane') });
    await fleet.addVerifier(as('verifier'));
  }, 60_000);
  afterAll(async () => {
    await fleet?.stop();
    for (const each of [...sentinels, ...group]) await each.stop();
    files.remove();
  }, 60_000);

  it('keep every acknowledged change when the primary dies, and take it back as a replica', async () => {
    const key = await created();
    expect(await fleet.verdict(key.key)).toBe('VALID');
    await disabled(key.keyId);
    await group[0]?.end('SIGKILL');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
    await fleet.until(async () => (await role(1)) === 'master' || (await role(2)) === 'master');
    await group[0]?.restart();
    await fleet.until(async () => (await role(0)) === 'slave');
    const other = await created();
    expect(await fleet.verdict(other.key)).toBe('VALID');
    await disabled(other.keyId);
    expect(await fleet.verdict(other.key)).toBe('DISABLED');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
  }, 60_000);

  it('let clients of the Sentinels ask who is primary, and nothing else', async () => {
    const client = sentinels[1]?.connect({
      tls: { rejectUnauthorized: false },
      password: 'sentinel-client',
    });
    expect(await client?.call('SENTINEL', 'get-master-addr-by-name', 'mymaster')).toHaveLength(2);
    for (const command of ['failover', 'reset', 'remove']) {
      await expect(client?.call('SENTINEL', command, 'mymaster')).rejects.toThrow(/NOPERM/);
    }
    const stranger = sentinels[1]?.connect({ tls: { rejectUnauthorized: false } });
    await expect(stranger?.call('SENTINEL', 'masters')).rejects.toThrow(/NOAUTH/);
  });

  /** Until all replicas hold it; while they do not, the answer is 503. */
  async function created(): Promise<{ key: string; keyId: string }> {
    let body: { key: string; keyId: string } | undefined;
    await fleet.until(async () => {
      const answer = await fleet.admin('keys.createKey', { apiId: 'a' });
      if (answer.status === 200) body = answer.body;
      return body !== undefined;
    });
    return body ?? { key: '', keyId: '' };
  }

  async function disabled(keyId: string): Promise<void> {
    await fleet.until(async () => {
      const { body } = await fleet.admin('keys.updateKey', { keyId, enabled: false });
      return body.propagation?.state === 'complete' && body.propagation.durable;
    });
  }

  async function role(member: number): Promise<unknown> {
    const tls = { rejectUnauthorized: false };
    const redis = group[member]?.as('admin', { tls, retryStrategy: () => null, maxRetriesPerRequest: 0 });
    const reply = await redis?.role().catch(() => []);
    redis?.disconnect();
    return reply?.[0];
  }
});
