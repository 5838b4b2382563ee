import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys, idPointer, secretPointer } from '../../../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';
import { type Answer, Fleet } from '../../../harness/fleet.ts';

/** Many keys of an API at once, at real verifiers. */
let fleet: Fleet;
let redis: Redis;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { LEASE_MS: '20000' } });
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

interface Made {
  readonly key: string;
  readonly keyId: string;
}

/** Keys of an API, of one owner each time. */
async function make(apiId: string, count: number, externalId?: string): Promise<Made[]> {
  const keys = Array.from({ length: count }, () => generateKey(16));
  const made: Made[] = [];
  for (let at = 0; at < count; at += 500) {
    const part = keys.slice(at, at + 500);
    const owner = externalId === undefined ? {} : { externalId };
    const wanted = part.map((key) => ({ sha256: hashSecret(key), foreign: false, ...owner }));
    const { results } = await fleet.ok('keys.importKeys', { apiId, keys: wanted });
    made.push(...part.map((key, i) => ({ key, keyId: results[i].keyId })));
  }
  return made;
}

/** The different verdicts on some keys, at both verifiers. */
async function verdicts(keys: readonly Made[]): Promise<string[]> {
  const found = new Set<string>();
  for (const { key } of keys) for (const at of [0, 1]) found.add(await fleet.verdict(key, { at }));
  return [...found];
}

const idsOf = (keys: readonly Made[]) => keys.map(({ keyId }) => keyId);
// biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape
const eventsOf = async ({ headers }: Answer): Promise<any[]> => {
  const { events } = await fleet.ok('audit.listEvents', {});
  return events.filter((event: { requestId: string }) => event.requestId === headers['x-request-id']);
};

