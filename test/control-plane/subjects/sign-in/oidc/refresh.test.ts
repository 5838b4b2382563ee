import type { ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { parsePersonRules, personOf } from '../../../../../control-plane/core/callers/person.ts';
import {
  PersonSessions,
  REFRESH_MS,
  UNANSWERED_MS_MAX,
} from '../../../../../control-plane/core/callers/person-sessions.ts';
import { systemClock } from '../../../../../shared/process/clock.ts';
import { createLogger } from '../../../../../shared/process/log.ts';
import { RedisNodes } from '../../../../../shared/redis/redis.ts';
import { sessionRecord } from '../../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../../shared/rules/key-format.ts';
import { redisConfig } from '../../../../harness/config.ts';
import { Fleet } from '../../../../harness/fleet.ts';
import { freePort } from '../../../../harness/ports.ts';
import { PATIENT } from '../../../../harness/waiting.ts';
import { CookieJar } from './cookie-jar.ts';
import { HostileProvider } from './hostile-provider.ts';
import { OidcStage, settingsFor } from './stage.ts';

const REFRESH_TOKEN = 'a-refresh-token-of-eve';

/** Makes as if every session were older: the provider's last answer, and the time of the next question. */
async function age(fleet: Fleet, ms: number): Promise<void> {
  for (const name of await fleet.client.keys('kf:s:*')) {
    const value = (await fleet.client.get(name)) ?? '';
    const at = value.indexOf('{');
    const { answeredAt, dueAt, ...others } = JSON.parse(value.slice(at));
    const older = JSON.stringify({ ...others, answeredAt: answeredAt - ms, dueAt: dueAt - ms });
    await fleet.client.set(name, value.slice(0, at) + older, 'PX', 60_000);
  }
}

let stage: OidcStage;
let hostile: HostileProvider;
let eve: { readonly fleet: Fleet; readonly base: string };
beforeAll(async () => {
  stage = await OidcStage.start({ refreshes: true });
  hostile = await HostileProvider.start();
  const port = await freePort();
  const fleet = await Fleet.start({ verifiers: 0, env: settingsFor(hostile.issuer, port) });
  eve = { fleet, base: `http://127.0.0.1:${port}` };
});
afterEach(async () => {
  hostile.reset();
  for (const { client } of [stage.fleet, eve.fleet])
    for (const name of await client.keys('kf:s:*')) await client.del(name);
});
afterAll(async () => {
  await stage.stop();
  await eve.fleet.stop();
  await hostile.stop();
});

test('groups that change at the provider apply after 5 minutes, without another sign-in', async () => {
  const { jar } = await stage.signIn('ada-1');
  stage.provider.accounts.set('ada-1', { name: 'Ada', groups: ['key support'] });
  expect((await stage.session(jar)).permissions).toContain('*');
  await age(stage.fleet, REFRESH_MS);
  const { permissions } = await stage.session(jar);
  expect(permissions).toContain('api.*.update_key');
  expect(permissions).not.toContain('*');
  // The provider gave a new refresh token, which is used the next time.
  stage.provider.accounts.set('ada-1', { name: 'Ada', groups: ['keyfence-admins'] });
  await age(stage.fleet, REFRESH_MS);
  expect((await stage.session(jar)).permissions).toContain('*');
});

test('a person who lost the last group, or left, is signed out', async () => {
  for (const account of [{ name: 'Sue', groups: [] }, undefined]) {
    stage.provider.accounts.set('sue-2', { name: 'Sue', groups: ['key support'] });
    const { jar } = await stage.signIn('sue-2');
    if (account) stage.provider.accounts.set('sue-2', account);
    else stage.provider.accounts.delete('sue-2');
    await age(stage.fleet, REFRESH_MS);
    expect((await stage.session(jar)).permissions).toBeUndefined();
    expect(await stage.fleet.client.keys('kf:s:*')).toEqual([]);
  }
});

test('simultaneous calls ask the provider once', async () => {
  const { jar } = await stage.signIn('ada-1');
  const other = await stage.fleet.addControlPlane({ ...stage.env, PORT: '0' });
  const { csrfToken } = await stage.session(jar);
  await age(stage.fleet, REFRESH_MS);
  const before = stage.provider.paths.filter((path) => path === '/token').length;
  const headers = { 'x-keyfence-csrf': csrfToken };
  const calls = Array.from({ length: 20 }, (_, i) =>
    jar.open(`${i % 2 ? stage.base : other.address}/v1/apis.listApis`, { headers }),
  );
  expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]));
  expect(stage.provider.paths.filter((path) => path === '/token').length).toBe(before + 1);
});

/** Signs in at the provider of ours. */
async function signIn(): Promise<CookieJar> {
  const jar = new CookieJar();
  const begun = await jar.open(`${eve.base}/dashboard/session/oidc/begin`);
  const asked = new URL(begun.headers.get('location') ?? '').searchParams;
  hostile.nonce = asked.get('nonce') ?? '';
  hostile.fields = { refresh_token: REFRESH_TOKEN };
  await jar.open(`${eve.base}/dashboard/session/oidc/callback?code=c&state=${asked.get('state')}`);
  return jar;
}

