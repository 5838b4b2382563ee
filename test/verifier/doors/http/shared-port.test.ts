import { Agent, request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { freePort } from '../../../harness/ports.ts';
import { Process } from '../../../harness/processes.ts';
import { eventually } from '../../../harness/waiting.ts';

let fleet: Fleet;
let key: string;
let port: number;
const verifiers: Process[] = [];

const POST = { method: 'POST', headers: { 'content-type': 'application/json' } } as const;
const newVerifier = () => {
  const verifier = new Process('verifier/main.ts', {
    ...{ REDIS_URL: fleet.redisUrl, API_IDS: 'shared', REUSE_PORT: 'true', PORT: String(port) },
  });
  verifiers.push(verifier);
  return verifier;
};
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  ({ key } = await fleet.ok('keys.createKey', { apiId: 'shared' }));
  port = await freePort();
  for (let i = 0; i < 3; i++) await newVerifier().start();
  await eventually(async () => (await Promise.all(verifiers.map(isReady))).every(Boolean));
});
afterAll(async () => {
  for (const verifier of verifiers) await verifier.stop('SIGKILL');
  await fleet.stop();
});

async function isReady({ adminAddress }: Process): Promise<boolean> {
  const { statusCode, body } = await request(`${adminAddress}/readyz`);
  await body.dump();
  return statusCode === 200;
}

/** Asks at the shared port, on a connection of its own or of the agent. */
async function ask(dispatcher?: Agent): Promise<string> {
  const { statusCode, body } = await request(`http://127.0.0.1:${port}/v1/keys.verifyKey`, {
    ...POST,
    body: JSON.stringify({ key }),
    ...(dispatcher ? { dispatcher } : { reset: true }),
  });
  const { code } = (await body.json()) as { code?: string };
  return statusCode === 200 ? String(code) : `HTTP ${statusCode}`;
}

/** Verdicts that each process has given. */
const verdicts = () =>
  Promise.all(
    verifiers.map(async ({ adminAddress }) => {
      const { body } = await request(`${adminAddress}/metrics`);
      const lines = (await body.text()).matchAll(/^keyfence_verdicts_total\{.*?\} (\d+)/gm);
      return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
    }),
  );

test('a disable waits for all who share a port', async () => {
  await eventually(async () => {
    expect(await ask()).toBe('VALID');
    return (await verdicts()).every((count) => count > 0);
  });
  const { key: other, keyId } = await fleet.ok('keys.createKey', { apiId: 'shared' });
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'complete', verifiers: 3 });
  const body = JSON.stringify({ key: other });
  for (let i = 0; i < 20; i++) {
    const answer = await request(`http://127.0.0.1:${port}/v1/keys.verifyKey`, {
      ...POST,
      body,
      reset: true,
    });
    expect(await answer.body.json()).toMatchObject({ code: 'DISABLED' });
  }
});

test('restarts lose no request on a connection', async () => {
  const agents = Array.from({ length: 8 }, () => new Agent({ connections: 1 }));
  const answers = new Map<string, number>();
  // A connection that opens while a process stops to listen may be reset; these are open by then.
  for (const agent of agents) expect(await ask(agent)).toBe('VALID');
  let isRunning = true;
  const callers = agents.map(async (agent) => {
    let answer = 'VALID';
    // A caller ends with the first request that is lost.
    while (isRunning && answer === 'VALID') {
      answer = await ask(agent).catch((error: Error) => `lost: ${error.message}`);
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    }
  });
  try {
    for (const verifier of verifiers) {
      const before = answers.get('VALID') ?? 0;
      expect(await verifier.stop('SIGTERM')).toBe(0);
      await verifier.start();
      await eventually(() => isReady(verifier));
      expect(answers.get('VALID')).toBeGreaterThan(before);
    }
  } finally {
    isRunning = false;
    await Promise.allSettled(callers);
    await Promise.all(agents.map((agent) => agent.destroy()));
  }
  expect(Object.fromEntries(answers)).toEqual({ VALID: answers.get('VALID') });
  expect(new Set(verifiers.map(({ address }) => new URL(address).port))).toEqual(new Set([String(port)]));
});
