import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
let base: string;
const bearer = { authorization: `Bearer ${ROOT_KEY}` };

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(() => fleet.stop());

/** A time in the year 2030, in Unix seconds. */
const SECONDS = 1_893_456_000;
const IN_SECONDS =
  /^expires: must be Unix milliseconds, not seconds; send 1893456000000 instead of 1893456000$/;

const WOULD_CHANGE =
  'meta: must have no number that would change: beyond 1.8e308, or a whole number of more than 53 bits (9007199254740991); send such a number as a string';

const expectError = (answer: Answer, status: number, code: string, message?: string | RegExp) => {
  const details = { details: expect.any(Array) };
  expect(answer.body).toEqual({
    error: {
      code,
      message: message === undefined ? expect.any(String) : expect.stringMatching(message),
      ...(code === 'BAD_REQUEST' ? details : {}),
      docs: expect.stringMatching(new RegExp(`^http://127\\.0\\.0\\.1:\\d+/docs/errors#${code}$`)),
      requestId: answer.headers['x-request-id'],
    },
  });
  expect(answer.status).toBe(status);
  if (code !== 'BAD_REQUEST') return;
  // Each line of the message names a field and its rule, and so do the details.
  const { error } = answer.body as { error: { message: string; details: Record<string, string>[] } };
  const lines = error.details.map(
    ({ field, rule, fix }) => `${field}: ${fix === undefined ? rule : `${rule}; ${fix}`}`,
  );
  expect(lines.join('\n')).toBe(error.message);
};

describe('every request', () => {
  test('of an unknown path is 404, without a root key', async () => {
    for (const path of ['/v1/keys.frobnicate', '/v3/keys.getKey', '/v1/keys.getKey/', '/v1']) {
      expectError(await fleet.get(base + path), 404, 'NOT_FOUND');
    }
  });

  test('with another method is 405 with Allow', async () => {
    const answer = await fleet.send(`${base}/v1/keys.createKey`, { method: 'GET', headers: bearer });
    expectError(answer, 405, 'METHOD_NOT_ALLOWED');
    expect(answer.headers['allow']).toBe('POST');
    const put = await fleet.send(`${base}/v1/keys.getKey`, { method: 'PUT', headers: bearer });
    expectError(put, 405, 'METHOD_NOT_ALLOWED');
    expect(put.headers['allow']).toBe('GET');
  });

  test.each([
    ['no Authorization', {}],
    ['another scheme', { authorization: `Basic ${ROOT_KEY}` }],
    ['an unknown root key', { authorization: 'Bearer nobody-knows-this-root-key-00000000' }],
    ['an empty token', { authorization: 'Bearer ' }],
  ])('with %s is 401 with WWW-Authenticate', async (_, headers) => {
    const answer = await fleet.post(`${base}/v1/keys.createKey`, { apiId: 'a' }, headers);
    expectError(answer, 401, 'UNAUTHORIZED', /^Authorization: /);
    expect(answer.headers['www-authenticate']).toBe('Bearer');
  });

  test('every request is authenticated before it is validated, so that strangers learn nothing', async () => {
    for (const body of ['{', '', '{"apiId":1}', 'x'.repeat(100_000)]) {
      const answer = await fleet.send(`${base}/v1/keys.createKey`, {
        method: 'POST',
        headers: { 'content-type': 'text/plain' },
        body,
      });
      expectError(answer, 401, 'UNAUTHORIZED');
    }
    expectError(await fleet.get(`${base}/v1/keys.getKey?keyId=nope&foo=1`), 401, 'UNAUTHORIZED');
  });

  test('is authenticated however its path is written', async () => {
    for (const path of ['/%761/apis.listApis', '/v1/apis%2ElistApis', '/%761/keys.getKey?foo=1']) {
      expectError(await fleet.get(base + path), 401, 'UNAUTHORIZED');
    }
    expect((await fleet.get(`${base}/%761/apis.listApis`, bearer)).status).toBe(200);
  });

  test('a request with an API key in place of a root key gets 401', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'contract' });
    expectError(await fleet.admin('apis.listApis', {}, { rootKey: key }), 401, 'UNAUTHORIZED');
  });

  test('a well-formed X-Request-Id is kept, and any other is replaced', async () => {
    const kept = await fleet.get(`${base}/v1/apis.listApis`, { ...bearer, 'x-request-id': 'abc-1.2_3' });
    expect(kept.headers['x-request-id']).toBe('abc-1.2_3');
    const replaced = await fleet.get(`${base}/v1/apis.listApis`, { ...bearer, 'x-request-id': 'a b"<' });
    expect(replaced.headers['x-request-id']).toMatch(/^[a-z0-9]{8,}$/);
  });

  test.each([
    ['malformed JSON', 400, 'BAD_REQUEST', 'application/json', '{"apiId":'],
    ['an empty body', 400, 'BAD_REQUEST', 'application/json', ''],
    ['a body that is no object', 400, 'BAD_REQUEST', 'application/json', '[]'],
    [
      'a poisoned prototype',
      400,
      'BAD_REQUEST',
      'application/json',
      '{"apiId":"a","__proto__":{"enabled":false}}',
    ],
    ['another content type', 415, 'UNSUPPORTED_MEDIA_TYPE', 'text/plain', '{"apiId":"a"}'],
    ['a form', 415, 'UNSUPPORTED_MEDIA_TYPE', 'application/x-www-form-urlencoded', 'apiId=a'],
    [
      'a body over the limit',
      413,
      'PAYLOAD_TOO_LARGE',
      'application/json',
      `{"apiId":"${'a'.repeat(70_000)}"}`,
    ],
  ])('with %s is %i', async (_, status, code, type, body) => {
    const answer = await fleet.send(`${base}/v1/keys.createKey`, {
      method: 'POST',
      headers: { ...bearer, 'content-type': type },
      body,
    });
    expectError(answer, status, code);
  });

  test('may say the charset, GET a content type', async () => {
    const headers = { ...bearer, 'content-type': 'application/json; charset=utf-8' };
    const created = await fleet.send(`${base}/v1/keys.createKey`, {
      method: 'POST',
      headers,
      body: '{"apiId":"contract"}',
    });
    expect(created.status).toBe(200);
    expect((await fleet.get(`${base}/v1/keys.getKey?keyId=${created.body.keyId}`, headers)).status).toBe(200);
  });

  test('finds the meaning of each code in `docs`', async () => {
    const page = await fleet.get(`${base}/docs/errors`);
    expect(page.status).toBe(200);
    expect(page.body).toContain('id="CONFLICT"');
  });
});

