import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
let base: string;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { FAILURES_PER_MINUTE: '20' } });
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(() => fleet.stop());

const PATH = '/dashboard/handover';
const CIPHERTEXT = 'c'.repeat(80);

async function post(
  path: string,
  headers: Record<string, string> = {},
  body: object | undefined = undefined,
) {
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await request(base + path, {
    method: 'POST',
    headers: { ...headers, ...json },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return {
    status: response.statusCode,
    headers: response.headers,
    // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
    body: (await response.body.json()) as any,
  };
}

async function signIn() {
  const { headers, body } = await post('/dashboard/session', {}, { rootKey: ROOT_KEY });
  const cookie = String(headers['set-cookie']).split(';')[0] ?? '';
  return { cookie, 'x-keyfence-csrf': body.csrfToken as string };
}

test('of many who open a link at the same time, one gets the secret', async () => {
  const headers = await signIn();
  const { body } = await post(PATH, headers, { ciphertext: CIPHERTEXT });
  const opened = await Promise.all(Array.from({ length: 10 }, () => post(`${PATH}/${body.id}`)));
  expect(opened.filter(({ status }) => status === 200).map((each) => each.body)).toEqual([
    { ciphertext: CIPHERTEXT },
  ]);
  for (const { status, body } of opened.filter(({ status }) => status !== 200))
    expect([status, body.error.message]).toEqual([
      404,
      'this link was used before, or is older than an hour',
    ]);
});

test('only a session makes links, and short ones', async () => {
  const headers = await signIn();
  const refused = async (from: Record<string, string>, body: object) => (await post(PATH, from, body)).status;
  const right = { ciphertext: CIPHERTEXT };
  expect(await refused({}, right)).toBe(401);
  expect(await refused({ authorization: `Bearer ${ROOT_KEY}` }, right)).toBe(401);
  expect(await refused({ cookie: headers.cookie }, right)).toBe(401);
  expect(await refused({ ...headers, 'sec-fetch-site': 'cross-site' }, right)).toBe(401);
  for (const ciphertext of ['', 'short', 'c'.repeat(1025), 'a secret <b> ........'])
    expect(await refused(headers, { ciphertext })).toBe(400);
  expect(await refused(headers, { ...right, more: 1 })).toBe(400);
  expect((await post(`${PATH}/..%2Fsession`)).status).toBe(400);
});

test('one root key makes at most 1,000 links', async () => {
  const headers = await signIn();
  const session = await request(`${base}/dashboard/session`, { headers: { cookie: headers.cookie } });
  const { rootKeyId } = (await session.body.json()) as { rootKeyId: string };
  await fleet.client.set(`kf:h:n:${rootKeyId}`, 999);
  expect((await post(PATH, headers, { ciphertext: CIPHERTEXT })).status).toBe(200);
  const { status, body } = await post(PATH, headers, { ciphertext: CIPHERTEXT });
  expect([status, body.error.code]).toEqual([429, 'RATE_LIMITED']);
});

test('whoever guesses ids is stopped', async () => {
  const answers: number[] = [];
  for (let i = 0; i < 30; i++) answers.push((await post(`${PATH}/${String(i).padStart(22, '0')}`)).status);
  expect(answers).toContain(404);
  expect(answers.at(-1)).toBe(429);
});
