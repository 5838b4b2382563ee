import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  SESSION_IDLE_MS,
  SESSION_MS_MAX,
  SESSIONS_MAX,
} from '../../../../control-plane/core/callers/sessions.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { eventually } from '../../../harness/waiting.ts';

let fleet: Fleet;
let base: string;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(() => fleet.stop());

interface Answer {
  readonly status: number;
  readonly cookies: readonly string[];
  // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
  readonly body: any;
}

async function send(
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  headers: Record<string, string> = {},
  body?: object,
): Promise<Answer> {
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await request(base + path, {
    method,
    headers: { ...headers, ...json },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return {
    status: response.statusCode,
    cookies: [response.headers['set-cookie'] ?? []].flat(),
    body: await response.body.json(),
  };
}

const SESSION = '/dashboard/session';

/** Signs in; returns the headers with which the dashboard then calls. */
async function signIn(rootKey = ROOT_KEY) {
  const { status, cookies, body } = await send('POST', SESSION, {}, { rootKey });
  expect(status).toBe(200);
  const cookie = /^keyfence_session=[\w-]{43}/.exec(cookies[0] ?? '')?.[0] ?? '';
  return { headers: { cookie, 'x-keyfence-csrf': body.csrfToken as string }, cookies, body };
}

const listApis = (headers: Record<string, string>) => send('GET', '/v1/apis.listApis', headers);

test('a session acts and is audited as its root key', async () => {
  const { headers, cookies, body } = await signIn();
  expect(cookies).toEqual([
    expect.stringMatching(/^keyfence_session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/),
  ]);
  expect(body).toEqual({
    rootKeyId: expect.any(String),
    sessionId: expect.stringMatching(/^session_/),
    csrfToken: expect.stringMatching(/^[\w-]{43}$/),
    permissions: ['*'],
  });
  expect((await listApis(headers)).status).toBe(200);
  const created = await send('POST', '/v1/keys.createKey', headers, { apiId: 'shop' });
  expect(created.status).toBe(200);
  expect((await send('GET', SESSION, { cookie: headers.cookie })).body).toEqual(body);
  const { events } = await fleet.ok('audit.listEvents', { keyId: created.body.keyId });
  expect(events[0]).toMatchObject({ operation: 'keys.createKey', by: { rootKeyId: body.rootKeyId } });
});

test('the cookie is for TLS where the page is', async () => {
  const origin = base.replace('http:', 'https:');
  const { cookies } = await send('POST', SESSION, { origin }, { rootKey: ROOT_KEY });
  const [, cookie = ''] =
    /^(__Host-keyfence_session=[\w-]{43}); Path=\/;.*; Secure$/.exec(cookies[0] ?? '') ?? [];
  const planted = (await signIn()).headers.cookie;
  const own = await send('GET', SESSION, { cookie });
  expect(own.body.csrfToken).toMatch(/^[\w-]{43}$/);
  // A neighbour in the domain can plant the other cookie, in front of this one.
  expect((await send('GET', SESSION, { cookie: `${planted}; ${cookie}` })).body).toEqual(own.body);
});

test('https counts only the cookie of this host', async () => {
  const { address } = await fleet.addControlPlane({ PUBLIC_URL: 'https://keyfence.example.com' });
  const { cookie } = (await signIn()).headers;
  const token = cookie.replace(/^keyfence_session=/, '');
  const session = (value: string) => fleet.get(`${address}${SESSION}`, { cookie: value });
  expect((await session(`keyfence_session=${token}`)).body).toEqual({});
  expect((await session(`__Host-keyfence_session=${token}`)).body.csrfToken).toMatch(/^[\w-]{43}$/);
  const begun = await fleet.post(`${address}${SESSION}`, { rootKey: ROOT_KEY });
  expect(String(begun.headers['set-cookie'])).toMatch(/^__Host-keyfence_session=/);
});

test('no other site can use the cookie', async () => {
  const { headers } = await signIn();
  const { cookie } = headers;
  const other = await signIn();
  for (const more of [
    {},
    { 'x-keyfence-csrf': '' },
    { 'x-keyfence-csrf': other.headers['x-keyfence-csrf'] },
    { ...headers, 'sec-fetch-site': 'cross-site' },
    { ...headers, 'sec-fetch-site': 'same-site' },
    { ...headers, 'sec-fetch-site': 'none' },
    { ...headers, origin: 'https://evil.example' },
    { ...headers, origin: 'null' },
  ]) {
    const answer = await listApis({ ...more, cookie });
    expect([answer.status, answer.body.error?.code], JSON.stringify(more)).toEqual([401, 'UNAUTHORIZED']);
    expect((await send('DELETE', SESSION, { ...more, cookie })).status).toBe(401);
  }
  for (const more of [{ 'sec-fetch-site': 'cross-site' }, { origin: 'https://evil.example' }]) {
    expect((await send('GET', SESSION, { cookie, ...more })).status).toBe(401);
    expect((await send('POST', SESSION, more, { rootKey: ROOT_KEY })).status).toBe(401);
  }
  expect((await listApis({ ...headers, 'sec-fetch-site': 'same-origin' })).status).toBe(200);
  expect((await listApis({ ...headers, origin: base })).status).toBe(200);
});

test('a session ends by time, idleness or its key', async () => {
  const ended = await signIn();
  const { cookies } = await send('DELETE', SESSION, ended.headers);
  expect(cookies).toEqual([
    expect.stringMatching(/^__Host-keyfence_session=;.*Max-Age=0; Secure$/),
    expect.stringMatching(/^keyfence_session=;.*Max-Age=0$/),
  ]);
  expect((await listApis(ended.headers)).status).toBe(401);

  const records = async () => (await fleet.client.keys('kf:s:*')).sort();
  const before = new Set(await records());
  const { headers } = await signIn();
  const [record = ''] = (await records()).filter((name) => !before.has(name));
  const value = (await fleet.client.get(record)) ?? '';
  expect(JSON.stringify([record, value])).not.toContain(headers.cookie.split('=')[1]);
  await fleet.client.pexpire(record, 1000);
  expect((await listApis(headers)).status).toBe(200);
  expect(await fleet.client.pttl(record)).toBeGreaterThan(SESSION_IDLE_MS - 10_000);
  const [createdAt, hash] = value.split(' ');
  await fleet.client.set(record, `${Number(createdAt) - SESSION_MS_MAX} ${hash}`, 'PX', SESSION_IDLE_MS);
  expect((await listApis(headers)).status).toBe(401);
  expect(await fleet.client.exists(record)).toBe(0);
  const over = await send('GET', SESSION, { cookie: headers.cookie });
  expect(over).toMatchObject({ status: 200, body: {} });
  expect(over.cookies[0]).toContain('Max-Age=0');

  const { key, rootKeyId } = await fleet.ok('rootKeys.createRootKey', {
    name: 'colleague',
    permissions: ['api.*.read_key'],
  });
  const colleague = await signIn(key);
  expect(colleague.body.rootKeyId).toBe(rootKeyId);
  const refused = await send('POST', '/v1/keys.createKey', colleague.headers, { apiId: 'shop' });
  expect(refused.body.error.code).toBe('INSUFFICIENT_PERMISSIONS');
  await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
  expect((await listApis(colleague.headers)).status).toBe(401);
  await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: true });
  // It does not come back with its root key.
  expect((await listApis(colleague.headers)).status).toBe(401);
});