describe('bad input names the field and the rule', () => {
  test.each([
    ['keys.updateKeys', '"apiId":"a","externalId":"ada"'],
    ['identities.createIdentity', '"externalId":"ada"'],
    ['identities.updateIdentity', '"externalId":"ada"'],
  ])('of %s with a whole number that would change', async (operation, place) => {
    const headers = { ...bearer, 'content-type': 'application/json' };
    const body = `{${place},"meta":{"n":9007199254740993}}`;
    const answer = await fleet.send(`${base}/v1/${operation}`, { method: 'POST', headers, body });
    expectError(answer, 400, 'BAD_REQUEST', /^meta: must have no number that would change/);
  });

  test.each([
    ['no JSON', '{"apiId":', 'body: is not JSON'],
    ['nothing', '', 'body: required, a JSON object'],
    [
      'a prototype',
      '{"apiId":"a","meta":{"__proto__":{}}}',
      'body: must have no __proto__, and no constructor with a prototype',
    ],
    [
      "a constructor's prototype",
      '{"apiId":"a","meta":{"constructor":{"prototype":{}}}}',
      'body: must have no __proto__, and no constructor with a prototype',
    ],
    [
      'a byte-order mark',
      '\ufeff{"apiId":"a"}',
      'body: is not JSON; leave out the byte-order mark at its beginning',
    ],
    ['a whole number that would change', '{"apiId":"a","meta":{"n":[9007199254740993]}}', WOULD_CHANGE],
    [
      'a length that would change',
      '{"apiId":"a","byteLength":9007199254740993}',
      'byteLength: must be integer',
    ],
    ['a prototype in no JSON', '{"__proto__":{}', 'body: is not JSON'],
    [
      'bytes that are not UTF-8',
      Buffer.from('{"apiId":"a","externalId":"\xff"}', 'latin1'),
      'body: must be UTF-8',
    ],
  ])('of a body with %s', async (_, body, message) => {
    const headers = { ...bearer, 'content-type': 'application/json' };
    const answer = await fleet.send(`${base}/v1/keys.createKey`, { method: 'POST', headers, body });
    expectError(answer, 400, 'BAD_REQUEST');
    expect(answer.body.error.message).toBe(message);
  });

  const tokens = { name: 'tokens', limit: 1, duration: 1000 };
  test.each([
    ['keys.createKey', {}, /^apiId: required$/],
    ['keys.createKey', { apiId: 'a b' }, /^apiId: must match pattern/],
    ['keys.createKey', { apiId: 'a'.repeat(65) }, /^apiId: must match pattern/],
    ['keys.createKey', { apiId: 7 }, /^apiId: must be string$/],
    ['keys.createKey', { apiId: 'a', name: '' }, /^name: /],
    ['keys.createKey', { apiId: 'a', name: 'n'.repeat(257) }, /^name: /],
    ['keys.createKey', { apiId: 'a', prefix: 'has-dash' }, /^prefix: /],
    ['keys.createKey', { apiId: 'a', prefix: 'p'.repeat(17) }, /^prefix: /],
    ['keys.createKey', { apiId: 'a', byteLength: 15 }, /^byteLength: must be >= 16$/],
    ['keys.createKey', { apiId: 'a', byteLength: 256 }, /^byteLength: must be <= 255$/],
    [
      'keys.createKey',
      { apiId: 'a', byteLength: '16' },
      /^byteLength: must be integer; send it without quotes$/,
    ],
    ['keys.createKey', { apiId: 'a', byteLength: 16.5 }, /^byteLength: must be integer$/],
    ['keys.createKey', { apiId: 'a', meta: [] }, /^meta: must be object$/],
    ['keys.createKey', { apiId: 'a', meta: { long: 'm'.repeat(8200) } }, /^meta: must be at most 8192 bytes/],
    ['keys.createKey', { apiId: 'a', externalId: '' }, /^externalId: /],
    ['keys.createKey', { apiId: 'a', ownerId: '' }, /^ownerId: /],
    ['keys.createKey', { apiId: 'a', ownerId: null }, /^ownerId: /],
    ['keys.createKey', { apiId: 'a', ownerId: 'x', externalId: 'y' }, /^ownerId: must equal externalId/],
    ['keys.createKey', { apiId: 'a', environment: '' }, /^environment: /],
    ['keys.createKey', { apiId: 'a', environment: null }, /^environment: /],
    ['keys.createKey', { apiId: 'a', environment: 'x'.repeat(257) }, /^environment: /],
    ['keys.createKey', { apiId: 'a', expires: 200_000_000_000 }, /^expires: must be in the future$/],
    ['keys.createKey', { apiId: 'a', expires: SECONDS }, IN_SECONDS],
    ['keys.updateKey', { keyId: 'key_x', expires: SECONDS }, IN_SECONDS],
    ['keys.updateKeys', { apiId: 'a', externalId: 'ada', expires: SECONDS }, IN_SECONDS],
    [
      'keys.getVerifications',
      { keyId: 'key_x', start: String(SECONDS) },
      /^start: must be Unix milliseconds, not/,
    ],
    ['apis.getVerifications', { apiId: 'a', end: String(SECONDS) }, /^end: must be Unix milliseconds, not/],
    ['audit.listEvents', { since: String(SECONDS) }, /^since: must be Unix milliseconds, not/],
    ['audit.listEvents', { until: String(SECONDS) }, /^until: must be Unix milliseconds, not/],
    ['keys.createKey', { apiId: 'a', expires: '2030' }, /^expires: must be integer; send it without quotes$/],
    [
      'keys.createKey',
      { apiId: 'a', enabled: 'false' },
      /^enabled: must be boolean; send it without quotes$/,
    ],
    ['keys.createKey', { apiId: 'a', ratelimit: {} }, /^ratelimit\.limit: required$/],
    ['keys.createKey', { apiId: 'a', ratelimit: null }, /^ratelimit: must be object$/],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1 } },
      /^ratelimit\.duration: give this or interval$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 0, duration: 1000 } },
      /^ratelimit\.limit: must be >= 1$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1e10, duration: 1000 } },
      /^ratelimit\.limit: must be <= 1000000000$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1.5, duration: 1000 } },
      /^ratelimit\.limit: must be integer$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1, duration: 999 } },
      /^ratelimit\.duration: must be >= 1000$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1, duration: 2678400001 } },
      /^ratelimit\.duration: must be <= 2678400000$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1, duration: 1000, async: 'no' } },
      /^ratelimit\.async: must be boolean$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimit: { limit: 1, duration: 1000, type: 'fast' } },
      /^ratelimit\.type: unknown field$/,
    ],
    ['keys.createKey', { apiId: 'a', ratelimits: {} }, /^ratelimits: must be array$/],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: [{ limit: 1, duration: 1000 }] },
      /^ratelimits\.0\.name: required$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: [{ name: 'a b', limit: 1, duration: 1000 }] },
      /^ratelimits\.0\.name: must match pattern/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: [{ name: 'a', limit: 1 }] },
      /^ratelimits\.0\.duration: give this or interval$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: [{ name: 'default', limit: 1, duration: 1000 }] },
      /^ratelimits: must not name a limit default, which is the ratelimit of a key$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: [tokens, tokens] },
      /^ratelimits: must contain tokens only once$/,
    ],
    [
      'keys.createKey',
      { apiId: 'a', ratelimits: new Array(9).fill(tokens) },
      /^ratelimits: must NOT have more than 8 items$/,
    ],
    ['keys.updateKey', { keyId: 'key_x', ratelimit: { duration: 1000 } }, /^ratelimit\.limit: required$/],
    ['keys.createKey', { apiId: 'a', permissions: 'a' }, /^permissions: must be array$/],
    ['keys.createKey', { apiId: 'a', permissions: null }, /^permissions: must be array$/],
    ['keys.createKey', { apiId: 'a', permissions: ['a b'] }, /^permissions\.0: must match pattern/],
    ['keys.createKey', { apiId: 'a', permissions: ['a', ''] }, /^permissions\.1: must match pattern/],
    ['keys.createKey', { apiId: 'a', permissions: [{ name: 'a' }] }, /^permissions\.0: must be string$/],
    [
      'keys.createKey',
      { apiId: 'a', permissions: new Array(101).fill('a') },
      /^permissions: must NOT have more than 100 items$/,
    ],
    ['keys.updateKey', { keyId: 'key_x', permissions: [1] }, /^permissions\.0: must be string$/],
    ['keys.addPermissions', { keyId: 'key_x' }, /^permissions: required$/],
    ['keys.addPermissions', { keyId: 'key_x', permissions: ['a/b'] }, /^permissions\.0: must match pattern/],
    ['keys.setPermissions', { permissions: [] }, /^keyId: required$/],
    ['keys.setPermissions', { keyId: 'key_x', permissions: [], waitMs: 0 }, /^waitMs: unknown field$/],
    ['keys.removePermissions', { keyId: 'key_x', permissions: [], role: 'a' }, /^role: unknown field$/],
    ['keys.createKey', { apiId: 'a', roles: [{ name: 'a' }] }, /^roles\.0: must be string$/],
    ['keys.updateKey', { keyId: 'key_x', roles: [{ name: 'a', create: true }] }, /^roles\.0/],
    ['keys.addRoles', { keyId: 'key_x', roles: ['a  b'] }, /^roles\.0/],
    ['keys.setRoles', { keyId: 'key_x', roles: [{}] }, /^roles\.0/],
    ['keys.removeRoles', { keyId: 'key_x' }, /^roles: required$/],
    ['permissions.createPermission', {}, /^name: required$/],
    ['permissions.createPermission', { name: 'two words' }, /^name: must match .* if there is no slug/],
    ['permissions.createPermission', { name: 'a', slug: 'two words' }, /^slug: must match pattern/],
    ['permissions.createPermission', { name: 'a', description: 'a'.repeat(513) }, /^description: /],
    ['permissions.deletePermission', { permissionId: 'two words' }, /^permissionId: must match pattern/],
    ['identities.createIdentity', {}, /^externalId: required$/],
    ['identities.createIdentity', { externalId: '' }, /^externalId: must NOT have fewer than 1/],
    ['identities.createIdentity', { externalId: 'a', environment: 'b' }, /^environment: unknown field$/],
    ['identities.createIdentity', { externalId: 'a', meta: 'b' }, /^meta: must be object$/],
    [
      'identities.createIdentity',
      { externalId: 'a', meta: { b: 'c'.repeat(8200) } },
      /^meta: must be at most/,
    ],
    ['identities.updateIdentity', { externalId: 'a' }, /^body: must name at least one field to change$/],
    ['identities.updateIdentity', { enabled: false }, /^identityId: give either this or externalId$/],
    [
      'identities.updateIdentity',
      { identityId: 'role_x', enabled: false },
      /^identityId: must match pattern/,
    ],
    ['identities.getIdentity', { externalId: 'a', identityId: 'identity_x' }, /^identityId: give either/],
    ['identities.listIdentities', { cursor: 'x' }, /^cursor: must be one that listIdentities returned for/],
    ['identities.deleteIdentity', {}, /^identityId: required$/],
    ['permissions.createRole', { name: 'a, b' }, /^name: must match pattern/],
    ['permissions.createRole', { name: 'a', permissions: ['a/b'] }, /^permissions\.0/],
    ['permissions.setRolePermissions', { roleId: 'role_x' }, /^permissions: required$/],
    ['permissions.deleteRole', {}, /^roleId: required$/],
    [
      'keys.updateKey',
      { keyId: 'key_x', enabeld: false },
      /^enabeld: unknown field; did you mean enabled\?$/,
    ],
    ['keys.updateKey', { keyId: 'key_x', enabled: null }, /^enabled: must be boolean$/],
    ['keys.updateKey', { keyId: 'key_x', waitMs: 60_001 }, /^waitMs: must be <= 60000$/],
    ['keys.updateKey', {}, /^keyId: required$/],
    ['keys.deleteKey', { keyId: '' }, /^keyId: /],
    ['keys.getKey', {}, /^keyId: required$/],
    ['keys.getKey', { keyId: 'key_x', verbose: '1' }, /^verbose: unknown query parameter$/],
    ['keys.getPropagation', { keyId: 'key_x', sequence: '-1' }, /^sequence: /],
    ['apis.listKeys', { apiId: 'a', limit: '0' }, /^limit: /],
    ['apis.listKeys', { apiId: 'a', limit: '101' }, /^limit: /],
    ['apis.listKeys', { apiId: 'a', enabled: 'yes' }, /^enabled: must be "true" or "false"$/],
    [
      'apis.listKeys',
      { apiId: 'contract', cursor: 'bm9uc2Vuc2U' },
      /^cursor: must be one that listKeys returned for/,
    ],
    [
      'keys.getVerifications',
      { keyId: 'key_x', granularity: 'week' },
      /^granularity: must be "hour" or "day"$/,
    ],
    ['keys.getVerifications', { keyId: 'key_x', start: '1.5' }, /^start: must be Unix milliseconds/],
    ['keys.getVerifications', { keyId: 'key_x', end: 'now' }, /^end: must be Unix milliseconds/],
    ['keys.getVerifications', { keyId: 'key_x', end: '1'.repeat(16) }, /^end: must be Unix milliseconds/],
    ['keys.getPropagation', { keyId: 'key_x', sequence: '0' }, /^sequence: must match pattern/],
    ['keys.deleteKey', { keyId: 'key_x', waitMs: -1 }, /^waitMs: must be >= 0$/],
    ['keys.importKeys', { apiId: 'a', keys: [] }, /^keys: /],
    ['keys.importKeys', { apiId: 'a', keys: new Array(501).fill({}) }, /^keys: /],
    ['apis.listKeys', { apiId: 'a', limit: '10.5' }, /^limit: must match pattern/],
    [
      'apis.listKeys',
      { apiId: 'a', sort: 'size' },
      /^sort: must be "createdAt" or "-createdAt" or "name" or /,
    ],
    ['apis.listKeys', { apiId: 'a', cursor: 'c'.repeat(1501) }, /^cursor: must NOT have more than 1500/],
    ['apis.listApis', { limit: '101' }, /^limit: must match pattern/],
    ['apis.listApis', { cursor: 'c'.repeat(129) }, /^cursor: /],
    ['apis.createApi', { name: 'n', apiId: 'a/b' }, /^apiId: must match pattern/],
    ['apis.deleteApi', { apiId: 'a', waitMs: 60_001 }, /^waitMs: must be <= 60000$/],
    ['fleet.listVerifiers', { limit: '0' }, /^limit: must match pattern/],
    ['fleet.listVerifiers', { cursor: 'a b' }, /^cursor: must be one that \w+ returned/],
    ['audit.listEvents', { limit: '1000' }, /^limit: must match pattern/],
    ['audit.listEvents', { cursor: '1' }, /^cursor: must be one that \w+ returned/],
    ['audit.listEvents', { refused: 'yes' }, /^refused: must be "true" or "false"$/],
    ['audit.listEvents', { since: 'x1' }, /^since: must be Unix milliseconds/],
    ['audit.listEvents', { operation: 'updateKey' }, /^operation: must match pattern/],
    ['audit.listEvents', { rootKeyId: 'a b' }, /^rootKeyId: must match pattern/],
    ['rootKeys.updateRootKey', { rootKeyId: 'a b', enabled: true }, /^rootKeyId: must match pattern/],
    [
      'rootKeys.createRootKey',
      { name: 'x', permissions: ['api.*.read_key', 'api.*.read_key'] },
      /^permissions: /,
    ],
    ['apis.createApi', {}, /^name: required$/],
    ['keys.createKey', { apiId: 'a', name: 'n\ud800' }, /^name: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', externalId: '\udfff' }, /^externalId: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', ownerId: '\udfff' }, /^ownerId: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', environment: '\ud800' }, /^environment: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', meta: { a: [{ b: '\ud83d' }] } }, /^meta: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', meta: { '\ud800': 1 } }, /^meta: must be well-formed Unicode$/],
    ['keys.createKey', { apiId: 'a', '\ud800': 1 }, /^body: names of fields must be well-formed Unicode$/],
    ['keys.updateKey', { keyId: 'key_x', externalId: '\ud800' }, /^externalId: must be well-formed Unicode$/],
    ['apis.createApi', { name: '\ud800' }, /^name: must be well-formed Unicode$/],
    [
      'rootKeys.createRootKey',
      { name: '\ud800', permissions: ['api.*.read_key'] },
      /^name: must be well-formed Unicode$/,
    ],
    [
      'rootKeys.createRootKey',
      { name: 'x', permissions: ['api.*.fly'] },
      /^permissions\.0: must be \*, api\./,
    ],
    ['rootKeys.createRootKey', { name: 'x', permissions: [] }, /^permissions: /],
  ])('%s %j', async (operation, input, message) => {
    expectError(await fleet.admin(operation, input), 400, 'BAD_REQUEST', message);
  });
});