describe('updateKeys', () => {
  test('answers once no verifier accepts any key', async () => {
    const keys = await make('many', 230);
    const probes = keys.filter((_, i) => i % 23 === 0);
    expect(await verdicts(probes)).toEqual(['VALID']);
    const [elsewhere] = await make('elsewhere', 1);
    const keyIds = [...idsOf(keys), 'key_none', elsewhere?.keyId, keys[0]?.keyId, keys[229]?.keyId];
    const { results, refused, propagation, cursor } = await fleet.ok('keys.updateKeys', {
      apiId: 'many',
      keyIds,
      enabled: false,
    });
    expect(refused).toBe(2);
    expect(await verdicts(probes)).toEqual(['DISABLED']);
    expect(await verdicts(keys.slice(-3))).toEqual(['DISABLED']);
    expect(propagation).toMatchObject({ state: 'complete', by: 'acks', durable: true, sequence: 230 });
    expect(cursor).toBeUndefined();
    expect(results).toEqual([
      ...keys.map(({ keyId }, i) => ({ result: 'updated', keyId, sequence: i + 1 })),
      ...['key_none', elsewhere?.keyId].map((keyId) => ({
        ...{ result: 'refused', keyId },
        ...{ code: 'NOT_FOUND', message: `key ${keyId} not found` },
      })),
    ]);
    expect(await verdicts(elsewhere ? [elsewhere] : [])).toEqual(['VALID']);
    const last = { keyId: keys[229]?.keyId, sequence: propagation.sequence };
    expect((await fleet.ok('keys.getPropagation', last)).propagation.state).toBe('complete');
  });

  test('changes every field that updateKey does', async () => {
    const keys = await make('fields', 3, 'ada');
    const expires = Date.now() + 1_000_000;
    const fields = { name: 'leaked', expires, meta: { why: 'x'.repeat(100) }, enabled: false };
    await fleet.ok('keys.updateKeys', { apiId: 'fields', keyIds: idsOf(keys), ...fields });
    for (const keyId of idsOf(keys)) {
      expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ ...fields, externalId: 'ada' });
    }
    await fleet.ok('keys.updateKeys', { apiId: 'fields', externalId: 'ada', name: null, expires: null });
    for (const keyId of idsOf(keys)) {
      const key = await fleet.ok('keys.getKey', { keyId });
      expect([key.name, key.expires, key.enabled]).toEqual([undefined, undefined, false]);
    }
  });

  test('changes all keys of an owner, page by page', async () => {
    const keys = await make('owned', 1001, 'acme');
    const [other] = await make('owned', 1, 'others');
    const input = { apiId: 'owned', externalId: 'acme', enabled: false };
    const first = await fleet.ok('keys.updateKeys', input);
    expect(first.results.map(({ keyId }: Made) => keyId)).toEqual(idsOf(keys.slice(0, 1000)));
    const [last] = keys.slice(-1);
    expect(await verdicts(last ? [last] : [])).toEqual(['VALID']);
    const second = await fleet.ok('keys.updateKeys', { ...input, cursor: first.cursor });
    expect(second).toMatchObject({ results: [{ result: 'updated', keyId: last?.keyId }] });
    expect(second).not.toHaveProperty('cursor');
    expect(await verdicts(last ? [last] : [])).toEqual(['DISABLED']);
    expect(await verdicts(other ? [other] : [])).toEqual(['VALID']);
    const { externalId: _, ...named } = { ...input, ownerId: 'acme', enabled: true, cursor: first.cursor };
    expect((await fleet.ok('keys.updateKeys', named)).results).toHaveLength(1);
    expect(await verdicts(last ? [last] : [])).toEqual(['VALID']);
  });

  test('says so if it meets no key, changing nothing', async () => {
    await make('some', 1);
    const input = { apiId: 'some', enabled: false };
    expect(await fleet.ok('keys.updateKeys', { ...input, externalId: 'nobody' })).toEqual({
      results: [],
      refused: 0,
    });
    const { results, propagation } = await fleet.ok('keys.updateKeys', { ...input, keyIds: ['key_none'] });
    expect([results[0].code, propagation]).toEqual(['NOT_FOUND', undefined]);
    expect(await redis.xlen(apiKeys('some').log)).toBe(0);
  });

  const WRONG: [string, object, number, RegExp][] = [
    ['neither ids nor an owner', {}, 400, /^keyIds: give either/],
    ['both', { keyIds: ['key_1'], externalId: 'ada' }, 400, /^keyIds: give either/],
    ['two owners', { externalId: 'ada', ownerId: 'eve' }, 400, /ownerId/],
    ['ids and an owner by its other name', { keyIds: ['key_1'], ownerId: 'a' }, 400, /^keyIds: give either/],
    ['no ids', { keyIds: [] }, 400, /^keyIds: .*fewer than 1/],
    ['too many ids', { keyIds: Array.from({ length: 1001 }, (_, i) => `key_${i}`) }, 400, /^keyIds: .*1000/],
    ['an id that is none', { keyIds: ['key_1', 'a b'] }, 400, /^keyIds.1: /],
    ['a cursor with ids', { keyIds: ['key_1'], cursor: 'x' }, 400, /^cursor: /],
    ['a cursor of something else', { externalId: 'ada', cursor: 'YXNjOjE' }, 400, /^cursor: /],
    ['an API that there is not', { apiId: 'none', keyIds: ['key_1'] }, 404, /^api none not found/],
    ['an owner in none', { apiId: 'none', externalId: 'ada' }, 404, /^api none not found/],
  ];
  test.each(WRONG)('refuses %s', async (_, input, status, message) => {
    await make('wrong', 1);
    for (const operation of ['keys.updateKeys', 'keys.deleteKeys']) {
      const field = operation === 'keys.updateKeys' ? { enabled: false } : {};
      const answer = await fleet.admin(operation, { apiId: 'wrong', ...input, ...field });
      expect([answer.status, answer.body.error?.message]).toEqual([status, expect.stringMatching(message)]);
    }
  });

  test('refuses an empty change and a long meta', async () => {
    const input = { apiId: 'wrong', keyIds: ['key_1'] };
    const nothing = await fleet.admin('keys.updateKeys', input);
    expect([nothing.status, nothing.body.error.message]).toEqual([
      400,
      'body: must name at least one field to change',
    ]);
    const long = await fleet.admin('keys.updateKeys', { ...input, meta: { text: 'x'.repeat(9000) } });
    expect([long.status, long.body.error.message]).toEqual([400, expect.stringMatching(/^meta: /)]);
  });

  test('takes 1,000 ids of the longest kind', async () => {
    await make('long', 1);
    const keyIds = Array.from({ length: 1000 }, (_, i) => `${i}_`.padEnd(80, 'x'));
    const { results } = await fleet.ok('keys.updateKeys', { apiId: 'long', keyIds, enabled: false });
    expect(results).toHaveLength(1000);
  });

  test('opposing calls leave every key in one state', async () => {
    const keys = await make('opposite', 120);
    const calls = [true, false, true, false].map((enabled) =>
      fleet.ok('keys.updateKeys', { apiId: 'opposite', keyIds: idsOf(keys), enabled }),
    );
    for (const { propagation } of await Promise.all(calls)) expect(propagation.state).toBe('complete');
    for (const probe of keys.filter((_, i) => i % 10 === 0)) {
      const { enabled } = await fleet.ok('keys.getKey', { keyId: probe.keyId });
      expect(await verdicts([probe])).toEqual([enabled ? 'VALID' : 'DISABLED']);
    }
  });

  test('disables keys on a Redis that is full', async () => {
    const keys = await make('full', 120);
    await redis.config('SET', 'maxmemory', '1');
    try {
      expect((await fleet.admin('keys.createKey', { apiId: 'full' })).status).toBe(503);
      const input = { apiId: 'full', keyIds: idsOf(keys), enabled: false };
      expect((await fleet.ok('keys.updateKeys', input)).propagation.state).toBe('complete');
    } finally {
      await redis.config('SET', 'maxmemory', '0');
    }
    expect(await verdicts(keys.slice(0, 2))).toEqual(['DISABLED']);
  });
});

