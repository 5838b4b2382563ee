import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { apiKeys, auditStream } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { AUDIT_WAITING_MAX: '2', FAILURES_PER_MINUTE: '3' } });
});
afterAll(() => fleet.stop());

// biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape
const events = async (query: object = {}): Promise<any[]> =>
  (await fleet.ok('audit.listEvents', query)).events;
const newKey = async (apiId: string): Promise<string> => (await fleet.ok('keys.createKey', { apiId })).keyId;
const counted = (series: string) => metric(fleet.controlPlanes[0]?.adminAddress, series);

/** A call over a connection of its own, which the caller may hang up before the answer. */
class Call {
  readonly #socket: Socket;

  constructor(method: string, operation: string, rootKey: string, body = '') {
    const { hostname, port } = new URL(fleet.controlPlanes[0]?.address ?? '');
    this.#socket = connect(Number(port), hostname);
    const length = body ? `content-type: application/json\r\ncontent-length: ${body.length}\r\n` : '';
    const head = `host: x\r\nauthorization: Bearer ${rootKey}\r\n${length}`;
    this.#socket.write(`${method} /v1/${operation} HTTP/1.1\r\n${head}\r\n${body}`);
  }

  /** Returns when the server must have seen it. */
  async hangUp(): Promise<void> {
    const closed = new Promise((resolve) => this.#socket.once('close', resolve));
    this.#socket.resetAndDestroy();
    await closed;
    await fleet.get(`${fleet.controlPlanes[0]?.address}/docs/errors`);
  }
}

describe('a caller who hangs up before the answer', () => {
  test('is audited with the address of its caller', async () => {
    const keyId = await newKey('hung-up');
    const { members, log } = apiKeys('hung-up');
    await fleet.client.zadd(members, 0, 'silent');
    const call = new Call('POST', 'keys.updateKey', ROOT_KEY, JSON.stringify({ keyId, enabled: false }));
    await fleet.until(async () => (await fleet.client.xlen(log)) === 1);
    await call.hangUp();
    await fleet.client.zrem(members, 'silent');
    await fleet.until(async () => (await fleet.client.xlen(auditStream('done'))) === 2);
    expect((await events({ keyId }))[0]).toMatchObject({
      operation: 'keys.updateKey',
      outcome: 'OK',
      by: { address: '127.0.0.1' },
    });
  });

  test('without a root key is counted and audited', async () => {
    const stranger = 'nobody-knows-this-root-key-00000000';
    for (let i = 1; i <= 4; i++) {
      // Scripts wait, and so whoever asks whether a root key is known.
      await fleet.client.client('PAUSE', 60_000, 'WRITE');
      const call = new Call('GET', 'apis.listApis', stranger);
      try {
        await fleet.until(async () =>
          / flags=\w*b\w* .*cmd=eval/.test(String(await fleet.client.client('LIST'))),
        );
        await call.hangUp();
      } finally {
        await fleet.client.client('UNPAUSE');
      }
      const told = Math.min(i, 3);
      await fleet.until(async () => (await fleet.client.xlen(auditStream('refused'))) === told);
    }
    const [event] = await events({ refused: 'true' });
    expect(event).toMatchObject({ outcome: 'UNAUTHORIZED', by: { address: '127.0.0.1' } });
    await fleet.until(async () => (await counted('keyfence_rate_limited_total{limit="failures"}')) === 1);
  });
});

describe('an event that does not have the form of one', () => {
  const stored = async (entry: string): Promise<string> =>
    String(await fleet.client.xadd(auditStream('done'), '*', 'e', entry));
  const good = {
    time: 5,
    requestId: 'r',
    operation: 'keys.updateKey',
    outcome: 'OK',
    by: { rootKeyId: 'root_1', address: '192.0.2.1' },
    on: { apiId: 'shop', keyId: 'key_1' },
    sequence: 3,
  };

  test('is listed as far as it can be read', async () => {
    const { by: _, ...withoutCaller } = good;
    const nobody = await stored(JSON.stringify({ ...good, by: { rootKeyId: 'root_1' } }));
    const odd = await stored(
      JSON.stringify({ ...good, time: 'now', on: { keyId: 7, apiId: 'shop' }, after: 1 }),
    );
    const callerless = await stored(JSON.stringify(withoutCaller));
    const noJson = await stored('{"time":');
    const noObject = await stored('null');
    const noEntry = String(await fleet.client.xadd(auditStream('done'), '*', 'x', 'y'));
    const fine = await stored(JSON.stringify(good));

    const timeOf = (id: string) => Number(id.split('-')[0]);
    const nothing = (id: string) => ({
      id,
      time: timeOf(id),
      requestId: 'unknown',
      operation: 'unknown',
      outcome: 'unknown',
      by: { address: 'unknown' },
      on: {},
      incomplete: true,
    });
    expect(await events({ limit: '7' })).toEqual([
      { id: fine, ...good },
      ...[{ ...nothing(noEntry), id: noEntry }, nothing(noObject), nothing(noJson)],
      { id: callerless, ...good, by: { address: 'unknown' }, incomplete: true },
      { id: odd, ...good, time: timeOf(odd), on: { apiId: 'shop' }, incomplete: true },
      { id: nobody, ...good, by: { rootKeyId: 'root_1', address: 'unknown' }, incomplete: true },
    ]);
    expect((await events({ rootKeyId: 'root_1' })).map(({ id }) => id)).toEqual([fine, odd, nobody]);
  });
});

describe('while Redis does not take events', () => {
  test('for want of memory, events are still written', async () => {
    const keyIds = await Promise.all(Array.from({ length: 20 }, () => newKey('full')));
    await fleet.client.config('SET', 'maxmemory', '1');
    try {
      expect((await fleet.admin('keys.createKey', { apiId: 'full' })).status).toBe(503);
      for (const keyId of keyIds) await fleet.ok('keys.updateKey', { keyId, enabled: false });
      await fleet.admin('keys.updateKey', { keyId: 'key_0000000000000000none', enabled: false });
      const disables = await events({ apiId: 'full', operation: 'keys.updateKey' });
      expect(disables.map(({ on }) => on.keyId)).toEqual(keyIds.toReversed());
      expect(await events({ refused: 'true', keyId: 'key_0000000000000000none' })).toHaveLength(1);
    } finally {
      await fleet.client.config('SET', 'maxmemory', '0');
    }
  });

  test('they wait up to a bound, and both are told', async () => {
    const keyIds = await Promise.all(Array.from({ length: 4 }, () => newKey('waiting')));
    const lost = 'keyfence_audit_events_total{kind="done",result="lost"}';
    const before = await counted(lost);
    await fleet.client.rename(auditStream('done'), 'aside');
    await fleet.client.set(auditStream('done'), 'not a stream');
    const started = fleet.logged.length;
    for (const keyId of keyIds) await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await counted('keyfence_audit_events_waiting')).toBe(2);
    expect(await counted(lost)).toBe(before + 2);
    const told = fleet.logged
      .slice(started)
      .filter((line) => line.includes('an audit event was not recorded'));
    expect(told.map((line) => JSON.parse(line).waits)).toEqual([true, true, false, false]);
    // Each says what to mend, not only that others wait.
    for (const line of told) expect(JSON.parse(line).err.message).toContain('WRONGTYPE');

    await fleet.client.rename('aside', auditStream('done'));
    await fleet.until(async () => (await counted('keyfence_audit_events_waiting')) === 0);
    const disables = await events({ apiId: 'waiting', operation: 'keys.updateKey' });
    expect(disables.map(({ on }) => on.keyId)).toEqual(keyIds.slice(0, 2).toReversed());
  });
});

