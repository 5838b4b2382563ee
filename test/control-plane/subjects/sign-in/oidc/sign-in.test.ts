import { afterAll, beforeAll, expect, test } from 'vitest';
import { PRESETS } from '../../../../../control-plane/core/callers/root-permissions.ts';
import { ROOT_KEY } from '../../../../harness/fleet.ts';
import { envOf, useCommandLine } from '../../../clients/cli/keyfence.ts';
import { CookieJar } from './cookie-jar.ts';
import { CLIENT } from './real-provider.ts';
import { OidcStage } from './stage.ts';

let stage: OidcStage;
beforeAll(async () => {
  stage = await OidcStage.start();
});
afterAll(() => stage.stop());

const commandLine = useCommandLine();
const keyfence = async (...args: string[]) => (await commandLine.run(args, envOf(stage.fleet))).stdout;

test('a person signs in by code and PKCE', async () => {
  const jar = new CookieJar();
  expect(await stage.session(jar)).toEqual({ provider: new URL(stage.provider.issuer).host });
  const begun = await jar.open(`${stage.base}/dashboard/session/oidc/begin`);
  const url = new URL(begun.headers.get('location') ?? '');
  expect(url.origin).toBe(stage.provider.issuer);
  expect(Object.fromEntries(url.searchParams)).toMatchObject({
    ...{ response_type: 'code', client_id: 'keyfence', code_challenge_method: 'S256' },
    redirect_uri: `${stage.base}/dashboard/session/oidc/callback`,
    ...{ code_challenge: expect.stringMatching(/^[\w-]{43}$/), state: expect.any(String) },
    nonce: expect.any(String),
  });
  expect(begun.headers.get('set-cookie')).toMatch(
    /^keyfence_sign_in=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/,
  );

  const { page } = await stage.signIn('ada-1', jar);
  expect([page.status, page.headers.get('location')]).toEqual([302, `${stage.base}/dashboard/#/`]);
  const [session] = page.headers.getSetCookie();
  expect(session).toMatch(/^keyfence_session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/);
  expect(await stage.session(jar)).toMatchObject({
    permissions: ['*', 'api.shop.read_api'],
    person: {
      ...{ personId: expect.stringMatching(/^person_[0-9a-f]{40}$/), subject: 'ada-1' },
      ...{ name: 'Ada', email: 'ada@example.com' },
    },
  });
  expect((await stage.call(jar, 'keys.createKey', { apiId: 'shop' })).status).toBe(200);
});

test('has the union of all matching lines', async () => {
  const { jar } = await stage.signIn('sue-2');
  const { permissions } = await stage.session(jar);
  expect(permissions).toEqual(PRESETS['support']?.permissions);
  expect((await stage.call(jar, 'keys.createKey', { apiId: 'shop' })).body.error).toMatchObject({
    code: 'INSUFFICIENT_PERMISSIONS',
    message: 'the person needs api.shop.create_key',
  });
  const rootKey = { name: 'own', permissions: ['*'] };
  expect((await stage.call(jar, 'rootKeys.createRootKey', rootKey)).status).toBe(403);
  // An address that the provider has not verified is worth nothing.
  stage.provider.accounts.set('fay-4', { email: 'ada@example.com', email_verified: false });
  expect((await stage.signIn('fay-4')).page.status).toBe(403);
});

test('a person without a matching line is told so', async () => {
  for (const login of ['bob-3', 'nobody-is-this']) {
    stage.provider.accounts.set('nobody-is-this', {});
    const { jar, page } = await stage.signIn(login);
    expect([page.status, page.headers.get('content-type')]).toEqual([403, 'text/html; charset=utf-8']);
    expect(page.text).toContain('OIDC_PERMISSIONS gives this person no permission');
    expect([...jar.of(stage.base).keys()]).not.toContain('keyfence_session');
  }
});

