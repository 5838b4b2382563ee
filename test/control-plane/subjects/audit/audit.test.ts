import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditStream } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

let fleet: Fleet;
let base: string;

beforeAll(async () => {
  const env = { AUDIT_EVENTS_MAX: '1000', AUDIT_REFUSED_MAX: '1000', FAILURES_PER_MINUTE: '0' };
  fleet = await Fleet.start({ verifiers: 0, env });
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(() => fleet.stop());

// biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape
const events = async (query: object = {}): Promise<any[]> =>
  (await fleet.ok('audit.listEvents', query)).events;
const rootKeyWith = (...permissions: string[]): Promise<{ rootKeyId: string; key: string }> =>
  fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions });
const counted = (labels: string) =>
  metric(fleet.controlPlanes[0]?.adminAddress, `keyfence_audit_events_total{${labels}}`);

describe('what was done', () => {
  test('the audit event of a disable shows who did it, to what, and the values before and after', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'audited', name: 'Ada' });
    const answer = await fleet.admin('keys.updateKey', { keyId, enabled: false });
    expect(await events({ keyId })).toEqual([
      {
        id: expect.stringMatching(/^\d+-\d+$/),
        time: expect.any(Number),
        requestId: answer.headers['x-request-id'],
        operation: 'keys.updateKey',
        outcome: 'OK',
        by: { rootKeyId: expect.stringMatching(/^bootstrap_[0-9a-f]{8}$/), address: '127.0.0.1' },
        on: { apiId: 'audited', keyId },
        before: { enabled: true },
        after: { enabled: false },
        sequence: answer.body.propagation.sequence,
      },
      expect.objectContaining({ operation: 'keys.createKey', on: { apiId: 'audited', keyId } }),
    ]);
  });

  test('records as before what the write itself found', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'racing', name: '0' });
    const names = ['1', '2', '3', '4', '5', '6', '7', '8'];
    await Promise.all(names.map((name) => fleet.ok('keys.updateKey', { keyId, name })));
    const updates = (await events({ keyId, operation: 'keys.updateKey' })).toSorted(
      (a, b) => a.sequence - b.sequence,
    );
    expect(updates.map(({ before }) => before.name)).toEqual(
      ['0', ...updates.map(({ after }) => after.name)].slice(0, -1),
    );
  });

  test('shows every field, but of meta only a hash', async () => {
    const expires = Date.now() + 60_000;
    const given = { name: 'one', externalId: 'o', environment: 'live', expires, meta: { card: '4111' } };
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'fields', ...given });
    const meta = { bytes: 15, sha256: expect.stringMatching(/^[0-9a-f]{16}$/) };
    await fleet.ok('keys.updateKey', { keyId, name: null, expires: null, meta: { text: 'x'.repeat(3000) } });
    await fleet.ok('keys.updateKey', { keyId, ownerId: 'p' });
    await fleet.ok('keys.deleteKey', { keyId });
    const [deleted, moved, cleared, created] = await events({ keyId });
    expect(created.after).toEqual({ ...given, enabled: true, meta });
    expect(cleared.before).toEqual({ name: 'one', expires: given.expires, meta });
    expect(cleared.after).toEqual({ name: null, expires: null, meta: { ...meta, bytes: 3011 } });
    expect([moved.before, moved.after]).toEqual([{ externalId: 'o' }, { externalId: 'p' }]);
    expect(deleted.before).toMatchObject({
      enabled: true,
      name: null,
      externalId: 'p',
      meta: { bytes: 3011 },
    });
    expect(deleted).not.toHaveProperty('after');
  });

  test('APIs and root keys are there too', async () => {
    const { rootKeyId } = await rootKeyWith('api.*.read_key', 'api.*.read_api');
    await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
    await fleet.ok('apis.createApi', { name: 'Shop', apiId: 'shop' });
    await fleet.ok('apis.deleteApi', { apiId: 'shop' });
    const [gone, made, disabled, granted] = await events({ limit: '4' });
    expect(gone).toMatchObject({ operation: 'apis.deleteApi', on: { apiId: 'shop' }, sequence: 1 });
    expect(made).toMatchObject({
      operation: 'apis.createApi',
      on: { apiId: 'shop' },
      after: { name: 'Shop' },
    });
    expect(disabled).toMatchObject({
      on: { rootKeyId },
      before: { enabled: true },
      after: { enabled: false },
    });
    expect(granted).toMatchObject({
      operation: 'rootKeys.createRootKey',
      on: { rootKeyId },
      after: { name: 'limited', permissions: ['api.*.read_key', 'api.*.read_api'] },
    });
  });

  test('records an import as one event with its count', async () => {
    const keys = [{ sha256: 'ab'.repeat(32) }, { sha256: 'no hash' }];
    await fleet.ok('keys.importKeys', { apiId: 'imported', keys });
    await fleet.ok('keys.importKeys', { apiId: 'imported', keys });
    const [again, first] = await events({ apiId: 'imported' });
    expect(first).toMatchObject({ operation: 'keys.importKeys', on: { apiId: 'imported' } });
    expect(first.after).toEqual({ created: 1, exists: 0, refused: 1 });
    expect(again.after).toEqual({ created: 0, exists: 1, refused: 1 });
  });

  test('reading leaves no event', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'read' });
    await fleet.ok('keys.getKey', { keyId });
    await fleet.ok('apis.listKeys', { apiId: 'read' });
    expect(await events({ apiId: 'read' })).toHaveLength(1);
  });
});