describe('a key of an API that is hidden from the caller', () => {
  test('costs the same as one that does not exist', async () => {
    const hidden = await newKey('hidden');
    const missing = hidden.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    const grant = { name: 'limited', permissions: ['api.other.read_key'] };
    const { key: rootKey, rootKeyId } = await fleet.ok('rootKeys.createRootKey', grant);
    const rows = [
      ['keys.getKey', {}],
      ['keys.getVerifications', {}],
      ['keys.getPropagation', { sequence: '1' }],
      ['keys.updateKey', { enabled: false }],
      ['keys.deleteKey', {}],
    ] as const;
    for (const [operation, rest] of rows) {
      const [one, other] = [
        await fleet.admin(operation, { keyId: hidden, ...rest }, { rootKey }),
        await fleet.admin(operation, { keyId: missing, ...rest }, { rootKey }),
      ];
      expect([one.status, one.body.error.code], operation).toEqual([404, 'NOT_FOUND']);
      expect([other.status, other.body.error.code], operation).toEqual([404, 'NOT_FOUND']);
      expect(one.body.error.message.replace(hidden, '')).toBe(other.body.error.message.replace(missing, ''));
      const refused = await events({ refused: 'true', rootKeyId, operation });
      expect(
        refused.map(({ outcome, on }) => [outcome, on]),
        operation,
      ).toEqual([
        ['NOT_FOUND', { keyId: missing }],
        ['INSUFFICIENT_PERMISSIONS', { apiId: 'hidden', keyId: hidden }],
      ]);
    }
  });

  test('leaves no event for who sees every API', async () => {
    await fleet.admin('keys.getKey', { keyId: 'key_nowhere' });
    expect(await events({ refused: 'true', keyId: 'key_nowhere' })).toEqual([]);
  });
});

test('a change that may have been made is audited with its fields', async () => {
  const keyId = await newKey('broken');
  await fleet.client.set(apiKeys('broken').log, 'not a stream');
  expect((await fleet.admin('keys.updateKey', { keyId, enabled: false })).status).toBe(500);
  const [event] = await events({ keyId });
  expect(event).toMatchObject({ outcome: 'INTERNAL_SERVER_ERROR', after: { enabled: false } });
});

test('a SIEM gets the audit lines and no others', async () => {
  const file = join(import.meta.dirname, '../../../../deploy/monitoring/audit-to-siem.yaml');
  const { parsers, pipeline } = parse(readFileSync(file, 'utf8'));
  expect(pipeline.inputs[0].parser).toBe(parsers[0].name);
  expect(parsers[0].format).toBe('json');
  const [field = '', rule = ''] = pipeline.filters[0].regex.split(' ');
  const keyId = await newKey('siem');
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.admin('keys.updateKey', { keyId: 'key_0000000000000000siem', enabled: false });
  const lines = fleet.logged.map((line) => JSON.parse(line));
  const sent = lines.filter((line) => new RegExp(rule).test(line[field]));
  expect(sent.length).toBeLessThan(lines.length);
  expect(sent).toEqual(lines.filter(({ audit }) => audit));
  const [disable] = await events({ keyId, operation: 'keys.updateKey' });
  const { id: _, ...event } = disable ?? {};
  expect(sent.map(({ audit }) => audit)).toContainEqual(event);
  expect(sent.map(({ msg }) => msg)).toContain('audit: refused');
});
