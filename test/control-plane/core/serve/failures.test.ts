import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys, recordKey, rootKeyRecord } from '../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

/** Calls that end badly, and what the log and the audit log say of them. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

const linesOf = (requestId: unknown) =>
  fleet.logged.map((line) => JSON.parse(line)).filter((line) => line.requestId === requestId);
const auditOf = async (requestId: unknown, query: object = {}) =>
  (await fleet.ok('audit.listEvents', query)).events.filter(
    (event: { requestId: string }) => event.requestId === requestId,
  );

describe('a mistake of ours', () => {
  test('in a change is 500, logged and audited', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'damaged' });
    const { head } = apiKeys('damaged');
    await fleet.client.rename(head, 'aside');
    await fleet.client.set(head, 'not a hash');
    const { status, body, headers } = await fleet.admin('keys.updateKey', { keyId, enabled: false });
    expect([status, body.error.code, body.error.message]).toEqual([
      500,
      'INTERNAL_SERVER_ERROR',
      'something went wrong on our side',
    ]);
    const requestId = headers['x-request-id'];
    const [line] = linesOf(requestId).filter(({ level }) => level === 50);
    expect(line.err).toMatchObject({
      message: expect.stringMatching(/WRONGTYPE/),
      stack: expect.any(String),
    });
    expect(await auditOf(requestId)).toEqual([
      expect.objectContaining({ outcome: 'INTERNAL_SERVER_ERROR', on: { apiId: 'damaged', keyId } }),
    ]);
    await fleet.client.rename('aside', head);
  });

  test('before anybody is known is 500, not audited', async () => {
    const [{ keyId }, { key }] = [
      await fleet.ok('keys.createKey', { apiId: 'unreadable' }),
      await fleet.ok('rootKeys.createRootKey', { name: 'damaged', permissions: ['api.*.update_key'] }),
    ];
    const record = rootKeyRecord(hashSecret(key));
    await fleet.client.del(record);
    await fleet.client.set(record, 'not a hash');
    const { status, headers } = await fleet.admin(
      'keys.updateKey',
      { keyId, enabled: false },
      { rootKey: key },
    );
    expect(status).toBe(500);
    const requestId = headers['x-request-id'];
    expect(linesOf(requestId).map(({ level }) => level)).toContain(50);
    expect([...(await auditOf(requestId)), ...(await auditOf(requestId, { refused: 'true' }))]).toEqual([]);
  });

  test('in reading is 500, logged, not audited', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'unreadable' });
    await fleet.client.hset(recordKey('unreadable', keyId), 'm', '{');
    const { status, headers } = await fleet.admin('keys.getKey', { keyId });
    expect(status).toBe(500);
    const requestId = headers['x-request-id'];
    expect(linesOf(requestId).map(({ level }) => level)).toContain(50);
    expect([...(await auditOf(requestId)), ...(await auditOf(requestId, { refused: 'true' }))]).toEqual([]);
  });
});

test('logs and audits the trace of the caller', async () => {
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
  const headers = { authorization: `Bearer ${ROOT_KEY}`, traceparent: `00-${trace}-00f067aa0ba902b7-01` };
  const url = `${fleet.controlPlanes[0]?.address}/v1/keys.updateKey`;
  const answer = await fleet.post(url, { keyId: 'key_none', enabled: false }, headers);
  const requestId = answer.headers['x-request-id'];
  expect(linesOf(requestId).map(({ traceId }) => traceId)).toEqual([trace]);
  expect(await auditOf(requestId, { refused: 'true' })).toMatchObject([{ traceId: trace }]);
  const said = fleet.logged.map((line) => JSON.parse(line)).filter(({ audit }) => audit?.traceId === trace);
  expect(said).toHaveLength(1);
});

test('logs every answered call in one line', async () => {
  const { headers } = await fleet.admin('keys.getKey', { keyId: 'key_none' });
  const [line, ...more] = linesOf(headers['x-request-id']).filter(({ msg }) => msg === 'request');
  expect(more).toEqual([]);
  expect(line).toMatchObject({
    level: 30,
    method: 'GET',
    path: '/v1/keys.getKey',
    status: 404,
    rootKeyId: expect.stringMatching(/^bootstrap/),
  });
  expect(line.ms).toBeGreaterThan(0);
  expect(line.ms).toBeLessThan(60_000);
});

describe('a meta', () => {
  /** As JSON it has so many bytes; half as many letters. */
  const metaOf = (bytes: number) => ({
    t: `${'é'.repeat((bytes - 8 - (bytes % 2)) / 2)}${'x'.repeat(bytes % 2)}`,
  });

  test.each(['keys.createKey', 'keys.updateKey', 'keys.importKeys'])(
    'of 8192 bytes is taken by %s, longer ones not',
    async (operation) => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'metas' });
      const send = async (meta: object, sha256: string) => {
        expect(Buffer.byteLength(JSON.stringify(meta))).toBeGreaterThan(8000);
        if (operation === 'keys.createKey') return fleet.admin(operation, { apiId: 'metas', meta });
        if (operation === 'keys.updateKey') return fleet.admin(operation, { keyId, meta });
        const answer = await fleet.ok(operation, { apiId: 'metas', keys: [{ sha256, meta }] });
        const [{ result, code, message }] = answer.results;
        return result === 'refused' ? { status: 400, body: { error: { code, message } } } : { status: 200 };
      };
      expect(Buffer.byteLength(JSON.stringify(metaOf(8192)))).toBe(8192);
      expect((await send(metaOf(8192), 'ab'.repeat(32))).status).toBe(200);
      expect(await send(metaOf(8193), 'cd'.repeat(32))).toMatchObject({
        status: 400,
        body: { error: { code: 'BAD_REQUEST', message: 'meta: must be at most 8192 bytes of JSON' } },
      });
    },
  );

  test('that is refused changes nothing', async () => {
    const meta = { kept: true };
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'metas', meta });
    await fleet.admin('keys.updateKey', { keyId, meta: metaOf(9000), enabled: false });
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ meta, enabled: true });
  });
});