describe('keys', () => {
  test('are created in full and shown without secret', async () => {
    const before = Date.now();
    const expires = before + 3_600_000;
    const meta = { plan: 'pro', nested: { ü: ['☃', 1, null] } };
    const owner = { externalId: 'customer 1', ownerId: 'customer 1' };
    const others = { environment: 'live', meta, expires, enabled: false };
    const given = { apiId: 'contract', name: 'Zoë', ...owner, ...others };
    const { keyId, key } = await fleet.ok('keys.createKey', { ...given, prefix: 'acme', byteLength: 32 });
    expect(keyId).toMatch(/^key_[0-9A-Za-z]{16,}$/);
    expect(key).toMatch(/^acme_[0-9A-Za-z]{49}$/);
    const shown = await fleet.ok('keys.getKey', { keyId });
    expect(shown).toEqual({
      id: keyId,
      keyId,
      ...given,
      start: key.slice(0, 9),
      createdAt: shown.createdAt,
      sequence: 0,
      state: 'disabled',
      effectivePermissions: [],
    });
    expect(shown.createdAt).toBeGreaterThanOrEqual(before);
    expect(shown.createdAt).toBeLessThanOrEqual(Date.now());
  });

  test('have a default for everything but the API', async () => {
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'contract' });
    expect(key).toMatch(/^[0-9A-Za-z]{28}$/);
    const shown = await fleet.ok('keys.getKey', { keyId });
    expect(Object.keys(shown).sort()).toEqual([
      'apiId',
      'createdAt',
      'effectivePermissions',
      'enabled',
      'id',
      'keyId',
      'meta',
      'sequence',
      'start',
      'state',
    ]);
    expect(shown).toMatchObject({ enabled: true, meta: {} });
  });

  test('set a value, clear by null, keep the absent', async () => {
    const { keyId } = await fleet.ok('keys.createKey', {
      apiId: 'contract',
      name: 'one',
      externalId: 'o',
      meta: { a: 1 },
      expires: Date.now() + 60_000,
    });
    const { propagation } = await fleet.ok('keys.updateKey', {
      keyId,
      name: 'two',
      expires: null,
      meta: null,
    });
    expect(propagation).toMatchObject({ state: 'complete', by: 'acks', durable: true, verifiers: 0 });
    const shown = await fleet.ok('keys.getKey', { keyId });
    expect(shown).toMatchObject({ name: 'two', externalId: 'o', meta: {}, enabled: true });
    expect(shown).not.toHaveProperty('expires');
    expect(shown.updatedAt).toBeGreaterThanOrEqual(shown.createdAt);
    const long = { text: 'x'.repeat(3000) };
    await fleet.ok('keys.updateKey', { keyId, meta: long, externalId: null, name: null });
    const again = await fleet.ok('keys.getKey', { keyId });
    expect(again.meta).toEqual(long);
    expect(again).not.toHaveProperty('name');
    expect(again).not.toHaveProperty('externalId');
  });

  test('take an empty update and tell the last change', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'contract' });
    expect((await fleet.ok('keys.updateKey', { keyId })).propagation).toMatchObject({
      state: 'complete',
      sequence: 0,
    });
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect((await fleet.ok('keys.updateKey', { keyId })).propagation.sequence).toBe(propagation.sequence);
    const standing = await fleet.ok('keys.getPropagation', { keyId, sequence: propagation.sequence });
    expect(standing.propagation).toMatchObject({
      state: 'complete',
      sequence: propagation.sequence,
      laggards: [],
    });
  });

  test('are kept when disabled, and gone when deleted', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'contract', externalId: 'gone' });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect((await fleet.ok('keys.getKey', { keyId })).enabled).toBe(false);
    expect((await fleet.ok('keys.deleteKey', { keyId })).propagation.state).toBe('complete');
    expectError(await fleet.admin('keys.getKey', { keyId }), 404, 'NOT_FOUND', `key ${keyId} not found`);
    expectError(await fleet.admin('keys.updateKey', { keyId, enabled: true }), 404, 'NOT_FOUND');
    expect((await fleet.ok('apis.listKeys', { apiId: 'contract', externalId: 'gone' })).keys).toEqual([]);
  });

  test('that nobody knows are 404', async () => {
    expectError(
      await fleet.admin('keys.updateKey', { keyId: 'key_none', enabled: false }),
      404,
      'NOT_FOUND',
      'key key_none not found',
    );
    expectError(
      await fleet.admin('keys.getPropagation', { keyId: 'key_none', sequence: '1' }),
      404,
      'NOT_FOUND',
    );
  });

  test('tell no propagation of a foreign sequence', async () => {
    const [one, two] = [
      await fleet.ok('keys.createKey', { apiId: 'pair' }),
      await fleet.ok('keys.createKey', { apiId: 'pair' }),
    ];
    const { propagation } = await fleet.ok('keys.updateKey', { keyId: one.keyId, enabled: false });
    const answer = await fleet.admin('keys.getPropagation', {
      keyId: two.keyId,
      sequence: propagation.sequence,
    });
    expectError(answer, 409, 'CONFLICT', /is not a change of this key/);
  });
});