describe('what was refused', () => {
  const refused = (query: object = {}) => events({ refused: 'true', ...query });

  test('is listed apart, with its reason', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'guarded' });
    const { rootKeyId, key: rootKey } = await rootKeyWith('api.guarded.read_key');
    await fleet.admin('keys.updateKey', { keyId, enabled: false }, { rootKey });
    await fleet.admin('keys.updateKey', { keyId, enabeld: false });
    await fleet.admin('keys.updateKey', { keyId: 'key_0000000000000000none', enabled: false });
    await fleet.get(`${base}/v1/keys.getKey?keyId=${keyId}`);
    const [stranger, unknown, mistyped, notAllowed] = await refused({ limit: '4' });
    expect(stranger).toMatchObject({ operation: 'keys.getKey', outcome: 'UNAUTHORIZED', on: { keyId } });
    expect(stranger.by).toEqual({ address: '127.0.0.1' });
    expect(unknown).toMatchObject({ outcome: 'NOT_FOUND', on: { keyId: 'key_0000000000000000none' } });
    expect(mistyped).toMatchObject({ outcome: 'BAD_REQUEST', on: { keyId } });
    expect(notAllowed).toMatchObject({
      outcome: 'INSUFFICIENT_PERMISSIONS',
      by: { rootKeyId },
      on: { apiId: 'guarded', keyId },
    });
    expect(await events({ keyId })).toHaveLength(1);
  });

  test('tells that a hidden key exists', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'hidden' });
    const { rootKeyId, key: rootKey } = await rootKeyWith('api.other.read_key');
    expect((await fleet.admin('keys.getKey', { keyId }, { rootKey })).body.error.code).toBe('NOT_FOUND');
    const [event] = await refused({ rootKeyId });
    expect(event).toMatchObject({ outcome: 'INSUFFICIENT_PERMISSIONS', on: { apiId: 'hidden', keyId } });
  });

  test('a flood of refused calls pushes no successful call out of the audit log', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'flooded' });
    for (let round = 0; round < 40; round++) {
      await Promise.all(
        Array.from({ length: 50 }, () => fleet.post(`${base}/v1/keys.updateKey`, { keyId, enabled: false })),
      );
    }
    const length = await fleet.client.xlen(auditStream('refused'));
    expect(length).toBeGreaterThanOrEqual(1000);
    expect(length).toBeLessThan(1500);
    expect(await events({ keyId })).toHaveLength(1);
  });
});

