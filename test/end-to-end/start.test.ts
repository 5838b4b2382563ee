import { type ChildProcess, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { envOfStart, npmStartOrEnd } from '../harness/npm-start.ts';
import { eventually } from '../harness/waiting.ts';

let data: string;
let env: NodeJS.ProcessEnv;
let started: ChildProcess | undefined;

beforeEach(async () => {
  data = mkdtempSync(join(tmpdir(), 'keyfence-start-'));
  env = await envOfStart(data);
});
afterEach(async () => {
  for (const pid of processesOf(data)) process.kill(pid, 'SIGKILL');
  rmSync(data, { recursive: true });
});

/** `npm start`, up to the text that says it is ready. */
async function npmStart(): Promise<string> {
  const { child, output } = await npmStartOrEnd(env);
  started = child;
  expect(output).toContain('Keyfence is ready.');
  expect(output).toMatch(/^ {2}Redis +unix:\/\/\S+redis\.sock {3}\(REDIS_URL/m);
  return output;
}

/** The commands of the printed walk, as somebody would copy them. */
const walkOf = (output: string) =>
  output.slice(output.indexOf('Try it:'), output.indexOf('Ctrl-C')).split('\n').slice(1).join('\n');
const sh = (script: string) => execFileSync('sh', ['-ec', script], { encoding: 'utf8', env });

test('npm start works as its printed walk says', async () => {
  const walk = walkOf(await npmStart());
  const answers = sh(`${walk}\necho "KEY $KEY"`);
  expect([...answers.matchAll(/"code":"(\w+)"/g)].map(([, code]) => code)).toEqual([
    'VALID',
    'DISABLED',
    'VALID',
  ]);
  expect(answers).toContain('"enabled":false');
  const key = /^KEY (\w+)$/m.exec(answers)?.[1] ?? '';
  expect(processesOf(data).length).toBeGreaterThanOrEqual(1);

  // Ctrl-C reaches the whole foreground process group.
  process.kill(-(started?.pid ?? 0), 'SIGINT');
  await eventually(() => started?.exitCode !== null || started?.signalCode !== null);
  await eventually(() => processesOf(data).length === 0);

  await npmStart();
  const again = sh(
    `curl -s http://127.0.0.1:${env['VERIFIER_PORT']}/v1/keys.verifyKey -H 'content-type: application/json' -d '{"key":"${key}"}'`,
  );
  expect(JSON.parse(again)).toMatchObject({ valid: true });
});

/** Facts that the first of them writes of itself. */
const running = () => JSON.parse(readFileSync(join(data, 'running.json'), 'utf8'));
const codeOf = (key: string) =>
  JSON.parse(
    sh(
      `curl -s http://127.0.0.1:${env['VERIFIER_PORT']}/v1/keys.verifyKey -H 'content-type: application/json' -d '{"key":"${key}"}'`,
    ),
  ).code;

test('a second npm start leaves the first alone', async () => {
  const answers = sh(`${walkOf(await npmStart())}\necho "KEY $KEY"`);
  const key = /^KEY (\w+)$/m.exec(answers)?.[1] ?? '';
  const { pid, redisUrl, controlPlane } = running();
  const before = processesOf(data);

  const sameFolder = await npmStartOrEnd(env);
  expect(sameFolder.child.exitCode).toBe(1);
  expect(sameFolder.output).toContain(`another npm start (process ${pid}, at ${controlPlane} and `);
  const elsewhere = mkdtempSync(join(tmpdir(), 'keyfence-start-'));
  const samePorts = await npmStartOrEnd({ ...env, KEYFENCE_DATA: elsewhere });
  rmSync(elsewhere, { recursive: true });
  expect(samePorts.child.exitCode).toBe(1);
  expect(samePorts.output).toContain(
    `in use on 127.0.0.1: port ${env['CONTROL_PLANE_PORT']} (CONTROL_PLANE_PORT)`,
  );
  expect(samePorts.output).toContain(`${env['VERIFIER_ADMIN_PORT']} (VERIFIER_ADMIN_PORT)`);
  for (const { output } of [sameFolder, samePorts]) {
    expect(output).not.toMatch(/is ready|root key/);
    expect(output, 'a stack').not.toMatch(/^\s+at /m);
  }

  expect(processesOf(data)).toEqual(before);
  expect(running()).toMatchObject({ pid, redisUrl });
  expect(existsSync(redisUrl.replace('unix://', ''))).toBe(true);
  expect(codeOf(key)).toBe('VALID');
});

test('names the settings of impossible ports', async () => {
  const { VERIFIER_PORT = '' } = env;
  const ended = await npmStartOrEnd({
    ...env,
    CONTROL_PLANE_PORT: '3.5',
    VERIFIER_ADMIN_PORT: '0',
    PORT: '8080',
  });
  expect(ended.child.exitCode).toBe(78);
  expect(ended.output).toContain('CONTROL_PLANE_PORT: "3.5" is not allowed (integer 1..65535)');
  expect(ended.output).toContain('VERIFIER_ADMIN_PORT: "0" is not allowed');
  const shared = await npmStartOrEnd({ ...env, CONTROL_PLANE_PORT: VERIFIER_PORT });
  expect(shared.child.exitCode).toBe(78);
  expect(shared.output).toContain(`VERIFIER_PORT: ${VERIFIER_PORT} is the port of CONTROL_PLANE_PORT too`);
  for (const { output } of [ended, shared]) expect(output, 'a stack').not.toMatch(/^\s+at /m);
});

test('names unused settings, in words for people', async () => {
  env = { ...env, PORT: '8080', LOG_LEVEL: 'info' };
  const output = await npmStart();
  expect(output).toContain(
    'keyfence: PORT is not used by npm start, which starts two processes: set CONTROL_PLANE_PORT and VERIFIER_PORT',
  );
  expect(output).toMatch(/^verifier: verifier listening \(address http:/m);
  expect(output).toMatch(/^control plane: /m);
  expect(output, 'a line for machines').not.toMatch(/^\{/m);
});

test('begins again with the same keys after kill -9', async () => {
  const answers = sh(`${walkOf(await npmStart())}\necho "KEY $KEY"`);
  const key = /^KEY (\w+)$/m.exec(answers)?.[1] ?? '';
  process.kill(running().pid, 'SIGKILL');
  await npmStart();
  expect(codeOf(key)).toBe('VALID');
});

test('killing npm leaves no process behind', async () => {
  await npmStart();
  const pids = processesOf(data);
  expect(pids.length).toBeGreaterThanOrEqual(3);
  process.kill(started?.pid ?? 0, 'SIGKILL');
  await eventually(() => pids.every((pid) => !runs(pid)));
});

/** Every process whose environment or arguments name this data directory, npm and its shell apart. */
function processesOf(directory: string): number[] {
  return psLines(directory)
    .filter((line) => /redis-server|\/main\.ts|start\.ts/.test(line))
    .map((line) => Number.parseInt(line, 10));
}

function psLines(directory: string): string[] {
  const lines = execFileSync('ps', ['axeww', '-o', 'pid=,command='], { encoding: 'utf8' }).split('\n');
  return lines.filter((line) => line.includes(directory));
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
