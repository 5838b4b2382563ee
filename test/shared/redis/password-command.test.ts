import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { PasswordCommand } from '../../../shared/redis/password-command.ts';
import { redisFaults } from '../../../shared/redis/redis-settings.ts';
import { redisConfig } from '../../harness/config.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';

/** A program whose answers are scripted, at a time that a test sets. */
function scripted(...answers: (string | Error)[]) {
  const state = { nowMs: 1_000_000, runs: 0 };
  const clock = { ...systemClock, wallMs: () => state.nowMs };
  const run = async () => {
    const answer = answers[state.runs++] ?? '';
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return { state, command: new PasswordCommand('print role', clock, run) };
}

test('a text is the password for 60 s', async () => {
  const { state, command } = scripted('one\nmore\n', 'two\r\n');
  expect(await Promise.all([command.password(), command.password()])).toEqual(['one', 'one']);
  state.nowMs += 59_999;
  expect(await command.password()).toBe('one');
  state.nowMs += 1;
  expect(await command.password()).toBe('two');
  expect(state.runs).toBe(2);
});

test('JSON says how long a password is used', async () => {
  const { state, command } = scripted(
    JSON.stringify({ password: 'one', expiresAt: 1_010_000 }),
    JSON.stringify({ password: 'two', expiresAt: new Date(1_100_000).toISOString() }),
    'three',
  );
  expect(await command.password()).toBe('one');
  state.nowMs = 1_007_999;
  expect(await command.password()).toBe('one');
  state.nowMs = 1_008_000;
  expect(await command.password()).toBe('two');
  state.nowMs = 1_098_000;
  expect(await command.password()).toBe('three');
});

test('a refused password is asked for again', async () => {
  const { state, command } = scripted('one', 'two');
  expect(await command.password()).toBe('one');
  expect(await command.password('one')).toBe('two');
  expect(await command.password('one')).toBe('two');
  expect(state.runs).toBe(2);
});

test.each([
  ['', /must print the password in its first line$/],
  ['{"password":"s3cret"', /is not JSON$/],
  ['{"expiresAt":1}', /password: must be a text, not empty$/],
  ['{"password":"s3cret"}', /expiresAt: must be /],
  ['{"password":"s3cret","expiresAt":"soon"}', /expiresAt: must be /],
  [new Error('it failed (1)'), /^REDIS_PASSWORD_COMMAND: it failed \(1\)$/],
])('%s is an error that shows no secret, and the next run counts', async (answer, message) => {
  const { command } = scripted(answer, 'good');
  const failure = await command.password().catch((error: Error) => error.message);
  expect(failure).toMatch(message);
  expect(failure).not.toContain('s3cret');
  expect(await command.password()).toBe('good');
});

function isRunning(pid: number): boolean {
  try {
    // One that has ended, and that nobody waits for, is still in the list.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

test('a program that fails, prints too much or is missing is told', async () => {
  const folder = scratch('password-command');
  const program = (name: string, text: string) => {
    const file = join(folder, name);
    writeFileSync(file, `#!/bin/sh\n${text}\n`);
    chmodSync(file, 0o755);
    return new PasswordCommand(`${file} a  b`, systemClock).password().catch((error: Error) => error.message);
  };
  expect(await program('good', 'echo "$#$2"')).toBe('2b');
  expect(await program('failing', 'echo s3cret >&2; exit 3')).toBe('REDIS_PASSWORD_COMMAND: it failed (3)');
  const [lines, long] = ['endless', 'long'].map((name) =>
    program(name, name === 'long' ? 'echo good; head -c 70000 /dev/zero' : 'yes'),
  );
  for (const message of await Promise.all([lines, long]))
    expect(message).toBe('REDIS_PASSWORD_COMMAND: it printed more than 64 KiB');
  // A program that it has started hangs, and keeps its output open.
  const pid = join(folder, 'pid');
  expect(await program('hanging', `sleep 600 & echo $! >${pid}; echo good`)).toBe(
    'REDIS_PASSWORD_COMMAND: no answer within 5 s',
  );
  const hanging = Number(readFileSync(pid, 'utf8'));
  await eventually(() => !isRunning(hanging), 'it outlives the program');
  const missing = new PasswordCommand(join(folder, 'none'), systemClock);
  await expect(missing.password()).rejects.toThrow('REDIS_PASSWORD_COMMAND: it failed (ENOENT)');
});

test('there is one password only', () => {
  const faultsOf = (settings: Record<string, string>) =>
    redisFaults(redisConfig({ REDIS_PASSWORD_COMMAND: 'print', ...settings }));
  expect(faultsOf({})).toEqual([]);
  const fault = [expect.stringMatching(/^REDIS_PASSWORD_COMMAND: there is another password/)];
  expect(faultsOf({ REDIS_PASSWORD: 'x' })).toEqual(fault);
  expect(faultsOf({ REDIS_URL: 'redis://a:b@127.0.0.1:6379' })).toEqual(fault);
});