describe('listing', () => {
  test('gives every event once, the latest first', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'paged' });
    const created = (await events({ keyId }))[0];
    for (let i = 0; i < 6; i++) await fleet.ok('keys.updateKey', { keyId, name: `n${i}` });
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const query = { apiId: 'paged', limit: '2', ...(cursor ? { cursor } : {}) };
      const page = await fleet.ok('audit.listEvents', query);
      seen.push(...page.events.map(({ after }: { after: { name: string } }) => after.name));
      cursor = page.cursor;
    } while (cursor);
    expect(seen).toEqual(['n5', 'n4', 'n3', 'n2', 'n1', 'n0', undefined]);
    const since = String(Number(created.id.split('-')[0]) + 1);
    expect((await events({ apiId: 'paged', since })).length).toBeGreaterThanOrEqual(5);
    expect(await events({ apiId: 'paged', since: String(Date.now() + 60_000) })).toEqual([]);
  });

  const another = JSON.stringify({
    ...{ time: 1, requestId: 'r', operation: 'x.y', outcome: 'OK', by: { address: 'a' }, on: {} },
  });
  /** Adds more events of others than one page examines, by less than a page's last read. */
  const addOthers = async (...index: string[]) => {
    const pipeline = fleet.client.pipeline();
    for (let i = 0; i < 1100; i++) pipeline.xadd(auditStream('done'), '*', 'e', another, ...index);
    await pipeline.exec();
  };

  test('looks at a bounded number of events a page', async () => {
    await fleet.ok('keys.createKey', { apiId: 'needle' });
    await addOthers();
    const first = await fleet.ok('audit.listEvents', { apiId: 'needle' });
    expect(first).toEqual({ events: [], cursor: expect.any(String) });
    const second = await fleet.ok('audit.listEvents', { apiId: 'needle', cursor: first.cursor });
    expect(second.events).toHaveLength(1);
  });

  test('finds the events of a key by an index', async () => {
    await fleet.client.del(auditStream('done'));
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'history' });
    for (let i = 0; i < 4; i++) await fleet.ok('keys.updateKey', { keyId, name: `n${i}` });
    await addOthers('k', '');
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await fleet.ok('audit.listEvents', { keyId, limit: '2', ...(cursor ? { cursor } : {}) });
      expect(page.events.length).toBeGreaterThan(0);
      seen.push(...page.events.map(({ after }: { after: { name: string } }) => after.name));
      cursor = page.cursor;
    } while (cursor);
    expect(seen).toEqual(['n3', 'n2', 'n1', 'n0', undefined]);
    expect(await events({ keyId, operation: 'keys.createKey' })).toHaveLength(1);
    const [latest] = await events({ keyId });
    const until = String(Number(latest.id.split('-')[0]) - 1);
    expect((await events({ keyId, until })).length).toBeLessThan(5);
    expect(await events({ keyId, since: String(Date.now() + 60_000) })).toEqual([]);
  });

  test('needs the permission to', async () => {
    const reader = await rootKeyWith('root.*.read_audit');
    const other = await rootKeyWith('root.*.read_fleet', 'api.*.read_key');
    expect((await fleet.admin('audit.listEvents', {}, { rootKey: reader.key })).status).toBe(200);
    expect((await fleet.admin('audit.listEvents', {}, { rootKey: other.key })).status).toBe(403);
  });
});

test('no stream or log holds a key sent as an id', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'secret', meta: { pin: 'swordfish-1' } });
  const { key: rootKey } = await rootKeyWith('api.*.read_key');
  await fleet.admin('keys.updateKey', { keyId: key, enabled: false });
  await fleet.admin('keys.updateKey', { keyId, enabled: false }, { rootKey });
  const kept = JSON.stringify([
    await fleet.client.xrange(auditStream('done'), '-', '+'),
    await fleet.client.xrange(auditStream('refused'), '-', '+'),
    fleet.logged,
  ]);
  for (const secret of [key, rootKey, ROOT_KEY, 'swordfish']) expect(kept).not.toContain(secret);
  expect(kept).toContain(keyId);
});

test('a failing audit write fails no disable', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'unrecorded' });
  const late = 'kind="done",result="late"';
  const before = await counted(late);
  await fleet.client.rename(auditStream('done'), 'aside');
  await fleet.client.set(auditStream('done'), 'not a stream');
  const { headers, body } = await fleet.admin('keys.updateKey', { keyId, enabled: false });
  expect(body.propagation.state).toBe('complete');
  expect((await fleet.ok('keys.getKey', { keyId })).enabled).toBe(false);
  const line = fleet.logged.find(
    (text) => text.includes(`"requestId":"${headers['x-request-id']}"`) && text.includes('"audit":'),
  );
  expect(JSON.parse(line ?? '{}').audit).toMatchObject({ on: { keyId }, after: { enabled: false } });
  const warned = fleet.logged.map((text) => JSON.parse(text)).filter(({ waits }) => waits === true);
  expect(warned).toEqual([
    expect.objectContaining({ level: 40, requestId: headers['x-request-id'], err: expect.anything() }),
  ]);

  await fleet.client.rename('aside', auditStream('done'));
  await fleet.until(async () => (await counted(late)) === before + 1);
  expect((await events({ keyId }))[0]).toMatchObject({ outcome: 'OK', after: { enabled: false } });
});

test('counts events that are lost at the stop', async () => {
  const controlPlane = await fleet.addControlPlane();
  const at = fleet.controlPlanes.length - 1;
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'lost' }, { at });
  await fleet.client.rename(auditStream('done'), 'aside');
  await fleet.client.set(auditStream('done'), 'not a stream');
  await fleet.admin('keys.updateKey', { keyId, enabled: false }, { at });
  const started = fleet.logged.length;
  await controlPlane.stop();
  await fleet.client.rename('aside', auditStream('done'));
  fleet.controlPlanes.splice(at, 1);
  expect(fleet.logged.slice(started).filter((line) => line.includes('audit events are lost'))).toHaveLength(
    1,
  );
});