test('refuses made-up cookies and wrong bodies', async () => {
  const { headers } = await signIn();
  for (const cookie of [
    'keyfence_session=x',
    `keyfence_session=${'a'.repeat(43)}`,
    'keyfence_session=../../x',
  ])
    expect((await listApis({ ...headers, cookie })).status).toBe(401);
  expect((await listApis({ ...headers, cookie: `a=b; ${headers.cookie}; c=d` })).status).toBe(200);
  expect((await listApis({ ...headers, authorization: 'Bearer nobody' })).status).toBe(401);
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  for (const rootKey of ['nobody', key, 'kfroot_nobody']) {
    const { status, body, cookies } = await send('POST', SESSION, {}, { rootKey });
    expect([status, body.error.code, cookies]).toEqual([401, 'UNAUTHORIZED', []]);
    expect(JSON.stringify(body)).not.toContain(rootKey);
  }
  for (const wrong of [{}, { rootKey: 7 }, { rootKey: '' }, { rootKey: ROOT_KEY, more: 1 }]) {
    const { status, body } = await send('POST', SESSION, {}, wrong);
    expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST']);
    expect(JSON.stringify(body)).not.toContain(ROOT_KEY);
  }
  const put = await request(base + SESSION, { method: 'PUT' });
  expect([put.statusCode, put.headers['allow']]).toEqual([405, 'POST, GET, DELETE']);
  await put.body.dump();
  expect(fleet.logged.join()).not.toContain(headers.cookie.split('=')[1]);
});