const permissions = async (jar: CookieJar) =>
  JSON.parse((await jar.open(`${eve.base}/dashboard/session`)).text).permissions;

test.each<[string, () => HostileProvider['instead'][string] | undefined]>([
  ['hangs up', () => (response) => response.destroy()],
  ['fails', () => (response) => hostile.json(response, { error: 'server_error' }, 500)],
  ['is overloaded', () => (response) => hostile.json(response, { error: 'slow_down' }, 429)],
  ['answers rubbish', () => (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('Hi')],
])('after 1 h a provider that %s ends sessions', async (_what, answer) => {
  const jar = await signIn();
  const respond = answer();
  if (respond) hostile.instead = { '/token': respond };
  await age(eve.fleet, UNANSWERED_MS_MAX - 60_000);
  expect(await permissions(jar)).toContain('api.*.update_key');
  // It is not asked again before a minute has passed.
  const { length } = hostile.requests;
  expect(await permissions(jar)).toContain('api.*.update_key');
  expect(hostile.requests).toHaveLength(length);
  await age(eve.fleet, 120_000);
  expect(await permissions(jar)).toBeUndefined();
});

test.each<[string, () => void]>([
  [
    'refuses',
    () =>
      Object.assign(hostile, {
        instead: {
          '/token': (response: ServerResponse) => hostile.json(response, { error: 'invalid_grant' }, 400),
        },
      }),
  ],
  ['answers about somebody else', () => Object.assign(hostile, { idClaims: { sub: 'mallory-2' } })],
  ['answers for another audience', () => Object.assign(hostile, { idClaims: { aud: 'another-client' } })],
  [
    'signs with a key that is not its own',
    () => Object.assign(hostile, { signsWith: hostile.otherKeys.privateKey }),
  ],
  ['says nothing of the person', () => Object.assign(hostile, { fields: { id_token: undefined } })],
])('ends at the next refresh if the provider %s', async (_what, corrupt) => {
  const jar = await signIn();
  expect(await permissions(jar)).toContain('api.*.update_key');
  corrupt();
  await age(eve.fleet, REFRESH_MS);
  expect(await permissions(jar)).toBeUndefined();
  expect(await eve.fleet.client.keys('kf:s:*')).toEqual([]);
});

test('a session ended during a refresh stays ended', async () => {
  const jar = await signIn();
  const { sessionId } = (await eve.fleet.ok('rootKeys.listSessions')).sessions.at(-1);
  await age(eve.fleet, REFRESH_MS);
  let answer = () => undefined as unknown;
  const isAsked = new Promise<void>((resolve) => {
    hostile.instead = {
      '/token': (response) => {
        answer = () =>
          hostile.json(response, { access_token: 'a', token_type: 'Bearer', id_token: hostile.idToken });
        resolve();
      },
    };
  });
  const pending = permissions(jar);
  await isAsked;
  await eve.fleet.ok('rootKeys.endSession', { sessionId });
  answer();
  expect(await pending).toBeUndefined();
  expect(await eve.fleet.client.keys('kf:s:*')).toEqual([]);
});

test('never sends the old token after a refresh', async () => {
  const config = redisConfig({ REDIS_URL: eve.fleet.redisUrl, ...PATIENT });
  const nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
  try {
    const person = personOf('https://id.example/', '1', {});
    const answer = { person, attributes: { groups: ['a'] }, tokens: { refreshToken: REFRESH_TOKEN } };
    let refreshes = 0;
    const sessions = new PersonSessions({
      ...{ nodes, clock: systemClock, issuer: 'https://id.example/', idleMs: 60_000 },
      rules: parsePersonRules('groups=a read-only'),
      refresh: async () => {
        refreshes++;
        return answer;
      },
    });
    const token = 'x'.repeat(43);
    const name = sessionRecord(hashSecret(token));
    await eve.fleet.client.set(name, `1 ${sessions.textOf(token, answer)}`);
    await age(eve.fleet, REFRESH_MS);
    const read = (await eve.fleet.client.get(name)) ?? '';
    await sessions.callerOf(token, read);
    expect((await sessions.callerOf(token, read)).id).toBe(person.personId);
    expect(refreshes).toBe(1);
  } finally {
    await nodes.close();
  }
});

test('Redis has the tokens of the provider only encrypted, with a key that it does not have', async () => {
  const jar = await signIn();
  const [name = ''] = await eve.fleet.client.keys('kf:s:*');
  const value = (await eve.fleet.client.get(name)) ?? '';
  const token = jar.of(eve.base).get('keyfence_session') ?? 'none';
  for (const secret of [REFRESH_TOKEN, hostile.idToken.split('.')[0] ?? '', token]) {
    expect(value).not.toContain(secret);
    expect(value).not.toContain(Buffer.from(secret).toString('base64url'));
  }
  // Claims that no line of OIDC_PERMISSIONS names are not kept.
  expect(Object.keys(JSON.parse(value.slice(value.indexOf('{'))).attributes)).toEqual(['groups', 'email']);
});