describe('deleteKeys', () => {
  test('frees the secrets of keys for a new import', async () => {
    const keys = await make('gone', 120, 'ada');
    expect(await verdicts(keys.slice(0, 2))).toEqual(['VALID']);
    const { results, propagation } = await fleet.ok('keys.deleteKeys', { apiId: 'gone', externalId: 'ada' });
    expect(results.map(({ result }: { result: string }) => result)).toEqual(keys.map(() => 'deleted'));
    expect(propagation).toMatchObject({ state: 'complete', sequence: 120 });
    expect(await verdicts([...keys.slice(0, 2), ...keys.slice(-2)])).toEqual(['NOT_FOUND']);
    const pointers = keys.flatMap(({ key, keyId }) => [secretPointer(hashSecret(key)), idPointer(keyId)]);
    expect(await redis.exists(...pointers)).toBe(0);
    const again = await fleet.ok('keys.deleteKeys', { apiId: 'gone', keyIds: idsOf(keys) });
    expect(again.results[0].code).toBe('NOT_FOUND');
    const sha256 = hashSecret(keys[0]?.key ?? '');
    const input = { apiId: 'gone', keys: [{ sha256, foreign: false }] };
    expect((await fleet.ok('keys.importKeys', input)).results).toMatchObject([{ result: 'created' }]);
  });
});

