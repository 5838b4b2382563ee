import { spawn } from 'node:child_process';
import { afterEach, expect, test, vi } from 'vitest';
import { changedSince, children, find } from './found.ts';
import { eventually } from './waiting.ts';

const undo: (() => unknown)[] = [];
afterEach(() => {
  for (const each of undo.splice(0)) each();
});

test('names what a test file leaves behind', () => {
  const found = find();
  expect(changedSince(found)).toEqual([]);
  vi.stubEnv('KEYFENCE_LEFT', 'behind');
  undo.push(() => vi.unstubAllEnvs());
  expect(changedSince(found)).toEqual(['env']);
  const listener = () => undefined;
  process.on('SIGUSR2', listener);
  undo.push(() => process.off('SIGUSR2', listener));
  expect(changedSince(found)).toEqual(['env', 'listeners of the process']);
  vi.useFakeTimers();
  undo.push(() => vi.useRealTimers());
  expect(changedSince(found)).toContain('fake timers');
});

test('processes that still run are counted', async () => {
  const before = children();
  const child = spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1000)']);
  undo.push(() => child.kill('SIGKILL'));
  expect(children()).toBe(before + 1);
  child.kill('SIGKILL');
  await eventually(() => children() === before);
});
