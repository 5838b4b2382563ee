import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { BATCH_LIMITS, RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { recordRun } from '../../../../shared/protocol/log/new-key-record.ts';
import { storedFields } from '../../../../shared/protocol/records/key-record.ts';
import { Fence } from '../../../../shared/protocol/writer/fence.ts';
import { ChangeWriter } from '../../../../shared/protocol/writer/writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys, SHARED_LOG } from '../../../../shared/redis/redis-keys.ts';
import { send } from '../../../../shared/redis/script.ts';
import { generateId, hashSecret } from '../../../../shared/rules/key-format.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { PATIENT } from '../../../harness/waiting.ts';

const DEPOSED_MS = 1000;

/** Two verifiers, and keys whose permissions come from roles, which are written as the control plane writes keys. */
let fleet: Fleet;
let nodes: RedisNodes;
let changeWriter: ChangeWriter;

let leaseMs: number;

/** Has the tests of a block run with leases of this length. */
function withLeases(ms: number): void {
  beforeAll(async () => {
    leaseMs = ms;
    const env = { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '10000', LEASE_MS: `${ms}` };
    fleet = await Fleet.start({ verifiers: 2, env });
    const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
    nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
    const log = new RedisChangeLog(nodes, new DurableWriter(nodes, 0), 0, Date.now);
    const events = { ended: vi.fn(), killed: vi.fn(), reaped: vi.fn() };
    changeWriter = new ChangeWriter({
      log,
      fence: new Fence(log, systemClock, DEPOSED_MS, events),
      clock: systemClock,
      limits: {
        fenceWaitMs: 30_000,
        pending: { changesMax: 100, stopsMax: 100 },
        replicated: false,
        batch: BATCH_LIMITS,
      },
      durable: () => true,
      events: { rewritten: vi.fn() },
    });
  });
  afterAll(async () => {
    await nodes.close();
    await fleet.stop();
  });
}

let made = 0;
/** Creates a role; its id. */
async function role(name: string, permissions: readonly string[]): Promise<string> {
  const nowMs = Date.now();
  const keyId = generateId('role', nowMs + made++);
  const about = { apiId: SHARED_LOG, keyId, secretHash: hashSecret(keyId), start: '', createdAt: nowMs };
  const record = { ...about, name, permissions, enabled: true, meta: {}, foreign: false };
  const run = recordRun(record, true, leaseMs);
  expect(await nodes.run(apiKeys(SHARED_LOG).head, (redis) => send(redis, run))).toMatchObject({
    status: 'OK',
  });
  return keyId;
}
/** Changes a role, or deletes it where nothing is to be set, and waits until that is complete. */
async function change(keyId: string, permissions?: readonly string[]): Promise<number> {
  const operation = permissions ? ('update' as const) : ('delete' as const);
  const fields = permissions ? storedFields({ permissions }) : {};
  const propagation = await changeWriter.apply({ apiId: SHARED_LOG, operation, keyId, fields });
  expect(propagation).toMatchObject({ state: 'complete' });
  return propagation?.verifiers ?? 0;
}
/** Gives a key these roles. */
async function give(keyId: string, roles: readonly string[]): Promise<void> {
  const fields = storedFields({ roles });
  const given = await changeWriter.apply({ apiId: 'shop', operation: 'update', keyId, fields });
  expect(given).toMatchObject({ state: 'complete' });
}
const create = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

/** The answers of both verifiers, each asked again while it cannot decide. */
const verify = (key: string, permissions?: string) =>
  Promise.all(
    fleet.verifiers.map(async ({ address }) => {
      const asked = { key, ...(permissions ? { authorization: { permissions } } : {}) };
      let answer = { status: 503, body: {} as Record<string, unknown> };
      await fleet.until(async () => {
        answer = await fleet.post(`${address}/v1/keys.verifyKey`, asked);
        return answer.status !== 503;
      });
      return answer.body;
    }),
  );
const codes = async (key: string, permissions: string) =>
  (await verify(key, permissions)).map(({ code }) => code);
const VALID = ['VALID', 'VALID'];
const REFUSED = ['INSUFFICIENT_PERMISSIONS', 'INSUFFICIENT_PERMISSIONS'];
const members = () => fleet.client.zcard(apiKeys(SHARED_LOG).members);

describe('a key with roles', () => {
  withLeases(60_000);

  test('may do what it or any of its roles may', async () => {
    const plain = await create({ permissions: ['own'] });
    expect(await codes(plain.key, 'own')).toEqual(VALID);
    expect(await members()).toBe(0);
    const [reader, writer] = [await role('reader', ['files.read']), await role('writer', ['files.write'])];
    expect(await codes(plain.key, 'files.read')).toEqual(REFUSED);
    await give(plain.keyId, [writer, reader]);
    for (let round = 0; round < 2; round++) {
      for (const answer of await verify(plain.key, 'own AND files.read AND files.write')) {
        expect(answer).toMatchObject({
          ...{ valid: true, code: 'VALID', keyId: plain.keyId, roles: ['reader', 'writer'] },
          permissions: ['files.read', 'files.write', 'own'],
        });
      }
    }
    expect(await members()).toBe(2);
    await give(plain.keyId, [reader]);
    expect(await codes(plain.key, 'files.write')).toEqual(REFUSED);
    expect(await codes(plain.key, 'files.read')).toEqual(VALID);
    await give(plain.keyId, []);
    expect(await codes(plain.key, 'files.read')).toEqual(REFUSED);
    expect((await verify(plain.key))[0]).not.toHaveProperty('roles');
  });

  test('follows a changed role at every verifier', async () => {
    const id = await role('billing', ['bills.read']);
    const keys = await Promise.all([create(), create(), create()]);
    for (const { keyId } of keys) await give(keyId, [id]);
    for (const { key } of keys) expect(await codes(key, 'bills.read')).toEqual(VALID);
    for (const permissions of [['bills.write'], ['bills.read', 'bills.write'], [], ['bills.read']]) {
      expect(await change(id, permissions)).toBe(2);
      for (const { key } of keys) {
        expect(await codes(key, 'bills.read')).toEqual(permissions.includes('bills.read') ? VALID : REFUSED);
        expect(await codes(key, 'bills.write')).toEqual(
          permissions.includes('bills.write') ? VALID : REFUSED,
        );
      }
    }
  });

  test('never does what was taken from its role', async () => {
    const id = await role('temporary', []);
    const { key, keyId } = await create();
    await give(keyId, [id]);
    expect(await codes(key, 'secret')).toEqual(REFUSED);
    await give(keyId, []);
    await change(id, ['secret']);
    expect(await codes(key, 'secret')).toEqual(REFUSED);
  });

  test('has nothing of a deleted or unknown role', async () => {
    const id = await role('gone', ['go']);
    const { key, keyId } = await create();
    await give(keyId, [id, 'role_never']);
    expect(await codes(key, 'go')).toEqual(VALID);
    expect((await verify(key))[0]).toMatchObject({ roles: ['gone'], permissions: ['go'] });
    await change(id);
    for (let round = 0; round < 2; round++) {
      expect(await codes(key, 'go')).toEqual(REFUSED);
      expect((await verify(key))[0]).toMatchObject({ code: 'VALID' });
      expect((await verify(key))[0]).not.toHaveProperty('roles');
    }
  });

  test('is judged for state and credits like any key', async () => {
    const id = await role('spender', ['spend']);
    const { key, keyId } = await create({ remaining: 3 });
    await give(keyId, [id]);
    expect(await codes(key, 'none')).toEqual(REFUSED);
    expect(await codes(key, 'spend')).toEqual(VALID);
    const rest = await codes(key, 'spend');
    expect(rest.sort()).toEqual(['USAGE_EXCEEDED', 'VALID']);
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    for (const answer of await verify(key, 'none'))
      expect(answer).toMatchObject({ code: 'DISABLED', roles: ['spender'] });
  });
});

describe('a verifier that does not hear of roles', () => {
  withLeases(3000);

  test('leaves keys with roles undecided, no others', async () => {
    const id = await role('watched', ['watch']);
    const { key, keyId } = await create();
    const plain = await create();
    await give(keyId, [id]);
    expect(await codes(key, 'watch')).toEqual(VALID);
    expect(await codes(plain.key, 'watch')).toEqual(REFUSED);
    // Nobody can register any more, or read a role: the head of the space is of another type.
    const { head } = apiKeys(SHARED_LOG);
    await fleet.client.rename(head, `${head}-away`);
    await fleet.client.set(head, 'broken');
    const ask = async (of: string) =>
      (await fleet.post(`${fleet.verifiers[0]?.address}/v1/keys.verifyKey`, { key: of })).status;
    await fleet.until(async () => (await ask(key)) === 503);
    expect(await ask(plain.key)).toBe(200);
    await fleet.client.rename(`${head}-away`, head);
    await fleet.until(async () => (await ask(key)) === 200);
  });
});
