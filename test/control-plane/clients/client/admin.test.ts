import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  AdminError,
  createAdmin,
  type OperationName,
} from '../../../../control-plane/clients/client/admin.ts';
import { OPERATION_KINDS } from '../../../../control-plane/clients/client/interface.ts';
import { digestOf, makeSecret } from '../../../../control-plane/clients/client/own-secret.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
const url = () => fleet.controlPlanes[0]?.address ?? '';
const servers: Server[] = [];

beforeAll(async () => {
  fleet = await Fleet.start();
});
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});
afterAll(() => fleet.stop());

/** A client of a server that does not behave. */
async function clientOf(listener: RequestListener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  servers.push(server);
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  return createAdmin({ url: `http://127.0.0.1:${port}/below/`, rootKey: ROOT_KEY, timeoutMs: 2000 });
}

const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => error as AdminError,
  );

test('a key lives and dies by its methods', async () => {
  const admin = createAdmin({ url: url(), rootKey: async () => ROOT_KEY });
  const { keyId, key } = await admin.keys.createKey({ apiId: 'shop', remaining: 3 });
  expect(await admin.call('keys.getKey', { keyId })).toMatchObject({ id: keyId, remaining: 3 });
  expect((await admin.apis.listKeys({ apiId: 'shop', limit: 1, enabled: true })).keys).toHaveLength(1);
  const { propagation } = await admin.keys.updateKey({ keyId, enabled: false });
  expect(propagation.state).toBe('complete');
  expect(await fleet.verdict(key)).toBe('DISABLED');
  expect((await admin.keys.whoami({ key })).id).toBe(keyId);
});

test('no lost answer loses a key that its client made', async () => {
  const secret = makeSecret('acme');
  const input = { apiId: 'own', keys: [{ ...digestOf(secret), name: 'Acme' }] };
  let calls = 0;
  const admin = createAdmin({
    ...{ url: url(), rootKey: ROOT_KEY },
    // Every other call arrives, and its answer does not.
    async fetch(...request) {
      const answer = await fetch(...request);
      if (calls++ % 2 === 0) throw new TypeError('fetch failed');
      return answer;
    },
  });
  const keyIds = new Set<string>();
  for (let n = 0; n < 4; n++) {
    const [result] = (await admin.keys.importKeys(input).catch(() => undefined))?.results ?? [];
    if (result && 'keyId' in result) keyIds.add(result.keyId);
  }
  expect(calls).toBe(4);
  const { keys } = await fleet.ok('apis.listKeys', { apiId: 'own' });
  expect(keys).toMatchObject([{ keyId: [...keyIds][0], name: 'Acme', start: secret.slice(0, 9) }]);
  expect(keys[0]).not.toHaveProperty('foreign');
  expect(keyIds.size).toBe(1);
  expect(await fleet.verdict(secret)).toBe('VALID');
});

test('has every operation of the reference', () => {
  const admin = createAdmin({ url: url() }) as unknown as Record<string, Record<string, unknown>>;
  for (const name of Object.keys(OPERATION_KINDS)) {
    const [group = '', method = ''] = name.split('.');
    expect(typeof admin[group]?.[method], name).toBe('function');
  }
});

test('a bad request names its fields', async () => {
  const admin = createAdmin({ url: url(), rootKey: ROOT_KEY });
  const error = await failure(admin.keys.createKey({ apiId: 'shop', byteLength: 3, name: '' }));
  expect(error).toBeInstanceOf(AdminError);
  expect(error).toMatchObject({ code: 'BAD_REQUEST', status: 400, mayHaveChanged: false });
  expect(error?.details.map(({ field }) => field).toSorted()).toEqual(['byteLength', 'name']);
  expect(error?.requestId).toMatch(/^\w{16,}$/);
  const none = await failure(admin.keys.getKey({ keyId: 'key_none' }));
  expect(none).toMatchObject({ code: 'NOT_FOUND', status: 404, details: [] });
});

