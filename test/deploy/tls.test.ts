import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CertificateWatch } from '../../control-plane/subjects/fleet/certificate-watch.ts';
import { SteppedClock } from '../control-plane/subjects/webhooks/stepped-clock.ts';
import { Fleet } from '../harness/fleet.ts';
import { metric } from '../harness/metrics.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

const redisTls = execFileSync('redis-cli', ['--help'], { encoding: 'utf8' }).includes('--tls');

describe.skipIf(!redisTls)(
  `Redis over TLS${redisTls ? '' : ' (skipped: this Redis is built without)'}`,
  () => {
    const files = new OwnFiles();
    let redis: OwnRedis;
    let fleet: Fleet;
    const env = (user: string, port: number, more: object = {}) => ({
      REDIS_URL: `rediss://127.0.0.1:${port}`,
      REDIS_TLS_CA_FILE: files.ca,
      REDIS_USERNAME: user,
      REDIS_PASSWORD_FILE: join(files.folder, 'secrets', `${user}-password`),
      ...more,
    });
    beforeAll(async () => {
      files.certify('127.0.0.1');
      redis = await OwnRedis.start(files);
      fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: env('control-plane', redis.port) });
      await fleet.addVerifier(env('verifier', redis.port));
    });
    afterAll(async () => {
      await fleet?.stop();
      await redis?.stop();
      files.remove();
    });

    it('carries keys and verdicts with the right CA', async () => {
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'a' });
      expect(await fleet.verdict(key)).toBe('VALID');
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(propagation).toMatchObject({ state: 'complete', by: 'acks' });
      expect(await fleet.verdict(key)).toBe('DISABLED');
    });

    it('tells when the certificates end', async () => {
      const tls = join(files.folder, 'secrets', 'tls');
      const endOf = (name: string) => {
        const { validTo } = new X509Certificate(readFileSync(join(tls, name)));
        return Date.parse(validTo) / 1000;
      };
      const name = 'keyfence_certificate_end_timestamp_seconds';
      const ends = Math.min(endOf('tls.crt'), endOf('ca.crt'));
      const { adminAddress } = fleet.controlPlanes[0] ?? {};
      await fleet.until(async () => (await metric(adminAddress, name)) === ends);
      const own = { TLS_CERT_FILE: join(tls, 'tls.crt'), TLS_KEY_FILE: join(tls, 'tls.key') };
      const listener = await fleet.addVerifier(
        env('verifier', redis.port, { ...own, STATUS_PERIOD_MS: '200' }),
      );
      expect(await metric(listener.adminAddress, name)).toBe(endOf('tls.crt'));
      const changes = async () => {
        const { findings } = await fleet.ok('fleet.listFindings');
        return findings.flatMap(({ change, result }: { change?: string; result: string }) =>
          change ? [`${result}: ${change}`] : [],
        );
      };
      await fleet.until(async () => (await changes()).join().includes('replace its TLS_CERT_FILE'));
      expect(await changes()).toContainEqual(
        expect.stringMatching(new RegExp(`^Redis 127.0.0.1:${redis.port}: until 20.*: replace them`)),
      );
      await fleet.verifiers.pop()?.stop();
    });

    it('sees a new certificate within the hour', async () => {
      const clock = new SteppedClock();
      const endsOfRedis = { first: 1, later: 2 };
      const opened = Object.values(endsOfRedis).map((endMs) => ({
        certificates: new Map([['Redis', endMs]]),
        primaries: async () => [],
        close: async () => undefined,
      }));
      const watch = new CertificateWatch(() => opened.shift() as never, clock);
      const running = watch.run();
      await fleet.until(() => watch.ends.get('Redis') === endsOfRedis.first);
      await clock.pass(3_600_000);
      await fleet.until(() => watch.ends.get('Redis') === endsOfRedis.later);
      watch.stop();
      await clock.pass(1);
      await running;
    });

    it('Redis answers nobody who does not use TLS', async () => {
      const socket = connect(redis.port, '127.0.0.1');
      let answer = '';
      socket.on('data', (chunk) => {
        answer += chunk;
      });
      socket.on('error', () => undefined); // how it ends is not the point
      socket.write('PING\r\n');
      await new Promise((resolve) => socket.once('close', resolve));
      expect(answer).not.toMatch(/PONG|NOAUTH/);
    });

    it.each<[string, string, () => Promise<{ port: number; ca: string; stop: () => Promise<void> }>]>([
      [
        'the authority is not one of the system’s and none is named',
        'certificate',
        async () => ({ port: redis.port, ca: '', stop: async () => undefined }),
      ],
      ['the server is of another authority', 'certificate', () => another('127.0.0.1')],
      [
        'the certificate is for another address',
        "does not match certificate's altnames",
        () => another('127.0.0.9'),
      ],
    ])('is refused by a verifier where %s', async (_, reason, server) => {
      const { port, ca, stop } = await server();
      const logged = fleet.logged.length;
      const verifier = await fleet.addVerifier(env('verifier', port, { REDIS_TLS_CA_FILE: ca }), false);
      await fleet.until(() => fleet.logged.slice(logged).some((line) => line.includes(reason)));
      expect((await fleet.get(`${verifier.adminAddress}/readyz`)).status).toBe(503);
      await fleet.verifiers.pop()?.stop();
      await stop();
    });

    /** Another Redis, its certificate for `address`; believed by its own authority or, for the first's address, not. */
    async function another(address: string) {
      const others = new OwnFiles();
      others.certify(address);
      const server = await OwnRedis.start(others);
      const stop = async () => {
        await server.stop();
        others.remove();
      };
      return { port: server.port, ca: address === '127.0.0.1' ? files.ca : others.ca, stop };
    }
  },
);