describe('listing', () => {
  const create = async (input: object) =>
    (await fleet.ok('keys.createKey', { apiId: 'list', ...input })).keyId as string;
  let ids: string[];
  beforeAll(async () => {
    ids = [];
    for (let i = 0; i < 25; i++) {
      ids.push(
        await create({
          name: `${i % 2 ? 'odd' : 'even'}-${i}`,
          enabled: i % 5 !== 0,
          externalId: `o${i % 3}`,
        }),
      );
    }
  });

  const walk = async (query: object) => {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await fleet.ok('apis.listKeys', {
        apiId: 'list',
        ...query,
        ...(cursor ? { cursor } : {}),
      });
      expect(page.total).toBe(25);
      seen.push(...page.keys.map(({ keyId }: { keyId: string }) => keyId));
      cursor = page.cursor;
    } while (cursor);
    return seen;
  };

  test('gives every key once, in order of creation', async () => {
    expect(await walk({ limit: '7' })).toEqual(ids);
    expect(await walk({ limit: '25' })).toEqual(ids);
    expect(await walk({})).toEqual(ids);
    expect(await walk({ limit: '4', sort: '-createdAt' })).toEqual(ids.toReversed());
  });

  test('filters by enabled, externalId and name', async () => {
    const of = (keep: (i: number) => boolean) => ids.filter((_, i) => keep(i));
    expect(await walk({ enabled: 'false', limit: '2' })).toEqual(of((i) => i % 5 === 0));
    expect(await walk({ externalId: 'o1', limit: '2' })).toEqual(of((i) => i % 3 === 1));
    expect(await walk({ name: 'odd', limit: '3' })).toEqual(of((i) => i % 2 === 1));
    expect(
      await walk({ name: 'even', externalId: 'o0', enabled: 'true', sort: '-createdAt', limit: '1' }),
    ).toEqual(of((i) => i % 2 === 0 && i % 3 === 0 && i % 5 !== 0).toReversed());
    expect(await walk({ name: 'nothing' })).toEqual([]);
  });

  test('refuses foreign cursors and unknown APIs', async () => {
    const { cursor } = await fleet.ok('apis.listKeys', { apiId: 'list', limit: '5' });
    const answer = await fleet.admin('apis.listKeys', { apiId: 'list', cursor, sort: '-createdAt' });
    expectError(answer, 400, 'BAD_REQUEST', /^cursor: must be one that listKeys returned/);
    expectError(
      await fleet.admin('apis.listKeys', { apiId: 'nowhere' }),
      404,
      'NOT_FOUND',
      'api nowhere not found',
    );
  });
});

