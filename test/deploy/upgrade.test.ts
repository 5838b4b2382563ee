import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../harness/built.ts';
import { keepWords } from '../harness/last-words.ts';
import { Process } from '../harness/processes.ts';
import { eventually } from '../harness/waiting.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';
import { released } from './upgrade/released.ts';

/**
 * The released 0.2.0 becomes this release, one process after the other, under load and with a disable after each step, in the
 * order of deploy/operations.md; and goes back, in the opposite order. Redis has the users of deploy/redis.
 */
const ROOT_KEY = 'upgrade-root-key-0123456789abcdef0123456789';
const LEASE_MS = '2000';
const [A, B] = [0, 1] as const;

let old: string;
let files: OwnFiles;
let redis: OwnRedis;
const controlPlanes: Process[] = [];
const verifiers: Process[] = [];

beforeAll(async () => {
  old = released();
  files = new OwnFiles(() => readFileSync(join(old, 'deploy/redis/users.acl'), 'utf8'));
  redis = await OwnRedis.start(files);
  for (const _ of [A, B]) {
    controlPlanes.push(new Process('control-plane/main.ts', envOf('control-plane'), old));
    verifiers.push(new Process('verifier/main.ts', envOf('verifier'), old));
  }
  for (const process of [...controlPlanes, ...verifiers]) await ready(process);
  await ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(async () => {
  await Promise.all([...controlPlanes, ...verifiers].map((process) => process.stop('SIGKILL')));
  await redis?.stop();
  files?.remove();
});

const envOf = (user: 'control-plane' | 'verifier') => ({
  REDIS_URL: `redis://127.0.0.1:${redis.port}`,
  REDIS_USERNAME: user,
  REDIS_PASSWORD: user,
  DRAIN_MS: '0',
  ...(user === 'control-plane' ? { LEASE_MS, ROOT_KEY } : {}),
  LOG_LEVEL: 'info',
});

/** Starts a process, and waits until it is ready. */
async function ready(process: Process): Promise<void> {
  await process.start();
  await eventually(async () => {
    const { statusCode, body } = await request(`${process.adminAddress}/readyz`);
    await body.dump();
    return statusCode === 200;
  }, 'it is not ready');
}

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape
  readonly body: any;
}

async function send(url: string, body: object): Promise<Answer> {
  const { statusCode, body: answer } = await request(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${ROOT_KEY}` },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  keepWords('calls', `${url} ${JSON.stringify(body)} → ${statusCode} ${text}`);
  return { status: statusCode, body: JSON.parse(text) };
}

/** A call of an admin, at either control plane. */
async function call(operation: string, body: object, at: number = A): Promise<Answer> {
  try {
    return await send(`${controlPlanes[at]?.address}/v1/${operation}`, body);
  } catch {
    return send(`${controlPlanes[1 - at]?.address}/v1/${operation}`, body);
  }
}

async function ok(operation: string, body: object, at?: number) {
  const answer = await call(operation, body, at);
  if (answer.status !== 200) throw new Error(`${operation}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

const ask = (key: string, at: number) => send(`${verifiers[at]?.address}/v1/keys.verifyKey`, { key });

/** A question as gateways send it that know two verifiers: to the other one if the first cannot answer. */
async function verdict(key: string, first: number): Promise<string> {
  for (const at of [first, 1 - first]) {
    const answer = await ask(key, at).catch(() => undefined);
    if (answer?.status === 200) return answer.body.code;
  }
  return 'nobody answered';
}

/** Callers that ask about a key in use and about disabled ones all the time, until `stop`. */
function load(good: string) {
  const disabled: string[] = [];
  const counts = { asked: 0, wrong: [] as string[] };
  let running = true;
  const callers = [A, B].map(async (at) => {
    while (running) {
      const code = await verdict(good, at);
      if (code !== 'VALID') counts.wrong.push(`${code} of a good key`);
      const bad = disabled.at(-1);
      if (bad !== undefined) {
        const stopped = await verdict(bad, at);
        if (stopped !== 'DISABLED') counts.wrong.push(`${stopped} of a disabled key`);
      }
      counts.asked++;
    }
  });
  return {
    counts,
    disabled,
    async stop() {
      running = false;
      await Promise.all(callers);
    },
  };
}

/** Makes a key that both verifiers accept, and disables it. */
async function disable(disabled: string[], at: number): Promise<void> {
  const { key, keyId } = await ok('keys.createKey', { apiId: 'shop', name: 'a key' }, at);
  for (const verifier of [A, B])
    await eventually(async () => (await ask(key, verifier)).body.code === 'VALID', 'not accepted');
  const { propagation } = await ok('keys.updateKey', { keyId, enabled: false }, at);
  expect(propagation.state).toBe('complete');
  disabled.push(key);
  for (const verifier of [A, B]) expect((await ask(key, verifier)).body.code).toBe('DISABLED');
}

/** Restarts a process as another release. */
async function become(process: Process, root: string): Promise<void> {
  expect(await process.stop('SIGTERM')).toBe(0);
  process.root = root;
  await ready(process);
}

const applyUsers = () => {
  copyFileSync(join(ROOT, 'deploy/redis/users.acl'), join(files.folder, 'files/users.acl'));
  execFileSync('sh', [join(ROOT, 'deploy/redis/apply.sh')], {
    env: { ...redis.env, SECRETS: join(files.folder, 'secrets') },
    stdio: 'pipe',
  });
};

/** Fields of keys that 0.2.0 does not know; each needs new verifiers. */
const NEW_FEATURES: readonly object[] = [
  { allowedOrigins: ['https://app.example.com'] },
  { concurrency: [{ name: 'running', limit: 5 }] },
  { ratelimits: [{ name: 'monthly', limit: 100, interval: 'month' }] },
  { remaining: 100, thresholds: [10] },
];

test('a verifier of this release needs the new users.acl first, and says so', async () => {
  const { status, stderr } = spawnSync(process.execPath, [join(ROOT, 'verifier/main.ts')], {
    env: { ...envOf('verifier'), PORT: '0', ADMIN_PORT: '0' },
    encoding: 'utf8',
  });
  expect(status).toBe(78);
  expect(stderr).toContain('its user lacks rights');
});

test('becomes this release, and goes back, without a wrong answer', async () => {
  const { key: good } = await ok('keys.createKey', { apiId: 'shop', name: 'in use' });
  for (const at of [A, B]) await eventually(async () => (await ask(good, at)).status === 200);
  const { counts, disabled, stop } = load(good);
  try {
    await disable(disabled, A);

    // The page names this order.
    const page = readFileSync(join(ROOT, 'deploy/operations.md'), 'utf8');
    const steps = page.slice(page.indexOf('## Upgrade and rollback'), page.indexOf('### What an older'));
    expect(steps).toMatch(/apply\.sh[\s\S]*verifiers[\s\S]*control planes/);
    applyUsers();
    await disable(disabled, B);
    for (const at of [A, B]) {
      await become(verifiers[at] as Process, ROOT);
      await disable(disabled, at);
    }
    // An old control plane writes nothing new, and a new one nothing that an old verifier does not understand.
    await become(controlPlanes[A] as Process, ROOT);
    await disable(disabled, A);
    await disable(disabled, B);
    await become(controlPlanes[B] as Process, ROOT);
    await disable(disabled, B);
    const made = [];
    for (const fields of NEW_FEATURES)
      made.push(await ok('keys.createKey', { apiId: 'shop-new', ...fields }));
    for (const { key } of made) expect((await ask(key, A)).status).toBe(200);

    // Back: control planes first. An API without anything new is served by old verifiers too, and no other.
    await become(controlPlanes[A] as Process, old);
    await become(controlPlanes[B] as Process, old);
    await disable(disabled, A);
    for (const at of [A, B]) {
      await become(verifiers[at] as Process, old);
      await disable(disabled, at);
      for (const { key } of made) expect((await ask(key, at)).status).toBe(503);
    }
  } finally {
    await stop();
  }
  expect(counts.wrong).toEqual([]);
  expect(counts.asked).toBeGreaterThan(100);
  for (const key of disabled)
    for (const at of [A, B]) expect((await ask(key, at)).body.code).toBe('DISABLED');
});
