import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { Load } from '../harness/load.ts';
import { PATIENT, RedisPods } from './redis-pods.ts';

/** Long enough that the next pod would go while one syncs, were nobody to look. */
const KEYS = 1000;
const SLOW_SYNC = ['--rdb-key-save-delay', '700'];
// macOS has one loopback address.
const reason = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';

describe.skipIf(reason)(
  `a rollout of the three Redis of deploy/kubernetes/overlays/production${reason}`,
  () => {
    let group: RedisPods;
    let fleet: Fleet;
    beforeAll(async () => {
      group = await RedisPods.start({ args: SLOW_SYNC });
      const env = { LEASE_MS: '10000' };
      fleet = await Fleet.start({
        redisUrl: 'unused',
        verifiers: 0,
        env: { ...group.env('control-plane'), ...env },
      });
      await fleet.addVerifier({ ...group.env('verifier'), ...env });
    });
    afterAll(async () => {
      await fleet?.stop();
      await group?.stop();
    });

    it('loses no key or disable, one server at a time', async () => {
      const { key } = await created();
      const { key: bad, keyId } = await created();
      await filled();
      expect(await fleet.verdict(key)).toBe('VALID');
      expect(await fleet.verdict(bad)).toBe('VALID');
      await vi.waitFor(
        async () => expect(await disabled(keyId)).toMatchObject({ state: 'complete', durable: true }),
        PATIENT,
      );
      expect(await fleet.verdict(bad)).toBe('DISABLED');

      const address = fleet.verifiers[0]?.address ?? '';
      const ask = (each: string) => () => ({ path: '/v1/keys.verifyKey', body: { key: each } });
      const knowing = new Load(address, ask(key), { callers: 1 });
      const refused = new Load(address, ask(bad), { callers: 1 });
      const whole: number[] = [];
      const stopped: unknown[] = [];
      await group.rollOut(
        async () => {
          const roles = await Promise.all(group.pods.map((pod) => pod.role()));
          whole.push(roles.filter(([role, , , state]) => role === 'master' || state === 'connected').length);
        },
        (role) => void stopped.push(role),
      );
      // Callers get keys again as soon as the last pod is ready.
      await vi.waitFor(created, PATIENT);
      for (const load of [knowing, refused]) await load.more(20);
      await Promise.all([knowing, refused].map((load) => load.stop()));

      expect(whole).toEqual([3, 3, 3]);
      expect(stopped).toEqual(['slave', 'slave', 'slave']);
      expect(knowing.outcomes).toEqual({ VALID: expect.any(Number) });
      expect(refused.outcomes).toEqual({ DISABLED: expect.any(Number) });
      expect((await group.roles()).sort()).toEqual(['master', 'slave', 'slave']);
    });

    /** Until all replicas hold it; while they do not, the answer is 503. */
    function created(): Promise<{ key: string; keyId: string }> {
      return fleet.ok('keys.createKey', { apiId: 'a' });
    }

    async function disabled(keyId: string): Promise<unknown> {
      return (await fleet.ok('keys.updateKey', { keyId, enabled: false })).propagation;
    }

    /** Gives every server something to sync. */
    async function filled(): Promise<void> {
      const keys = Array.from({ length: KEYS }, (_, i) => ({ sha256: i.toString(16).padStart(64, '0') }));
      for (let at = 0; at < KEYS; at += 100) {
        await fleet.ok('keys.importKeys', { apiId: 'a', keys: keys.slice(at, at + 100) });
      }
    }
  },
);
