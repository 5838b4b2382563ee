import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { Fleet } from '../harness/fleet.ts';
import { Process } from '../harness/processes.ts';

const API = 'creations';
let fleet: Fleet;
let verifier: Process;

beforeEach(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const env = { REDIS_URL: fleet.redisUrl, LOG_LEVEL: 'info' };
  verifier = new Process('verifier/main.ts', env);
  await verifier.start();
});

afterEach(async () => {
  await verifier.stop('SIGKILL');
  await fleet.stop();
});

/** The code of a verdict, asked until one can be had. */
async function verdict(key: string): Promise<string> {
  let code = '';
  await fleet.until(async () => {
    const { status, body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
    if (status === 200) code = body.code;
    return status === 200;
  });
  return code;
}

async function create(): Promise<{ key: string; keyId: string }> {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: API });
  return { key, keyId };
}

async function createKnown(): Promise<{ key: string; keyId: string }> {
  const created = await create();
  expect(await verdict(created.key)).toBe('VALID');
  return created;
}

async function redis<T>(use: (redis: Redis) => Promise<T>): Promise<T> {
  const connection = new Redis({ path: fleet.redisUrl.replace('unix://', ''), lazyConnect: true });
  await connection.connect();
  try {
    return await use(connection);
  } finally {
    connection.disconnect();
  }
}

const data = () => join(fleet.directory, 'redis');
const copy = () => join(fleet.directory, 'copy');

async function takeCopy(): Promise<void> {
  await fleet.redis.stop();
  cpSync(data(), copy(), { recursive: true });
  await fleet.startRedis();
  await writable();
}

/** Redis comes back as it was when the copy was taken. The verifier does nothing until `go`. */
async function restoreCopy(): Promise<void> {
  await fleet.redis.stop();
  rmSync(data(), { recursive: true });
  cpSync(copy(), data(), { recursive: true });
  await fleet.startRedis();
  await writable();
}

const writable = () =>
  fleet.until(async () => (await fleet.admin('apis.createApi', { name: 'probe' })).status === 200);

const dropped = () => /"reason":"(noreg|diverged|trimmed)"/.test(verifier.output);

describe('a verifier that knows a key whose creation Redis lost, which nobody can disable, stops accepting it', () => {
  test('when Redis comes back as it was before', async () => {
    const kept = await createKnown();
    await takeCopy();
    expect(await verdict(kept.key)).toBe('VALID');
    const lost = await createKnown();
    await restoreCopy();
    expect((await fleet.admin('keys.updateKey', { keyId: lost.keyId, enabled: false })).status).toBe(404);
    await fleet.until(async () => (await verdict(lost.key)) === 'NOT_FOUND');
    await fleet.until(() => verifier.output.includes('"reason":"diverged"'));
    expect(await verdict(kept.key)).toBe('VALID');
  });

  test('when as many keys were created as were lost', async () => {
    await createKnown();
    await takeCopy();
    const lost = [await createKnown(), await createKnown()];
    verifier.signal('SIGSTOP');
    await restoreCopy();
    const created = [await create(), await create()];
    verifier.signal('SIGCONT');
    for (const { key } of lost) await fleet.until(async () => (await verdict(key)) === 'NOT_FOUND');
    for (const { key } of created) expect(await verdict(key)).toBe('VALID');
  });

  test('when more keys were created than lost', async () => {
    await createKnown();
    await takeCopy();
    const lost = await createKnown();
    verifier.signal('SIGSTOP');
    await restoreCopy();
    for (let i = 0; i < 5; i++) await create();
    verifier.signal('SIGCONT');
    await fleet.until(async () => (await verdict(lost.key)) === 'NOT_FOUND');
  });

  test('when it was imported again differently', async () => {
    await createKnown();
    await takeCopy();
    const secret = generateKey(16);
    const imported = (enabled: boolean) =>
      fleet.ok('keys.importKeys', {
        apiId: API,
        keys: [{ sha256: hashSecret(secret), foreign: false, enabled }],
      });
    await imported(true);
    expect(await verdict(secret)).toBe('VALID');
    verifier.signal('SIGSTOP');
    await restoreCopy();
    await imported(false);
    verifier.signal('SIGCONT');
    await fleet.until(async () => (await verdict(secret)) === 'DISABLED');
  });
});

test('forgets nothing when keys are changed', async () => {
  const first = await create();
  expect(await verdict(first.key)).toBe('VALID');
  for (let i = 0; i < 3; i++) {
    const { key, keyId } = await createKnown();
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await verdict(key)).toBe('DISABLED');
    if (i === 1) await fleet.ok('keys.deleteKey', { keyId });
  }
  expect(await verdict(first.key)).toBe('VALID');
  expect(dropped()).toBe(false);
});

test('forgets all after missing too many creations', async () => {
  const known = await createKnown();
  verifier.signal('SIGSTOP');
  await create();
  await redis((connection) => connection.xtrim(`kf:{${API}}:new`, 'MAXLEN', 0));
  verifier.signal('SIGCONT');
  await fleet.until(() => verifier.output.includes('"reason":"trimmed"'));
  expect(await verdict(known.key)).toBe('VALID');
});

test('SYNC writes nothing while nothing is created', async () => {
  await verifier.stop('SIGKILL');
  // Its report about itself, every 10 s, would be a write.
  await fleet.addVerifier({ STATUS_PERIOD_MS: '600000' });
  const { key } = await create();
  expect(await fleet.verdict(key)).toBe('VALID');
  const calls = async (command: string) =>
    redis(async (connection) =>
      Number(
        new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await connection.info('commandstats'))?.[1] ?? 0,
      ),
    );
  const syncs = await calls('zscore');
  await fleet.until(async () => (await calls('zscore')) > syncs + 1); // the creation was seen by one of them
  await redis((connection) => connection.config('RESETSTAT'));
  await fleet.until(async () => (await calls('zscore')) >= 2);
  for (const command of ['xrange', 'xadd', 'zadd', 'hset', 'set'])
    expect([command, await calls(command)]).toEqual([command, 0]);
});