test('lists sessions, each of which can be ended', async () => {
  const before = (await fleet.ok('rootKeys.listSessions')).sessions.length;
  const [one, two] = [await signIn(), await signIn()];
  const { sessions } = await fleet.ok('rootKeys.listSessions');
  expect(sessions.slice(before)).toEqual(
    [one, two].map(({ body }) => ({
      sessionId: expect.stringMatching(/^session_\w{20}$/),
      rootKeyId: body.rootKeyId,
      address: '127.0.0.1',
      createdAt: expect.any(Number),
    })),
  );
  expect(JSON.stringify(sessions)).not.toMatch(/[\w-]{43}/);
  const { sessionId } = sessions[before];
  await fleet.ok('rootKeys.endSession', { sessionId });
  // Of the same millisecond, either may be listed first.
  const statuses = await Promise.all([one, two].map(async ({ headers }) => (await listApis(headers)).status));
  expect(statuses.toSorted()).toEqual([200, 401]);
  const left = statuses[0] === 200 ? one : two;
  expect((await fleet.admin('rootKeys.endSession', { sessionId })).status).toBe(404);
  expect((await fleet.ok('rootKeys.listSessions')).sessions).toHaveLength(before + 1);
  await send('DELETE', SESSION, left.headers);
  expect((await fleet.ok('rootKeys.listSessions')).sessions).toHaveLength(before);
});

test('a root key ends no session of a stronger one', async () => {
  await signIn();
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'limited', permissions: ['root.*.update_root_key', 'root.*.read_root_key'] },
  });
  const { sessions } = await fleet.ok('rootKeys.listSessions', {}, { rootKey });
  const { sessionId } = sessions.at(-1);
  expect((await fleet.admin('rootKeys.endSession', { sessionId }, { rootKey })).status).toBe(403);
});

test('one session too many ends the oldest', async () => {
  const { key: rootKey, rootKeyId } = await fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'many', permissions: ['api.*.read_api'] },
  });
  const other = await signIn();
  const first = await signIn(rootKey);
  // Sessions of one millisecond have no order.
  const firstMs = Date.now();
  await eventually(() => Date.now() > firstMs);
  const second = await signIn(rootKey);
  for (let i = 2; i < SESSIONS_MAX; i++) await signIn(rootKey);
  expect((await listApis(first.headers)).status).toBe(200);
  await signIn(rootKey);
  expect((await listApis(first.headers)).status).toBe(401);
  for (const { headers } of [second, other]) expect((await listApis(headers)).status).toBe(200);
  const own: { sessionId: string }[] = [];
  let pages = 0;
  for (let cursor: string | undefined = ''; cursor !== undefined; pages++) {
    const page = await fleet.ok('rootKeys.listSessions', { limit: '30', ...(cursor ? { cursor } : {}) });
    expect(page.sessions.length).toBeLessThanOrEqual(30);
    own.push(...page.sessions.filter((each: { rootKeyId?: string }) => each.rootKeyId === rootKeyId));
    ({ cursor } = page);
  }
  expect(pages).toBeGreaterThan(3);
  expect(new Set(own.map(({ sessionId }) => sessionId)).size).toBe(SESSIONS_MAX);
  const { sessionId } = own[0] ?? { sessionId: '' };
  await fleet.ok('rootKeys.endSession', { sessionId });
  await signIn(rootKey);
  expect((await listApis(second.headers)).status, 'it was the oldest, and was ended').toBe(401);
});

test('signing in counts as a call of the root key', async () => {
  const limited = await Fleet.start({
    ...{ verifiers: 0, redisUrl: fleet.redisUrl, env: { ROOT_KEY_CALLS_PER_MINUTE: '20' } },
  });
  const at = limited.controlPlanes[0]?.address ?? '';
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'quick', permissions: ['api.*.read_api'] },
  });
  const post = () => limited.post(at + SESSION, { rootKey });
  const answers = [];
  for (let i = 0; i < 21; i++) answers.push(await post());
  expect(answers.map(({ status }) => status)).toEqual([...new Array(20).fill(200), 429]);
  expect(answers.at(-1)?.headers['retry-after']).toMatch(/^\d+$/);
  const cookie = String(answers[0]?.headers['set-cookie']).split(';')[0] ?? '';
  const looks = [];
  for (let i = 0; i < 21; i++) looks.push((await limited.get(at + SESSION, { cookie })).status);
  expect(looks).toEqual([...new Array(20).fill(200), 429]);
  await limited.stop();
});