describe('apis.deleteKeys', () => {
  test('deletes every key of an API but not the API', async () => {
    const keys = await make('emptied', 1050);
    const [other] = await make('kept', 1);
    const answer = await fleet.admin('apis.deleteKeys', { apiId: 'emptied' });
    expect(answer.body).toMatchObject({
      deletedKeys: 1050,
      propagation: { state: 'complete', sequence: 1050 },
    });
    expect(await verdicts([...keys.slice(0, 2), ...keys.slice(-2)])).toEqual(['NOT_FOUND']);
    expect(await verdicts(other ? [other] : [])).toEqual(['VALID']);
    expect((await fleet.ok('apis.listKeys', { apiId: 'emptied' })).total).toBe(0);
    expect(await fleet.ok('apis.deleteKeys', { apiId: 'emptied', permanent: true })).toEqual({
      deletedKeys: 0,
    });
    const [call] = await eventsOf(answer);
    expect(call).toMatchObject({ operation: 'apis.deleteKeys', after: { deleted: 1050 } });
  });

  test('never says that deleted keys come back', async () => {
    await make('soft', 1);
    const { status, body } = await fleet.admin('apis.deleteKeys', { apiId: 'soft', permanent: false });
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(/^permanent: /)]);
    expect((await fleet.admin('apis.deleteKeys', { apiId: 'none' })).status).toBe(404);
  });
});

describe('the audit log', () => {
  test('has the call and what each key was before', async () => {
    const keys = await make('audited', 3, 'ada');
    await fleet.ok('keys.updateKey', { keyId: keys[1]?.keyId, enabled: false });
    const input = { apiId: 'audited', keyIds: [...idsOf(keys), 'key_none'], enabled: false };
    const [call, ...each] = await eventsOf(await fleet.admin('keys.updateKeys', input));
    expect(call).toMatchObject({
      ...{ operation: 'keys.updateKeys', outcome: 'OK', on: { apiId: 'audited' }, sequence: 4 },
      after: { enabled: false, updated: 3, refused: 1, unknown: 0 },
    });
    expect(each.toReversed()).toMatchObject(
      keys.map(({ keyId }, i) => ({
        ...{ operation: 'keys.updateKeys', outcome: 'OK', on: { apiId: 'audited', keyId } },
        ...{ before: { enabled: i !== 1 }, after: { enabled: false }, sequence: i + 2 },
      })),
    );
    const { events } = await fleet.ok('audit.listEvents', { keyId: keys[0]?.keyId });
    expect(events[0]).toEqual(each.at(-1));
  });

  test('is written before the call has answered', async () => {
    const [one, ...keys] = await make('waiting', 61);
    const { members } = apiKeys('waiting');
    await redis.zadd(members, 0, 'silent');
    const since = Date.now();
    const calls = [
      fleet.ok('keys.updateKey', { keyId: one?.keyId, enabled: false }),
      fleet.ok('keys.updateKeys', { apiId: 'waiting', keyIds: idsOf(keys), enabled: false }),
    ];
    const disabled = new Set<string>();
    await fleet.until(async () => {
      const { events } = await fleet.ok('audit.listEvents', { apiId: 'waiting', limit: '100' });
      for (const { on, sequence } of events) if (on.keyId !== undefined && sequence) disabled.add(on.keyId);
      return disabled.size === 61;
    });
    expect(await redis.zscore(members, 'silent')).toBe('0');
    await redis.zrem(members, 'silent');
    for (const { propagation } of await Promise.all(calls)) expect(propagation.state).toBe('complete');
    const { events } = await fleet.ok('audit.listEvents', { keyId: one?.keyId });
    expect(events.filter(({ time }: { time: number }) => time >= since)).toHaveLength(1);
  });

  test('names the owner by whom keys were chosen', async () => {
    await make('audited', 1, 'eve');
    const none = await fleet.admin('keys.deleteKeys', { apiId: 'audited', externalId: 'nobody' });
    expect(await eventsOf(none)).toEqual([
      expect.objectContaining({ after: { deleted: 0, refused: 0, unknown: 0 } }),
    ]);
    const answer = await fleet.admin('keys.deleteKeys', { apiId: 'audited', externalId: 'eve' });
    const [call, key] = await eventsOf(answer);
    expect(call).toMatchObject({ on: { apiId: 'audited', externalId: 'eve' }, after: { deleted: 1 } });
    expect(key).toMatchObject({ operation: 'keys.deleteKeys', before: { enabled: true, externalId: 'eve' } });
  });
});
