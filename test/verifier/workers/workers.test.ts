import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';
import { Process } from '../../harness/processes.ts';
import { eventually, HOLDS_MS_MAX } from '../../harness/waiting.ts';

const WORKERS = 2;
const ROOT = join(import.meta.dirname, '..', '..', '..');
let fleet: Fleet;
let verifier: Process;
const agents: Agent[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { STATUS_PERIOD_MS: '100' } });
  verifier = new Process('verifier/main.ts', {
    ...{ REDIS_URL: fleet.redisUrl, WORKERS: String(WORKERS), STATUS_PERIOD_MS: '100' },
    // A busy machine is not what this is about.
    LOOKUP_WAIT_MS: '10000',
  });
  await verifier.start();
  await ready();
});
afterAll(async () => {
  await verifier.stop('SIGKILL');
  await Promise.all(agents.map((agent) => agent.destroy()));
  await fleet.stop();
});

const ready = () =>
  eventually(async () => workers().length === WORKERS && (await get('/readyz')).status === 200);

async function get(path: string) {
  const { statusCode, body } = await request(verifier.adminAddress + path);
  return { status: statusCode, text: await body.text() };
}

/** Asks on a new connection each time, unless an agent keeps some. */
async function ask(key: string, agent?: Agent): Promise<string> {
  const { statusCode, body } = await request(`${verifier.address}/v1/keys.verifyKey`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(agent ? {} : { connection: 'close' }) },
    body: JSON.stringify({ key }),
    headersTimeout: 2000,
    ...(agent ? { dispatcher: agent } : { reset: true }),
  });
  const answer = (await body.json()) as { code?: string };
  const { code } = answer;
  return statusCode === 200 ? String(code) : `HTTP ${statusCode} ${JSON.stringify(answer)}`;
}

/** Numbers of the processes that a process has started, as Linux tells. */
const childrenOf = (pid = 0): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
const workers = () => childrenOf(verifier.pid);

const sumOf = (text: string, metric: RegExp) =>
  text
    .split('\n')
    .filter((line) => metric.test(line))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
const verdicts = async () => sumOf((await get('/metrics')).text, /^keyfence_verdicts_total\{/);

test('each worker is a verifier of the fence, and a disabled key is refused by all', async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shared' });
  // Connections go to the workers in turn, once both listen.
  let questions = 0;
  await eventually(async () => {
    for (let i = 0; i < 4; i++, questions++) expect(await ask(key)).toBe('VALID');
    const { verifiers } = await fleet.ok('fleet.listVerifiers');
    return verifiers.filter(({ apis }: { apis: object[] }) => apis.length > 0).length === WORKERS;
  });
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: WORKERS });
  expect(await Promise.all(Array.from({ length: 20 }, () => ask(key)))).toEqual(Array(20).fill('DISABLED'));
  expect(await verdicts()).toBe(questions + 20);
  expect((await get('/metrics')).text).toMatch(/^process_resident_memory_bytes \d+/m);
});

test('SIGHUP replaces all workers without a lost request of a connection in use, and no counter goes back', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shared' });
  const before = workers();
  const countBefore = await verdicts();
  // One connection a caller, which is never idle: as long as it is used, it is closed by an answer that says so.
  const own = Array.from({ length: 4 }, () => new Agent({ connections: 1 }));
  agents.push(...own);
  const answers = new Map<string, number>();
  let isRunning = true;
  const callers = Array.from({ length: 8 }, async (_, i) => {
    let answer = 'VALID';
    // A caller ends with the first request that is lost.
    while (isRunning && answer === 'VALID') {
      answer = await ask(key, own[i]).catch((error: Error) => `lost: ${error.message}`);
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    }
  });
  const counts: number[] = [];
  const scraper = (async () => {
    while (isRunning) counts.push(await verdicts());
  })();
  try {
    verifier.signal('SIGHUP');
    await eventually(async () => {
      const now = workers();
      return now.length === WORKERS && now.every((pid) => !before.includes(pid));
    });
    expect((await get('/readyz')).status).toBe(200);
  } finally {
    isRunning = false;
    await Promise.allSettled([...callers, scraper]);
  }
  expect(Object.fromEntries(answers)).toEqual({ VALID: answers.get('VALID') });
  expect(counts).toEqual(counts.toSorted((a, b) => a - b));
  expect(counts.length).toBeGreaterThan(3);
  expect(await verdicts()).toBe(countBefore + (answers.get('VALID') ?? 0));
});

test('a worker that is killed is replaced, and the other answers meanwhile', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shared' });
  const [victim] = workers();
  if (victim === undefined) throw new Error('there is no worker');
  process.kill(victim, 'SIGKILL');
  for (let i = 0; i < 10; i++) {
    // A connection that the killed one had is cut, or waits for an answer that nobody gives.
    const answer = await ask(key).catch(() => 'cut');
    expect(['VALID', 'cut']).toContain(answer);
  }
  await eventually(async () => {
    const now = workers();
    return now.length === WORKERS && !now.includes(victim);
  });
  expect(await ask(key)).toBe('VALID');
});

test('without its main process no worker stays', async () => {
  const alone = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl, WORKERS: '2' });
  await alone.start();
  const pids = childrenOf(alone.pid);
  await alone.stop('SIGKILL');
  const isThere = (pid: number) => spawnSync('kill', ['-0', String(pid)]).status === 0;
  await eventually(async () => !pids.some(isThere));
});

test('SIGTERM ends all of them with status 0', async () => {
  const pids = workers();
  expect(await verifier.stop('SIGTERM')).toBe(0);
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow();
});

test('a setting that several processes cannot share is refused', () => {
  const env = { PATH: process.env['PATH'], WORKERS: '2', LISTEN_UNIX: '/tmp/never.sock' };
  const { status, stderr } = spawnSync(process.execPath, ['verifier/main.ts'], {
    cwd: ROOT,
    env,
    encoding: 'utf8',
  });
  expect(status).toBe(78);
  expect(stderr).toContain('LISTEN_UNIX: one process listens there, so WORKERS must be 1');
});

test('a port in use is said once, and ends all', () => {
  const { port } = new URL(fleet.controlPlanes[0]?.address ?? '');
  const env = {
    PATH: process.env['PATH'],
    WORKERS: '2',
    PORT: port,
    ADMIN_PORT: '0',
    REDIS_URL: fleet.redisUrl,
  };
  const run = () =>
    execFileSync(process.execPath, ['verifier/main.ts'], {
      cwd: ROOT,
      env,
      stdio: 'pipe',
      timeout: HOLDS_MS_MAX,
    });
  expect(run).toThrow(/PORT: .* is in use by another process/);
});