test('the audit log and sessions name the person', async () => {
  const { jar } = await stage.signIn('ada-1');
  const { person } = await stage.session(jar);
  const { body } = await stage.call(jar, 'keys.createKey', { apiId: 'shop' });
  const [event] = (await stage.fleet.ok('audit.listEvents', { keyId: body.keyId })).events;
  expect(event.by).toEqual({ person, address: '127.0.0.1' });
  const { events } = await stage.fleet.ok('audit.listEvents', { rootKeyId: person.personId });
  expect(events[0].id).toBe(event.id);
  for (const { by } of events) expect(by.person.personId).toBe(person.personId);

  const support = await stage.signIn('sue-2');
  await stage.call(support.jar, 'keys.deleteKey', { keyId: body.keyId });
  const refused = await stage.fleet.ok('audit.listEvents', { refused: 'true' });
  expect(refused.events[0]).toMatchObject({ operation: 'keys.deleteKey', by: { person: { name: 'Sue' } } });

  const { sessions } = await stage.fleet.ok('rootKeys.listSessions');
  expect(sessions.at(-2)).toMatchObject({ person, address: '127.0.0.1' });
  const printed = `${await keyfence('audit', '--by', person.personId)}${await keyfence('root-keys', 'sessions')}`;
  expect(printed).toMatch(/ ada@example\.com +127\.0\.0\.1 +keys\.createKey /);
  expect(printed).toMatch(/^session_\w+ +ada@example\.com +127\.0\.0\.1 /m);
});

test('only an equal or a superior ends the session', async () => {
  const { jar } = await stage.signIn('ada-1');
  const support = await stage.signIn('sue-2');
  const { sessions } = await stage.fleet.ok('rootKeys.listSessions');
  const [ofAda, ofSue] = sessions.slice(-2).map(({ sessionId }: { sessionId: string }) => sessionId);
  const limited = await stage.fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'limited', permissions: ['root.*.update_root_key'] },
  });
  const byLimited = await stage.fleet.admin(
    'rootKeys.endSession',
    { sessionId: ofSue },
    { rootKey: limited.key },
  );
  expect(byLimited.status).toBe(403);
  expect((await stage.call(support.jar, 'rootKeys.endSession', { sessionId: ofAda })).status).toBe(403);
  expect((await stage.call(jar, 'rootKeys.endSession', { sessionId: ofSue })).status).toBe(200);
  expect((await stage.call(support.jar, 'apis.listApis')).status).toBe(401);
  const [event] = (await stage.fleet.ok('audit.listEvents')).events;
  expect(event).toMatchObject({ operation: 'rootKeys.endSession', after: { sessionId: ofSue } });
  expect(event.after.personId).toMatch(/^person_/);
});

test('a root key outlives the person who made it', async () => {
  const { jar } = await stage.signIn('ada-1');
  const created = await stage.call(jar, 'rootKeys.createRootKey', {
    name: 'ci',
    permissions: ['api.*.read_key'],
  });
  const child = created.body.key;
  await stage.call(jar, 'rootKeys.endSession', {
    sessionId: (await stage.fleet.ok('rootKeys.listSessions')).sessions.at(-1).sessionId,
  });
  expect((await stage.call(jar, 'apis.listApis')).status).toBe(401);
  expect((await stage.fleet.admin('apis.listApis', {}, { rootKey: child })).status).toBe(200);
});

test('signing out leads to that of the provider', async () => {
  const { jar } = await stage.signIn('ada-1');
  const { csrfToken } = await stage.session(jar);
  const kept = new CookieJar();
  for (const [name, value] of jar.of(stage.base)) kept.of(stage.base).set(name, value);
  const headers = { 'x-keyfence-csrf': csrfToken };
  const { text } = await jar.open(`${stage.base}/dashboard/session`, { method: 'DELETE', headers });
  expect((await kept.open(`${stage.base}/v1/apis.listApis`, { headers })).status).toBe(401);

  const { signOutUrl } = JSON.parse(text);
  const form = await jar.follow(signOutUrl);
  const [, action = ''] = /action="([^"]+)"/.exec(form.text) ?? [];
  const [, xsrf = ''] = /name="xsrf" value="([^"]+)"/.exec(form.text) ?? [];
  const page = await jar.follow(
    new URL(action, form.url).href,
    { method: 'POST', body: new URLSearchParams({ xsrf, logout: 'yes' }) },
    (url) => url.startsWith(stage.base),
  );
  expect(page.url).toBe(`${stage.base}/dashboard/`);
  // The provider asks who this is again.
  expect((await jar.follow(`${stage.base}/dashboard/session/oidc/begin`)).text).toContain('name="login"');
});

test('changed groups apply at the next sign-in', async () => {
  const before = await stage.signIn('ada-1');
  stage.provider.accounts.set('ada-1', { name: 'Ada', groups: ['key support'] });
  const { jar } = await stage.signIn('ada-1');
  expect((await stage.session(jar)).permissions).toEqual(PRESETS['support']?.permissions);
  // This provider gives no refresh token, so the earlier session goes on with what it has.
  expect((await stage.session(before.jar)).permissions).toContain('*');
  stage.provider.accounts.set('ada-1', { name: 'Ada', groups: ['keyfence-admins'] });
});