describe('a failure says if anything changed', () => {
  test('nothing listens', async () => {
    const admin = await clientOf(() => undefined);
    servers.splice(0).map((server) => server.close());
    const error = await failure(admin.keys.createKey({ apiId: 'shop' }));
    expect(error).toMatchObject({ code: 'UNREACHABLE', status: undefined, mayHaveChanged: false });
    expect(error?.message).toMatch(/^http:\/\/127\.0\.0\.1:\d+ is out of reach \(ECONNREFUSED\)$/);
  });

  test('the connection ends before the answer', async () => {
    const admin = await clientOf((request) => request.socket.destroy());
    const change = await failure(admin.keys.deleteKey({ keyId: 'key_1' }));
    expect(change).toMatchObject({ code: 'UNREACHABLE', mayHaveChanged: true });
    const query = await failure(admin.apis.listApis());
    expect(query).toMatchObject({ code: 'UNREACHABLE', mayHaveChanged: false });
  });

  test.each([
    ['the outcome is unknown', true],
    ['100 changes are not complete yet; nothing was changed', false],
  ])('503: %s', async (message, mayHaveChanged) => {
    const body = JSON.stringify({ error: { code: 'SERVICE_UNAVAILABLE', message } });
    const admin = await clientOf((_request, response) =>
      response.writeHead(503, { 'retry-after': '2' }).end(body),
    );
    const error = await failure(admin.keys.deleteKey({ keyId: 'key_1' }));
    expect(error).toMatchObject({ code: 'SERVICE_UNAVAILABLE', retryAfterMs: 2000, mayHaveChanged });
  });

  test('another service answers', async () => {
    const admin = await clientOf((_request, response) => response.writeHead(200).end('<html>'));
    expect(await failure(admin.apis.listApis())).toMatchObject({ code: 'NOT_KEYFENCE', status: 200 });
  });

  test('the caller waits no longer', async () => {
    const admin = await clientOf(() => undefined);
    const controller = new AbortController();
    const call = failure(admin.apis.listApis({}, { signal: controller.signal }));
    controller.abort();
    expect(await call).toMatchObject({ code: 'UNREACHABLE' });
  });
});

test('no operation sends what JSON would write as null', async () => {
  let sent = 0;
  const own = createAdmin({
    url: 'http://127.0.0.1:1',
    fetch: async () => {
      sent++;
      return Response.json({});
    },
  });
  const late = { toJSON: () => null };
  const wrong = [Number.NaN, Infinity, -Infinity, new Date(Number.NaN), () => 1, Symbol('a'), 1n, late];
  for (const name of Object.keys(OPERATION_KINDS) as OperationName[])
    for (const value of wrong)
      for (const [field, input] of [
        ['expires', { expires: value }],
        ['refill.amount', { refill: { amount: value } }],
        ['ratelimits.0.limit', { ratelimits: [{ limit: value }] }],
      ] as const) {
        const error = await own.call(name, input as never).catch((reason: unknown) => reason);
        expect(error).toMatchObject({ code: 'BAD_REQUEST', mayHaveChanged: false, details: [{ field }] });
      }
  await expect(own.call('keys.updateKeys', { keyIds: [undefined] } as never)).rejects.toThrow('keyIds.0');
  expect(sent).toBe(0);
  for (const value of [null, 0, -0, 1e300, '', false, undefined, new Date(0), {}, []])
    await own.call('keys.updateKey', { keyId: 'key_1', expires: value } as never);
  expect(sent).toBe(10);
});

test('a redirect is not followed, whoever asks', async () => {
  const heard: (string | undefined)[] = [];
  const admin = await clientOf((request, response) => {
    heard.push(request.url);
    response.writeHead(307, { location: '/elsewhere' }).end();
  });
  expect(await failure(admin.apis.listApis({ limit: 1 }))).toMatchObject({ code: 'UNREACHABLE' });
  expect(heard).toEqual(['/below/v1/apis.listApis?limit=1']);
});

test.each([
  ['rootkey: unknown option', { url: 'http://127.0.0.1:9', rootkey: 'x' }],
  ['url: must be an absolute URL', { url: 'keyfence' }],
  ['timeoutMs: must be', { url: 'http://127.0.0.1:9', timeoutMs: 0 }],
])('refuses options: %s', (message, options) => {
  expect(() => createAdmin(options as never)).toThrow(message);
});

test('an operation that is misspelt is not sent', async () => {
  const admin = createAdmin({ url: url(), rootKey: ROOT_KEY });
  await expect(admin.call('keys.disableKey' as never, {} as never)).rejects.toThrow(
    'keys.disableKey: there is no',
  );
});
