import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { Load } from '../harness/load.ts';
import { RedisCluster } from '../harness/redis-cluster.ts';
import { RedisNode } from '../harness/redis-nodes.ts';
import { scratch } from '../harness/scratch.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';
import { PATIENT, RedisPods } from './redis-pods.ts';

const runbook = readFileSync(join(import.meta.dirname, '../../deploy/kubernetes/runbook.md'), 'utf8');
/** The shell commands of a section, block by block, as they are written. */
const commandsOf = (heading: string) => {
  const section = runbook.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```/gm)].map(([, block = '']) => block);
};
/** Runs what `kubectl exec` would run, on the processes here; what the cluster would do, the tests do. */
const KUBECTL = `#!/bin/sh
while [ $# -gt 0 ] && [ "$1" != exec ]; do shift; done
[ $# -gt 0 ] || exit 0
until [ "$1" = -- ]; do shift; done
shift
for word; do
  shift
  set -- "$@" "$(printf %s "$word" | sed "s#/etc/keyfence#$FILES#; s#/backup/#$BACKUP/#")"
done
exec "$@"
`;
const linux = process.platform === 'linux' ? '' : ' (skipped: needs Linux, for loopback addresses)';

let directory: string;
const stops: (() => unknown)[] = [];
beforeEach(() => {
  directory = scratch('kubernetes-runbook');
});
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
  rmSync(directory, { recursive: true });
});

const userOf = (files: OwnFiles, redis: string) => (user: string) => ({
  REDIS_URL: redis,
  REDIS_USERNAME: user,
  REDIS_PASSWORD_FILE: join(files.folder, 'secrets', `${user}-password`),
});
const created = (fleet: Fleet) =>
  vi.waitFor(() => fleet.ok('keys.createKey', { apiId: 'a' }), PATIENT) as Promise<{
    key: string;
    keyId: string;
  }>;
const disabled = (fleet: Fleet, keyId: string) =>
  vi.waitFor(async () => {
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation).toMatchObject({ state: 'complete' });
  }, PATIENT);
/** The process's environment with the `kubectl` above. */
function stubbed(env: NodeJS.ProcessEnv, backup: string, files: OwnFiles): NodeJS.ProcessEnv {
  const bin = join(directory, 'bin');
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, 'kubectl'), KUBECTL);
  chmodSync(join(bin, 'kubectl'), 0o755);
  return {
    ...env,
    PATH: `${bin}:${process.env['PATH']}`,
    FILES: join(files.folder, 'files'),
    BACKUP: backup,
    OVERLAY: 'overlay',
  };
}

test('no restored backup lets in what was refused', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const redis = await OwnRedis.start(files);
  stops.push(() => redis.stop());
  const as = userOf(files, `redis://127.0.0.1:${redis.port}`);
  const fleet = await Fleet.start({ redisUrl: 'unused', verifiers: 0, env: as('control-plane') });
  stops.push(() => fleet.stop());
  await fleet.addVerifier(as('verifier'));
  const [kept, refused] = [await created(fleet), await created(fleet)];
  for (const { key } of [kept, refused]) expect(await fleet.verdict(key)).toBe('VALID');

  const backup = join(directory, 'backup');
  mkdirSync(backup);
  for (const stale of ['2001-01-01T00:00:00Z', '2002-01-01T00:00:00Z'])
    writeFileSync(join(backup, `${stale}.rdb`), 'x');
  const env = stubbed({ ...redis.env, REDIS_HOST: '127.0.0.1', KEEP: '2' }, backup, files);
  const made = execFileSync('sh', [join(files.folder, 'files', 'backup.sh')], { env, encoding: 'utf8' });
  expect(made).toContain(backup);
  expect(execFileSync('ls', [backup], { encoding: 'utf8' })).not.toContain('2001-');
  await disabled(fleet, refused.keyId);

  const run = (block: string | undefined) => execFileSync('sh', ['-ec', block ?? ''], { env, stdio: 'pipe' });
  const [give, stopAll, admit] = commandsOf('Restore');
  run(give);
  run(stopAll);
  await redis.restart();
  // The old state is back, and would accept it.
  await vi.waitFor(
    async () => expect((await fleet.ok('keys.getKey', { keyId: refused.keyId })).enabled).toBe(true),
    PATIENT,
  );
  await fleet.until(async () => (await fleet.verifyOnce(refused.key)).status === 503);
  await vi.waitFor(
    () => fleet.ok('keys.updateKey', { keyId: refused.keyId, enabled: false, waitMs: 0 }),
    PATIENT,
  );
  expect((await fleet.verifyOnce(refused.key)).status).toBe(503);
  await redis.restart(); // as often as it likes: nobody is let in by that
  expect((await fleet.verifyOnce(kept.key)).status).toBe(503);
  run(admit);
  expect(await fleet.verdict(kept.key)).toBe('VALID');
  expect(await fleet.verdict(refused.key)).toBe('DISABLED');
  await redis.restart();
  expect(await fleet.verdict(kept.key)).toBe('VALID');
});

test('what is no backup is not taken', async () => {
  const files = new OwnFiles();
  stops.push(() => files.remove());
  const env = { ...process.env, DATA: directory };
  const restore = () =>
    execFileSync('sh', [join(files.folder, 'files', 'restore.sh')], { env, input: 'no', stdio: 'pipe' });
  expect(restore).toThrow(/this is no backup/);
  expect(execFileSync('ls', [directory], { encoding: 'utf8' })).toBe('');
});

test.skipIf(linux)(
  `one Redis becomes three: no known key fails, and none that was disabled comes back${linux}`,
  async () => {
    // A known key fails where Sentinels need longer than that, which on a slow machine they may: they vote anew.
    const LEASE_MS = '60000';
    let one: OwnRedis | undefined;
    let fleet: Fleet | undefined;
    let keys: { key: string; keyId: string }[] = [];
    const group = await RedisPods.start({
      joining: async (files, host, port) => {
        one = await OwnRedis.start(files, { port, env: { BIND: host } });
        const as = userOf(files, `redis://${host}:${port}`);
        fleet = await Fleet.start({
          redisUrl: 'unused',
          verifiers: 0,
          env: { ...as('control-plane'), LEASE_MS },
        });
        await fleet.addVerifier(as('verifier'));
        keys = [await created(fleet), await created(fleet)];
        await disabled(fleet, keys[1]?.keyId ?? '');
        return one;
      },
    });
    stops.push(() => group.stop());
    if (!fleet) throw new Error('nothing has begun');
    const whole = fleet;
    stops.push(() => whole.stop());
    const [good, bad] = keys as [(typeof keys)[0], (typeof keys)[0]];
    expect(await whole.verdict(good.key)).toBe('VALID');

    // Both copies are whole; then control planes and verifiers change over, and at last the first server.
    await group.untilReady();
    await whole.addControlPlane({ ...group.env('control-plane'), LEASE_MS });
    await whole.controlPlanes.shift()?.stop();
    await whole.addVerifier(group.env('verifier'));
    await whole.verifiers.shift()?.stop();
    expect(await whole.verdict(good.key)).toBe('VALID');
    const ask = () => ({ path: '/v1/keys.verifyKey', body: { key: good.key } });
    const load = new Load(whole.verifiers[0]?.address ?? '', ask, { callers: 1 });
    await group.takeIn();
    await group.untilReady();
    const late = await created(whole);
    expect(await whole.verdict(late.key)).toBe('VALID');
    await disabled(whole, late.keyId);
    await load.more(20);
    await load.stop();
    expect(load.outcomes).toEqual({ VALID: expect.any(Number) });
    for (const { key } of [bad, late]) expect(await whole.verdict(key)).toBe('DISABLED');
    expect((await group.roles()).sort()).toEqual(['master', 'slave', 'slave']);
  },
);

test('one Redis becomes a Cluster, losing nothing', async () => {
  const redis = await RedisNode.start(join(directory, 'one'));
  stops.push(() => redis.stop());
  const before = await Fleet.start({ redisUrl: redis.url });
  const [good, bad] = [await created(before), await created(before)];
  await disabled(before, bad.keyId);
  await before.stop();

  const cluster = await RedisCluster.start(join(directory, 'cluster'));
  stops.push(() => cluster.stop());
  const env = {
    ...process.env,
    PRIMARY: new URL(redis.url).host,
    CLUSTER: new URL(cluster.url.split(',')[0] ?? '').host,
  };
  const [, copy] = commandsOf('From three Redis to a Cluster');
  execFileSync('sh', ['-ec', copy ?? ''], { env, stdio: 'pipe' });

  const after = await Fleet.start({
    redisUrl: cluster.url,
    env: { REDIS_MODE: 'cluster' },
  });
  stops.push(() => after.stop());
  expect(await after.verdict(good.key)).toBe('VALID');
  expect(await after.verdict(bad.key)).toBe('DISABLED');
  await disabled(after, good.keyId);
  expect(await after.verdict(good.key)).toBe('DISABLED');
  expect((await after.ok('apis.listKeys', { apiId: 'a' })).total).toBe(2);
});