test('a change of OIDC_PERMISSIONS applies to open sessions at once, and so does another issuer', async () => {
  const { jar } = await stage.signIn('ada-1');
  const permissionsWith = async (changes: Readonly<Record<string, string>>) => {
    const { address } = await stage.fleet.addControlPlane({ ...stage.env, PORT: '0', ...changes });
    const { text } = await jar.open(`${address}/dashboard/session`);
    return JSON.parse(text).permissions;
  };
  const cookies = new Map(jar.of(stage.base));
  const resume = () => {
    for (const [name, value] of cookies) jar.of(stage.base).set(name, value);
  };
  expect(await permissionsWith({})).toEqual(['*']);
  expect(await permissionsWith({ OIDC_PERMISSIONS: 'groups=keyfence-admins api.shop.read_key' })).toEqual([
    'api.shop.read_key',
  ]);
  expect(await permissionsWith({ OIDC_ISSUER: 'http://localhost:9' })).toBeUndefined();
  // That has ended the session.
  resume();
  expect(await permissionsWith({})).toBeUndefined();
  for (const changes of [
    { OIDC_PERMISSIONS: 'groups=others everything' },
    { OIDC_ISSUER: '', OIDC_CLIENT_ID: '', OIDC_CLIENT_SECRET: '', OIDC_PERMISSIONS: '' },
  ]) {
    const next = await stage.signIn('ada-1');
    const { address } = await stage.fleet.addControlPlane({ ...stage.env, PORT: '0', ...changes });
    expect(
      JSON.parse((await next.jar.open(`${address}/dashboard/session`)).text).permissions,
    ).toBeUndefined();
  }
});

test('reads missing claims from userinfo', async () => {
  const thin = await OidcStage.start({ thin: true });
  try {
    const { jar } = await thin.signIn('ada-1');
    expect((await thin.session(jar)).permissions).toEqual(['*', 'api.shop.read_api']);
    expect(thin.provider.paths).toContain('/me');
  } finally {
    await thin.stop();
  }
});

test('without its provider, root keys still sign in', async () => {
  const jar = new CookieJar();
  const { address } = await stage.fleet.addControlPlane({
    ...{ ...stage.env, PORT: '0', OIDC_ISSUER: 'http://localhost:9' },
  });
  const page = await jar.open(`${address}/dashboard/session/oidc/begin`);
  expect([page.status, page.headers.get('retry-after')]).toEqual([503, '1']);
  expect(page.text).toContain('the identity provider does not answer as it should');
  // Root keys still sign in.
  const { status } = await stage.fleet.post(`${address}/dashboard/session`, { rootKey: ROOT_KEY });
  expect(status).toBe(200);
});

test('over TLS, cookies are for this host alone', async () => {
  const { address } = await stage.fleet.addControlPlane({
    ...{ ...stage.env, PORT: '0', PUBLIC_URL: 'https://keyfence.example/path/' },
  });
  const { headers } = await new CookieJar().open(`${address}/dashboard/session/oidc/begin`);
  expect(headers.get('set-cookie')).toMatch(/^__Host-keyfence_sign_in=[\w-]{43}; Path=\/;.*; Secure$/);
  expect(new URL(headers.get('location') ?? '').searchParams.get('redirect_uri')).toBe(
    'https://keyfence.example/path/dashboard/session/oidc/callback',
  );
});

test('the secret of the client rotates during a sign-in', async () => {
  const own = await OidcStage.start();
  try {
    const before = await own.signIn('ada-1');
    const jar = new CookieJar();
    const { url } = await own.authorize(jar, 'ada-1');
    own.provider.secrets.add('the-new-secret-of-the-client-0123');
    await own.fleet.controlPlanes.shift()?.stop();
    await own.fleet.addControlPlane({ ...own.env, OIDC_CLIENT_SECRET: 'the-new-secret-of-the-client-0123' });
    own.provider.secrets.delete(CLIENT.secret);
    expect((await jar.open(url)).status).toBe(302);
    for (const each of [jar, before.jar]) expect(await own.session(each)).toHaveProperty('person');
    expect((await own.signIn('sue-2')).page.status).toBe(302);
  } finally {
    await own.stop();
  }
});
