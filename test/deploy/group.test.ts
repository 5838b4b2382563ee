import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Fleet } from '../fleet.ts';
import { freePort } from '../redis/nodes.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

/** Sentinels may have to vote more than once, and demote a primary that came back after 8 s. */
const PATIENT = { timeout: 40_000, interval: 100 };
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
      DOWN_AFTER_MS: '2000',
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

  it('keep every acknowledged change when the primary dies and comes back', async () => {
    const key = await created();
    expect(await fleet.verdict(key.key)).toBe('VALID');
    await disabled(key.keyId);
    await group[0]?.end('SIGKILL');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
    await vi.waitFor(async () => expect(await roles()).toContain('master'), PATIENT);
    await group[0]?.restart();
    // Mostly as a replica; but whoever it is, one primary.
    await vi.waitFor(
      async () => expect((await roles()).sort()).toEqual(['master', 'slave', 'slave']),
      PATIENT,
    );
    const other = await created();
    expect(await fleet.verdict(other.key)).toBe('VALID');
    await disabled(other.keyId);
    expect(await fleet.verdict(other.key)).toBe('DISABLED');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
  }, 120_000);

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
  function created(): Promise<{ key: string; keyId: string }> {
    return vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'a' }), PATIENT);
  }

  async function disabled(keyId: string): Promise<void> {
    await vi.waitFor(async () => {
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(propagation).toMatchObject({ state: 'complete', durable: true });
    }, PATIENT);
  }

  function roles(): Promise<unknown[]> {
    const tls = { rejectUnauthorized: false };
    const asked = group.map(async (each) => {
      const redis = each.as('operator', { tls, retryStrategy: () => null, maxRetriesPerRequest: 0 });
      const reply = await redis.role().catch(() => ['away']);
      redis.disconnect();
      return reply[0];
    });
    return Promise.all(asked);
  }
});
