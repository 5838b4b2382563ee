import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hashSecret } from '../../../shared/rules/key-format.ts';
import { Fleet } from '../../harness/fleet.ts';
import { SentinelGroup } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

const directory = scratch('sentinel');
let group: SentinelGroup;
let fleet: Fleet;

beforeAll(async () => {
  group = await SentinelGroup.start(directory);
  const env = { REDIS_MODE: 'sentinel', REDIS_URL: group.url, REDIS_REPLICAS: '2', LEASE_MS: '3000' };
  fleet = await Fleet.start({ verifiers: 2, redisUrl: group.url, env });
});
afterAll(async () => {
  await fleet?.stop();
  await group?.stop();
  rmSync(directory, { recursive: true });
});

/** Sends a change until it is complete; an outage is 503 and is sent again, as a caller would. */
const complete = async (operation: string, input: object) => {
  let propagation: { state: string; by: string; durable: boolean } | undefined;
  await fleet.until(async () => {
    const answer = await fleet.admin(operation, input);
    if (answer.status === 200 && answer.body.propagation.state === 'complete')
      propagation = answer.body.propagation;
    return propagation !== undefined;
  });
  return propagation;
};

describe('with Sentinel and two replicas', () => {
  test('an update completes at replicas and verifiers', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'ha' });
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation).toMatchObject({ state: 'complete', by: 'acks', durable: true, verifiers: 2 });
    for (const at of [0, 1]) expect((await fleet.verify(key, { at })).body.code).toBe('DISABLED');
    const primary = await group.primary();
    for (const node of group.nodes.filter((each) => each !== primary)) {
      expect(await node.command('HGET', `kf:{ha}:k:${keyId}`, 'e')).toBe('0');
    }
  });

  test('an import is 503 while a replica is away', async () => {
    const input = { apiId: 'ha', keys: [{ sha256: hashSecret('one') }, { sha256: hashSecret('two') }] };
    const [{ keyId }] = (await fleet.ok('keys.importKeys', input)).results;
    for (const node of group.nodes) expect(await node.command('HGET', `kf:{ha}:k:${keyId}`, 'e')).toBe('1');
    const primary = await group.primary();
    const away = group.nodes.find((node) => node !== primary);
    await away?.stop();
    const more = { apiId: 'ha', keys: [...input.keys, { sha256: hashSecret('three') }] };
    expect((await fleet.admin('keys.importKeys', more)).status).toBe(503);
    await away?.restart();
    await fleet.until(async () => {
      const { status, body } = await fleet.admin('keys.importKeys', more);
      return (
        status === 200 && body.results.every(({ keyId: id }: { keyId: string }) => id.startsWith('key_'))
      );
    });
  });

  test('an update stays incomplete without a replica', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'ha' });
    expect(await fleet.verdict(key)).toBe('VALID');
    const primary = await group.primary();
    const away = group.nodes.find((node) => node !== primary);
    await away?.stop();
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false, waitMs: 100 });
    expect(propagation).toMatchObject({ state: 'pending', durable: false });
    expect((await fleet.verify(key)).body.code).toBe('DISABLED');
    await away?.restart();
    await fleet.until(async () => {
      const standing = await fleet.ok('keys.getPropagation', { keyId, sequence: propagation.sequence });
      return standing.propagation.state === 'complete' && standing.propagation.durable;
    });
  });

  test("a complete change is durable only where a power cut loses no server's writes and all replicas have it", async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'ha' });
    const propagation = async (at: number) =>
      (await fleet.ok('keys.updateKey', { keyId, name: 'x' }, { at })).propagation;
    const primary = await group.primary();
    for (const [name, wrong, right] of [
      ['appendfsync', 'everysec', 'always'],
      ['appendonly', 'no', 'yes'],
    ] as const) {
      await primary.command('CONFIG', 'SET', name, wrong);
      expect(await propagation(0)).toMatchObject({ state: 'complete', durable: false });
      await primary.command('CONFIG', 'SET', name, right);
      await fleet.until(async () => (await propagation(0)).durable);
    }
    // One of the two replicas may lack the write, and may become the primary.
    await fleet.addControlPlane({ REDIS_MODE: 'sentinel', REDIS_URL: group.url, REDIS_REPLICAS: '1' });
    expect(await propagation(1)).toMatchObject({ state: 'complete', durable: false });
    expect(
      fleet.logged.some((line) => line.includes('not durable: ') && line.includes('REDIS_REPLICAS=2')),
    ).toBe(true);
  });

  test('killing the primary loses no acknowledged write and revives no disabled key', async () => {
    const keys = await Promise.all(
      Array.from({ length: 10 }, () => fleet.ok('keys.createKey', { apiId: 'ha' })),
    );
    for (const { key } of keys)
      for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
    for (const { keyId } of keys) {
      expect(await complete('keys.updateKey', { keyId, enabled: false })).toMatchObject({ durable: true });
    }
    const old = await group.primary();
    await old.stop();
    // During the failover: from memory or 503, never a wrong answer.
    const wrong: string[] = [];
    await fleet.until(async () => {
      for (const { key } of keys) {
        for (const at of [0, 1]) {
          const { status, body } = await fleet.verifyOnce(key, { at });
          if (status !== 503 && body.code !== 'DISABLED') wrong.push(JSON.stringify(body));
        }
      }
      return (await group.primary()) !== old;
    });
    await old.restart();
    for (const { key } of keys)
      for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('DISABLED');
    expect(wrong).toEqual([]);
    const [first] = keys;
    // The new primary may not know yet what it can promise.
    await fleet.until(async () => {
      const propagation = await complete('keys.updateKey', { keyId: first?.keyId, enabled: true });
      return propagation?.durable === true;
    });
    for (const at of [0, 1]) expect(await fleet.verdict(first?.key ?? '', { at })).toBe('VALID');
  });

  test('no verifier registers without a replica', async () => {
    await fleet.until(async () =>
      [200, 409].includes((await fleet.admin('apis.createApi', { name: 'late', apiId: 'late' })).status),
    );
    const primary = await group.primary();
    const away = group.nodes.find((node) => node !== primary);
    await away?.stop();
    const env = { REDIS_MODE: 'sentinel', REDIS_URL: group.url, REDIS_REPLICAS: '2', API_IDS: 'late' };
    const verifier = await fleet.addVerifier(env, false);
    await fleet.until(() => fleet.logged.some((line) => line.includes('1 of 2 required replicas confirmed')));
    const ready = await fleet.get(`${verifier.adminAddress}/readyz`);
    expect(ready.status).toBe(503);
    expect(ready.body).toContain('not yet in sync: late');
    await away?.restart();
    await fleet.until(async () => (await fleet.get(`${verifier.adminAddress}/readyz`)).status === 200);
  });

  test('an ended connection lets go of the Sentinels', async () => {
    const [sentinel] = group.sentinels;
    const connected = async () => String(await sentinel?.command('CLIENT', 'LIST')).split('\n').length;
    const { key } = await fleet.ok('keys.createKey', { apiId: 'ha' });
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
    const before = await connected();
    for (let i = 0; i < 5; i++) {
      await (await group.primary()).command('CLIENT', 'KILL', 'TYPE', 'normal');
      await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'ha' })).status === 200);
    }
    // One more may be there: a sender of webhooks reads over a connection of its own when its term begins.
    await fleet.until(async () => (await connected()) <= before + 1);
  });
});