describe('APIs', () => {
  test('begin with createApi or their first key', async () => {
    expect(await fleet.ok('apis.createApi', { name: 'Shop', apiId: 'shop' })).toEqual({
      apiId: 'shop',
      name: 'Shop',
    });
    expect(await fleet.ok('apis.getApi', { apiId: 'shop' })).toEqual({
      id: 'shop',
      name: 'Shop',
      createdAt: expect.any(Number),
      sequence: 0,
      keys: 0,
    });
    expectError(await fleet.admin('apis.createApi', { name: 'Other', apiId: 'shop' }), 409, 'CONFLICT');
    const { apiId } = await fleet.ok('apis.createApi', { name: 'No id' });
    expect(apiId).toMatch(/^api_[0-9A-Za-z]{16,}$/);
    await fleet.ok('keys.createKey', { apiId: 'first-key' });
    const { apis } = await fleet.ok('apis.listApis');
    expect(apis.map(({ id }: { id: string }) => id)).toEqual(
      expect.arrayContaining(['shop', apiId, 'first-key']),
    );
    expectError(await fleet.admin('apis.getApi', { apiId: 'nowhere' }), 404, 'NOT_FOUND');
  });

  test('are listed in pages', async () => {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await fleet.ok('apis.listApis', { limit: '2', ...(cursor ? { cursor } : {}) });
      seen.push(...page.apis.map(({ id }: { id: string }) => id));
      cursor = page.cursor;
    } while (cursor);
    const all = (await fleet.ok('apis.listApis')).apis.map(({ id }: { id: string }) => id);
    expect(seen).toEqual(all);
    expect(new Set(seen).size).toBe(seen.length);
  });

  test('take their keys along when deleted', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'doomed' });
    expect((await fleet.ok('apis.deleteApi', { apiId: 'doomed' })).propagation.state).toBe('complete');
    expectError(await fleet.admin('apis.getApi', { apiId: 'doomed' }), 404, 'NOT_FOUND');
    expectError(await fleet.admin('keys.getKey', { keyId }), 404, 'NOT_FOUND');
    expectError(await fleet.admin('apis.deleteApi', { apiId: 'doomed' }), 404, 'NOT_FOUND');
    expectError(await fleet.admin('keys.createKey', { apiId: 'doomed' }), 409, 'CONFLICT');
    expectError(await fleet.admin('apis.createApi', { name: 'again', apiId: 'doomed' }), 409, 'CONFLICT');
    await fleet.until(
      async () => (await fleet.admin('apis.createApi', { name: 'again', apiId: 'doomed' })).status === 200,
    );
    expect((await fleet.ok('apis.listKeys', { apiId: 'doomed' })).keys).toEqual([]);
  });

  test('need createApi if API_AUTO_CREATE is false', async () => {
    const strict = await fleet.addControlPlane({ API_AUTO_CREATE: 'false' });
    const answer = await fleet.post(`${strict.address}/v1/keys.createKey`, { apiId: 'unheard-of' }, bearer);
    expectError(answer, 404, 'NOT_FOUND', 'api unheard-of not found');
    expectError(await fleet.admin('apis.getApi', { apiId: 'unheard-of' }), 404, 'NOT_FOUND');
  });
});

