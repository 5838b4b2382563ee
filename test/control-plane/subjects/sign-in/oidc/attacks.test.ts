import { once } from 'node:events';
import { request as ask, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { Fleet } from '../../../../harness/fleet.ts';
import { freePort } from '../../../../harness/ports.ts';
import { CookieJar, type Page } from './cookie-jar.ts';
import { HostileProvider } from './hostile-provider.ts';
import { CLIENT } from './real-provider.ts';
import { OidcStage, settingsFor } from './stage.ts';

const BEGIN = '/dashboard/session/oidc/begin';
const CALLBACK = '/dashboard/session/oidc/callback';

/** Expects a page that begins no session and leads back to the dashboard. */
function expectRefusal(page: Page, jar: CookieJar, status: number, text: string | RegExp): void {
  expect([page.status, page.headers.get('content-type')]).toEqual([status, 'text/html; charset=utf-8']);
  expect(page.text).toMatch(text);
  const [, back = ''] = /<a href="([^"]+)">Back/.exec(page.text) ?? [];
  expect(new URL(back, page.url).pathname).toBe('/dashboard/');
  expect([...jar.of(page.url).keys()]).not.toContain('keyfence_session');
}

describe('a hostile provider', () => {
  let fleet: Fleet;
  let hostile: HostileProvider;
  let base: string;
  beforeAll(async () => {
    hostile = await HostileProvider.start();
    const port = await freePort();
    base = `http://127.0.0.1:${port}`;
    fleet = await Fleet.start({ verifiers: 0, env: settingsFor(hostile.issuer, port) });
  });
  beforeEach(() => hostile.reset());
  afterAll(async () => {
    await fleet.stop();
    await hostile.stop();
  });

  /** Begins a sign-in, and comes back with a code that the provider takes. */
  async function signIn(more = ''): Promise<{ jar: CookieJar; page: Page }> {
    const jar = new CookieJar();
    const begun = await jar.open(base + BEGIN);
    const asked = new URL(begun.headers.get('location') ?? '').searchParams;
    hostile.nonce = asked.get('nonce') ?? '';
    return {
      jar,
      page: await jar.open(`${base}${CALLBACK}?code=c0de-of-eve&state=${asked.get('state')}${more}`),
    };
  }

  test('that is honest signs in', async () => {
    const { page, jar } = await signIn();
    expect(page.status).toBe(302);
    expect([...jar.of(base).keys()]).toEqual(['keyfence_sign_in', 'keyfence_session']);
  });

  test('is reached through the proxy of the environment', async () => {
    const asked: string[] = [];
    const proxy = createServer();
    proxy.on('request', (asking, answering) => {
      const { url = '', method, headers } = asking;
      asked.push(new URL(url).host);
      asking.pipe(
        ask(url, { method, headers }, (answer) => {
          answering.writeHead(answer.statusCode ?? 502, answer.headers);
          answer.pipe(answering);
        }),
      );
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    vi.stubEnv('http_proxy', `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
    const port = await freePort();
    await fleet.addControlPlane(settingsFor(hostile.issuer, port));
    const before = base;
    base = `http://127.0.0.1:${port}`;
    try {
      expect((await signIn()).page.status).toBe(302);
      expect(new Set(asked)).toEqual(new Set([new URL(hostile.issuer).host]));
    } finally {
      vi.unstubAllEnvs();
      base = before;
      await fleet.controlPlanes.pop()?.stop();
      proxy.closeAllConnections();
      proxy.close();
    }
  });

  const past = Math.floor(Date.now() / 1000) - 3600;
  test.each<[string, () => void]>([
    ['of another issuer', () => Object.assign(hostile, { idClaims: { iss: 'https://other.example' } })],
    ['for another audience', () => Object.assign(hostile, { idClaims: { aud: 'another-client' } })],
    ['with another nonce', () => Object.assign(hostile, { idClaims: { nonce: 'of-another-sign-in' } })],
    ['without a nonce', () => Object.assign(hostile, { idClaims: { nonce: undefined } })],
    ['that has expired', () => Object.assign(hostile, { idClaims: { iat: past, exp: past + 300 } })],
    ['without a subject', () => Object.assign(hostile, { idClaims: { sub: undefined } })],
    [
      'signed with a key that is not its own',
      () => Object.assign(hostile, { signsWith: hostile.otherKeys.privateKey }),
    ],
    ['without a signature', () => Object.assign(hostile, { signsWith: 'none' })],
    ['left out', () => Object.assign(hostile, { fields: { id_token: undefined } })],
  ])('cannot sign in anybody with an ID token %s', async (_what, corrupt) => {
    corrupt();
    const { page, jar } = await signIn();
    expectRefusal(page, jar, 401, /did not confirm who you are/);
  });

  test.each<[string, (typeof hostile)['instead']]>([
    [
      'HTML',
      { '/token': (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>Hi') },
    ],
    [
      'broken JSON',
      { '/token': (response) => response.writeHead(200, { 'content-type': 'application/json' }).end('{') },
    ],
    ['500', { '/token': (response) => hostile.json(response, { error: 'server_error' }, 500) }],
    ['a redirect', { '/token': (response) => response.writeHead(307, { location: '/jwks' }).end() }],
    ['2 MiB', { '/token': (response) => hostile.json(response, { access_token: 'x'.repeat(2 ** 21) }) }],
    ['nothing, but closes the connection', { '/token': (response) => response.destroy() }],
    ['nothing at all', { '/token': () => undefined }],
    [
      'a drop at a time',
      {
        '/token': (response) => {
          response.writeHead(200, { 'content-type': 'application/json' });
          const timer = setInterval(() => response.write(' '), 50);
          response.on('close', () => clearInterval(timer));
        },
      },
    ],
    ['no keys', { '/jwks': (response) => hostile.json(response, { error: 'gone' }, 503) }],
  ])('that answers with %s is told as an outage', async (_what, instead) => {
    // The keys are remembered; another control plane has not seen them yet.
    const port = await freePort();
    await fleet.addControlPlane(settingsFor(hostile.issuer, port));
    const before = base;
    base = `http://127.0.0.1:${port}`;
    try {
      hostile.instead = instead;
      const { page, jar } = await signIn();
      expectRefusal(page, jar, 503, /does not answer as it should/);
      expect(page.headers.get('retry-after')).toBe('1');
      hostile.reset();
      expect((await signIn()).page.status).toBe(302);
    } finally {
      base = before;
    }
  });

  test.each<[string, () => unknown]>([
    ['is not the configured issuer', () => ({ ...hostile.metadata, issuer: 'https://other.example' })],
    ['says nothing of use', () => ({})],
  ])('that %s is an outage until the next sign-in', async (_what, metadata) => {
    const port = await freePort();
    await fleet.addControlPlane(settingsFor(hostile.issuer, port));
    const jar = new CookieJar();
    hostile.instead = {
      '/.well-known/openid-configuration': (response) => hostile.json(response, metadata()),
    };
    expectRefusal(
      await jar.open(`http://127.0.0.1:${port}${BEGIN}`),
      jar,
      503,
      /does not answer as it should/,
    );
    hostile.reset();
    expect((await jar.open(`http://127.0.0.1:${port}${BEGIN}`)).status).toBe(302);
  });

  test('puts no markup into the page by its error', async () => {
    const jar = new CookieJar();
    const begun = await jar.open(base + BEGIN);
    const state = new URL(begun.headers.get('location') ?? '').searchParams.get('state');
    const page = await jar.open(
      `${base}${CALLBACK}?error=%3Cscript%3E&error_description=%3Cb%3E&state=${state}`,
    );
    expectRefusal(page, jar, 401, /did not confirm who you are: its answer cannot be trusted/);
    expect(page.text).not.toMatch(/<script|<b>/);
  });

  test('over TLS, trusts no cookie of a neighbour', async () => {
    const port = await freePort();
    await fleet.addControlPlane({
      ...settingsFor(hostile.issuer, port),
      PUBLIC_URL: 'https://keyfence.example',
    });
    const address = `http://127.0.0.1:${port}`;
    for (const [name, status] of [
      ['__Host-keyfence_sign_in', 302],
      ['keyfence_sign_in', 401],
    ] as const) {
      const begun = await new CookieJar().open(address + BEGIN);
      const [, cookie] = /^__Host-keyfence_sign_in=([^;]+)/.exec(begun.headers.get('set-cookie') ?? '') ?? [];
      const asked = new URL(begun.headers.get('location') ?? '').searchParams;
      hostile.nonce = asked.get('nonce') ?? '';
      const page = await new CookieJar().open(`${address}${CALLBACK}?code=c&state=${asked.get('state')}`, {
        headers: { cookie: `${name}=${cookie}` },
      });
      expect(page.status).toBe(status);
    }
  });

  test('verifies no address by the other document', async () => {
    hostile.idClaims = { email: 'ada@example.com', groups: undefined };
    hostile.userinfo = {
      sub: 'eve-1',
      email: 'eve@example.com',
      email_verified: true,
      groups: ['key support'],
    };
    const port = await freePort();
    const own = await fleet.addControlPlane(settingsFor(hostile.issuer, port));
    const jar = new CookieJar();
    const begun = await jar.open(own.address + BEGIN);
    const asked = new URL(begun.headers.get('location') ?? '').searchParams;
    hostile.nonce = asked.get('nonce') ?? '';
    expect((await jar.open(`${own.address}${CALLBACK}?code=c&state=${asked.get('state')}`)).status).toBe(302);
    expect(hostile.requests).toContain('/userinfo');
    const session = await jar.open(`${own.address}/dashboard/session`);
    const { permissions, person } = JSON.parse(session.text);
    expect(permissions).not.toContain('api.shop.read_api');
    expect(person).not.toHaveProperty('email');
  });

  test('leaves no token, code or secret in a log', async () => {
    const { idToken } = hostile;
    hostile.fields = { refresh_token: 'a-refresh-token-of-eve' };
    await signIn();
    hostile.idClaims = { aud: 'another-client' };
    await signIn();
    const log = fleet.logged.join('');
    expect(log).toContain('the identity provider failed or refused');
    expect(log).toContain(CALLBACK);
    const [head = ''] = idToken.split('.');
    for (const secret of [head, 'c0de-of-eve', 'an-access-token', 'a-refresh-token', CLIENT.secret])
      expect(log).not.toContain(secret);
  });
});

describe('with an honest provider, a callback', () => {
  let stage: OidcStage;
  beforeAll(async () => {
    stage = await OidcStage.start();
  });
  afterAll(() => stage.stop());

  test('that is loaded again leads to the session that there is, and begins none', async () => {
    const jar = new CookieJar();
    const { url } = await stage.authorize(jar, 'ada-1');
    expect((await jar.open(url)).status).toBe(302);
    for (let i = 0; i < 2; i++) {
      const { status, headers } = await jar.open(url);
      expect([status, headers.get('location')]).toEqual([302, `${stage.base}/dashboard/#/`]);
      expect(headers.getSetCookie()).toEqual([]);
    }
    const another = new CookieJar();
    expectRefusal(await another.open(url), another, 401, /this sign-in is over/);
  });

  test('of one tab leaves the sign-in of another', async () => {
    const jar = new CookieJar();
    const first = await stage.authorize(jar, 'ada-1');
    // The provider knows the person now, and asks nothing.
    const isCallback = (url: string) => url.includes(CALLBACK);
    const second = await jar.follow(stage.base + BEGIN, {}, isCallback);
    const failed = new URL(first.url);
    failed.searchParams.set('code', 'x');
    expectRefusal(await jar.open(failed.href), jar, 401, /invalid_grant/);
    expect((await jar.open(second.url)).status).toBe(302);
    expect(await stage.session(jar)).toMatchObject({ person: { subject: 'ada-1' } });
  });

  test('with a used code is refused by the provider', async () => {
    const jar = new CookieJar();
    const used = new URL((await stage.authorize(jar, 'ada-1')).url);
    expect((await jar.open(used.href)).status).toBe(302);
    const attacker = new CookieJar();
    const fresh = new URL((await stage.authorize(attacker, 'bob-3')).url);
    fresh.searchParams.set('code', used.searchParams.get('code') ?? '');
    expectRefusal(await attacker.open(fresh.href), attacker, 401, /invalid_grant/);
  });

  test('with the code of somebody else is refused, because its verifier is missing', async () => {
    const victim = new URL((await stage.authorize(new CookieJar(), 'ada-1')).url);
    const attacker = new CookieJar();
    const own = new URL((await stage.authorize(attacker, 'bob-3')).url);
    own.searchParams.set('code', victim.searchParams.get('code') ?? '');
    expectRefusal(await attacker.open(own.href), attacker, 401, /invalid_grant/);
  });

  test('of another browser is refused, so that nobody is signed in as somebody else', async () => {
    const attacker = new CookieJar();
    const { url } = await stage.authorize(attacker, 'bob-3');
    const idle = new CookieJar();
    expectRefusal(await idle.open(url), idle, 401, /this sign-in is over: it began in another browser/);
    const victim = new CookieJar();
    await stage.authorize(victim, 'ada-1');
    expectRefusal(await victim.open(url), victim, 401, /this sign-in is over/);
  });

  test('without the right state is refused', async () => {
    for (const state of ['another', undefined]) {
      const jar = new CookieJar();
      const url = new URL((await stage.authorize(jar, 'ada-1')).url);
      if (state) url.searchParams.set('state', state);
      else url.searchParams.delete('state');
      expectRefusal(await jar.open(url.href), jar, 401, /this sign-in is over/);
    }
  });

  test('that names another issuer is refused', async () => {
    const jar = new CookieJar();
    const url = new URL((await stage.authorize(jar, 'ada-1')).url);
    url.searchParams.set('iss', 'https://other.example');
    expectRefusal(await jar.open(url.href), jar, 401, /cannot be trusted/);
  });

  test('after 10 minutes is refused', async () => {
    const jar = new CookieJar();
    const { url } = await stage.authorize(jar, 'ada-1');
    const [pending = '', ...others] = await stage.fleet.client.keys('kf:o:*');
    expect(await stage.fleet.client.pttl(pending)).toBeGreaterThan(500_000);
    expect(await stage.fleet.client.pttl(pending)).toBeLessThanOrEqual(600_000);
    for (const name of [pending, ...others]) await stage.fleet.client.pexpire(name, 0);
    expectRefusal(await jar.open(url), jar, 401, /took more than 10 minutes/);
  });

  test('of a person who declined at the provider says so', async () => {
    const jar = new CookieJar();
    const form = await jar.follow(stage.base + BEGIN);
    const [, abort = ''] = /href="([^"]+\/abort)"/.exec(form.text) ?? [];
    const page = await jar.follow(new URL(abort, form.url).href);
    expectRefusal(page, jar, 401, /access_denied/);
  });

  test('leads nowhere but to the dashboard, whatever the host and the query are', async () => {
    const jar = new CookieJar();
    const headers = { 'x-forwarded-host': 'evil.example', 'x-forwarded-proto': 'https' };
    const begun = await jar.open(
      `${stage.base}${BEGIN}?redirect_uri=https://evil.example&next=//evil.example`,
      {
        headers,
      },
    );
    const asked = new URL(begun.headers.get('location') ?? '');
    expect(asked.searchParams.get('redirect_uri')).toBe(stage.base + CALLBACK);
    expect(asked.href).not.toContain('evil');
    const { url } = await stage.authorize(jar, 'ada-1');
    const page = await jar.open(`${url}&next=//evil.example&redirect_uri=https://evil.example`, { headers });
    expect(page.headers.get('location')).toBe(`${stage.base}/dashboard/#/`);
  });

  test('needs a sign-in that this server began', async () => {
    for (const site of ['cross-site', 'same-site']) {
      const jar = new CookieJar();
      const page = await jar.open(stage.base + BEGIN, { headers: { 'sec-fetch-site': site } });
      expectRefusal(page, jar, 401, /another site opened this page/);
    }
    const jar = new CookieJar();
    const page = await jar.open(stage.base + BEGIN, { headers: { 'sec-fetch-site': 'same-origin' } });
    expect(page.status).toBe(302);
  });

  test('that fails counts for its address', async () => {
    const port = await freePort();
    const env = { ...settingsFor(stage.provider.issuer, port), FAILURES_PER_MINUTE: '3' };
    await stage.fleet.addControlPlane(env);
    const base = `http://127.0.0.1:${port}`;
    const jar = new CookieJar();
    const statuses: number[] = [];
    for (const path of [BEGIN, CALLBACK, BEGIN, CALLBACK, BEGIN])
      statuses.push((await jar.open(base + path)).status);
    expect(statuses).toEqual([302, 401, 302, 429, 429]);
  });
});
