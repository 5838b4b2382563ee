import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { PATIENT, RedisPods } from './redis-pods.ts';

// macOS has one loopback address.
const reason = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';

describe.skipIf(reason)(`three Redis and Sentinels as deploy/redis starts them, over TLS${reason}`, () => {
  let group: RedisPods;
  let fleet: Fleet;

  beforeAll(async () => {
    group = await RedisPods.start({ tls: true });
    fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: group.env('control-plane') });
    await fleet.addVerifier(group.env('verifier'));
  });
  afterAll(async () => {
    await fleet?.stop();
    await group?.stop();
  });

  it('keep acknowledged changes if the primary dies', async () => {
    const key = await created();
    expect(await fleet.verdict(key.key)).toBe('VALID');
    await disabled(key.keyId);
    await group.pods[0]?.redis.end('SIGKILL');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
    await vi.waitFor(async () => expect(await group.roles()).toContain('master'), PATIENT);
    await group.pods[0]?.redis.restart();
    // Mostly as a replica; but whoever it is, one primary.
    await vi.waitFor(
      async () => expect((await group.roles()).sort()).toEqual(['master', 'slave', 'slave']),
      PATIENT,
    );
    const other = await created();
    expect(await fleet.verdict(other.key)).toBe('VALID');
    await disabled(other.keyId);
    expect(await fleet.verdict(other.key)).toBe('DISABLED');
    expect(await fleet.verdict(key.key)).toBe('DISABLED');
  });

  it('keep all when the primary returns empty', async () => {
    const { key, keyId } = await created();
    await disabled(keyId);
    expect(await fleet.verdict(key)).toBe('DISABLED');
    const primary = group.pods[(await group.roles()).indexOf('master')];
    await primary?.redis.end('SIGKILL');
    primary?.redis.loseData();
    await primary?.redis.restart();
    await vi.waitFor(
      async () => expect((await group.roles()).sort()).toEqual(['master', 'slave', 'slave']),
      PATIENT,
    );
    const other = await created();
    await disabled(other.keyId);
    expect(await fleet.verdict(key)).toBe('DISABLED');
  });

  it('let clients ask only who is primary', async () => {
    const client = group.pods[1]?.sentinel.connect({
      tls: { rejectUnauthorized: false },
      password: 'sentinel-client',
    });
    expect(await client?.call('SENTINEL', 'get-master-addr-by-name', 'mymaster')).toHaveLength(2);
    for (const command of ['ckquorum', 'failover', 'reset', 'remove']) {
      await expect(client?.call('SENTINEL', command, 'mymaster')).rejects.toThrow(/NOPERM/);
    }
    const operator = group.pods[1]?.sentinel.as('sentinel', { tls: { rejectUnauthorized: false } });
    expect(await operator?.call('SENTINEL', 'ckquorum', 'mymaster')).toMatch(/^OK 3 usable/);
    const stranger = group.pods[1]?.sentinel.connect({ tls: { rejectUnauthorized: false } });
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
});