describe('root keys', () => {
  const rootKeyWith = async (...permissions: string[]) =>
    (await fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions })).key as string;

  test('get 403 in their APIs and 404 in others', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'mine' });
    const other = await fleet.ok('keys.createKey', { apiId: 'theirs' });
    const rootKey = await rootKeyWith('api.mine.read_key');
    expect((await fleet.admin('keys.getKey', { keyId }, { rootKey })).status).toBe(200);
    expectError(
      await fleet.admin('keys.updateKey', { keyId, enabled: false }, { rootKey }),
      403,
      'INSUFFICIENT_PERMISSIONS',
      /api\.mine\.update_key/,
    );
    expectError(
      await fleet.admin('apis.listKeys', { apiId: 'mine' }, { rootKey }),
      403,
      'INSUFFICIENT_PERMISSIONS',
      /read_api/,
    );
    expectError(
      await fleet.admin('keys.getKey', { keyId: other.keyId }, { rootKey }),
      404,
      'NOT_FOUND',
      `key ${other.keyId} not found`,
    );
    expectError(await fleet.admin('keys.createKey', { apiId: 'theirs' }, { rootKey }), 404, 'NOT_FOUND');
    expect((await fleet.ok('apis.listApis', {}, { rootKey })).apis).toEqual([]);
    const reader = await rootKeyWith('api.mine.read_api');
    expect(
      (await fleet.ok('apis.listApis', {}, { rootKey: reader })).apis.map(({ id }: { id: string }) => id),
    ).toEqual(['mine']);
  });

  test('a root key is refused from the moment it is disabled', async () => {
    const { rootKeyId, key } = await fleet.ok('rootKeys.createRootKey', {
      name: 'short-lived',
      permissions: ['*'],
    });
    expect(rootKeyId).toMatch(/^root_/);
    expect((await fleet.admin('apis.listApis', {}, { rootKey: key })).status).toBe(200);
    expect(await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false })).toEqual({
      rootKeyId,
      enabled: false,
      propagation: expect.objectContaining({ state: 'complete' }),
    });
    expectError(await fleet.admin('apis.listApis', {}, { rootKey: key }), 401, 'UNAUTHORIZED');
    await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: true });
    expect((await fleet.admin('apis.listApis', {}, { rootKey: key })).status).toBe(200);
    const { rootKeys } = await fleet.ok('rootKeys.listRootKeys');
    expect(rootKeys).toContainEqual({
      rootKeyId,
      name: 'short-lived',
      permissions: ['*'],
      enabled: true,
      createdAt: expect.any(Number),
    });
    expectError(
      await fleet.admin('rootKeys.updateRootKey', { rootKeyId: 'root_none', enabled: false }),
      404,
      'NOT_FOUND',
    );
  });

  test('a root key cannot grant, or manage root keys with, permissions that it lacks', async () => {
    const rootKey = await rootKeyWith('root.*.create_root_key', 'root.*.update_root_key', 'api.*.read_key');
    const wish = (permissions: string[]) =>
      fleet.admin('rootKeys.createRootKey', { name: 'x', permissions }, { rootKey });
    expect((await wish(['api.one.read_key'])).status).toBe(200);
    expectError(await wish(['*']), 403, 'INSUFFICIENT_PERMISSIONS');
    expectError(await wish(['api.one.delete_key']), 403, 'INSUFFICIENT_PERMISSIONS');
    const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', { name: 'strong', permissions: ['*'] });
    expectError(
      await fleet.admin('rootKeys.updateRootKey', { rootKeyId, enabled: false }, { rootKey }),
      403,
      'INSUFFICIENT_PERMISSIONS',
    );
    expectError(await fleet.admin('rootKeys.listRootKeys', {}, { rootKey }), 403, 'INSUFFICIENT_PERMISSIONS');
  });

  test('of the configuration overlap in a rotation', async () => {
    const old = 'the-old-root-key-which-is-long-enough-000';
    const fresh = 'the-new-root-key-which-is-long-enough-000';
    const { writeFileSync } = await import('node:fs');
    const file = `${fleet.directory}/root-keys`;
    writeFileSync(file, `${old}\n${fresh}\n`);
    const { address } = await fleet.addControlPlane({ ROOT_KEY_FILE: file });
    for (const rootKey of [old, fresh]) {
      expect(
        (await fleet.get(`${address}/v1/apis.listApis`, { authorization: `Bearer ${rootKey}` })).status,
      ).toBe(200);
    }
    expectError(await fleet.get(`${address}/v1/apis.listApis`, bearer), 401, 'UNAUTHORIZED');
  });
});

test('without Redis every operation is 503', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'outage' });
  await fleet.redis.stop();
  for (const [operation, input] of [
    ['keys.createKey', { apiId: 'outage' }],
    ['keys.getKey', { keyId }],
    ['keys.updateKey', { keyId, enabled: false }],
    ['apis.listKeys', { apiId: 'outage' }],
  ] as const) {
    const answer = await fleet.admin(operation, input);
    expectError(answer, 503, 'SERVICE_UNAVAILABLE');
    expect(answer.headers['retry-after']).toBe('1');
  }
  expect((await fleet.get(`${fleet.controlPlanes[0]?.adminAddress}/readyz`)).status).toBe(200);
  await fleet.startRedis();
  await fleet.until(async () => (await fleet.admin('keys.getKey', { keyId })).status === 200);
  expect((await fleet.ok('keys.getKey', { keyId })).enabled).toBe(true);
});
