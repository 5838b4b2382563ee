import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createVerifierServer } from '../../../../verifier/verifier-server.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { verifyKey, Wire } from '../../../harness/wire.ts';

let folder: string;
let path: string;
const processes = new Set<ChildProcess>();

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'keyfence-'));
  path = join(folder, 'verifier.sock');
});

afterEach(async () => {
  for (const holder of processes) await killed(holder);
  rmSync(folder, { recursive: true });
});

const create = () =>
  createVerifierServer({ verifier: new ScriptedAnswers(), limits, log: { error: () => undefined } });

async function holder(): Promise<ChildProcess> {
  const made = fork(new URL('socket-holder.ts', import.meta.url));
  processes.add(made);
  await once(made, 'message');
  return made;
}

/** Answer to that: `up`, or a code. */
async function listens(asked: ChildProcess): Promise<unknown> {
  asked.send(path);
  return (await once(asked, 'message'))[0];
}

async function killed(running: ChildProcess): Promise<void> {
  const gone = once(running, 'exit');
  running.kill('SIGKILL');
  await gone;
  processes.delete(running);
}

async function answers(): Promise<void> {
  const wire = new Wire(path).send(verifyKey({ key: 'good' }));
  expect((await wire.response()).status).toBe(200);
  wire.close();
}

test('is served once, and replaces only a dead one', async () => {
  const other = await holder();
  expect(await listens(other)).toBe('up');
  const ours = create();
  await expect(ours.listenUnix(path)).rejects.toMatchObject({ code: 'EADDRINUSE' });
  await killed(other);
  expect(await ours.listenUnix(path)).toBe(path);
  expect(statSync(path).mode & 0o666).toBe(0o666);
  await answers();
  expect(readdirSync(folder)).toEqual(['verifier.sock']);
  await ours.close(1000);
  expect(readdirSync(folder)).toEqual([]);
});

test('a file that is no socket is left alone', async () => {
  writeFileSync(path, 'data');
  await expect(create().listenUnix(path)).rejects.toMatchObject({ code: 'EADDRINUSE' });
  expect(readdirSync(folder)).toEqual(['verifier.sock']);
});

test('who closes takes away its own file only', async () => {
  const [first, second] = [create(), create()];
  await first.listenUnix(path);
  rmSync(path);
  await second.listenUnix(path);
  await first.close(1000);
  await answers();
  rmSync(path);
  await second.close(1000);

  const third = create();
  await third.listenUnix(path);
  rmSync(path);
  const other = await holder();
  expect(await listens(other)).toBe('up');
  await third.close(1000);
  expect(await new Wire(path).rest()).toBe(String(other.pid));
});

test('one alone takes the place of a dead one', async () => {
  let last = await holder();
  expect(await listens(last)).toBe('up');
  const racing = await Promise.all(Array.from({ length: 5 }, holder));
  for (let round = 0; round < 12; round++) {
    await killed(last);
    const told = await Promise.all(racing.map(listens));
    expect(told.toSorted()).toEqual(['EADDRINUSE', 'EADDRINUSE', 'EADDRINUSE', 'EADDRINUSE', 'up']);
    const winner = racing.splice(told.indexOf('up'), 1)[0];
    expect(await new Wire(path).rest()).toBe(String(winner?.pid));
    if (winner) last = winner;
    racing.push(await holder());
  }
});

test('two sockets in one folder are free at once', async () => {
  const [first, second] = [create(), create()];
  await Promise.all([first.listenUnix(path), second.listenUnix(join(folder, 'other.sock'))]);
  expect(readdirSync(folder).sort()).toEqual(['other.sock', 'verifier.sock']);
  await Promise.all([first.close(1000), second.close(1000)]);
});
