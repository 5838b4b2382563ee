import { execFile, execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { envOf } from './keyfence.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;
let fleet: Fleet;
let folder: string;

/** Packs a copy of the project and installs the package into an empty folder, without the network. */
beforeAll(async () => {
  fleet = await Fleet.start();
  folder = mkdtempSync(join(tmpdir(), 'keyfence-package-'));
  const [source, home] = [join(folder, 'source'), join(folder, 'home')];
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  for (const file of files.trim().split('\n'))
    cpSync(join(ROOT, file), join(source, file), { recursive: true, verbatimSymlinks: true });
  // Who packs has installed before: the verifier is bundled with the libraries that it loads.
  symlinkSync(join(ROOT, 'node_modules'), join(source, 'node_modules'));
  npm(source, 'pack', '--pack-destination', folder);
  mkdirSync(home);
  writeFileSync(join(home, 'package.json'), '{"private":true}');
  // What it depends on is there already, so that nothing is asked for that might be in no cache.
  for (const name of ['.bin', ...productionPackages()]) {
    const target = join(home, 'node_modules', name);
    cpSync(join(ROOT, 'node_modules', name), target, { recursive: true, verbatimSymlinks: true });
  }
  const offline = [
    '--offline',
    '--cache',
    join(folder, 'cache'),
    '--omit=optional',
    '--no-audit',
    '--no-fund',
  ];
  npm(home, 'install', ...offline, join(folder, `keyfence-${version()}.tgz`));
}, 120_000);
afterAll(async () => {
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

const npm = (cwd: string, ...args: string[]) =>
  execFileSync('npm', args, { cwd, encoding: 'utf8', env: { ...process.env, PATH }, stdio: 'pipe' });
const version = () => JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version as string;

/** Installed at the top of node_modules, and not for development alone. */
function productionPackages(): string[] {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean }>;
  };
  return Object.entries(lock.packages).flatMap(([path, { dev, optional }]) => {
    const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)$/.exec(path)?.[1];
    return name && !dev && !optional ? [name] : [];
  });
}

test('the package runs as JavaScript under a plain node', async () => {
  const installed = join(folder, 'home', 'node_modules');
  const sources = readdirSync(join(installed, 'keyfence'), { recursive: true, encoding: 'utf8' });
  expect(sources.filter((file) => file.endsWith('.ts'))).toEqual([]);
  const keyfence = (...args: string[]) => {
    const command = [join(installed, '.bin', 'keyfence'), ...args];
    return promisify(execFile)(process.execPath, command, { cwd: tmpdir(), env: envOf(fleet) });
  };
  expect((await keyfence('--version')).stdout.trim()).toBe(version());
  const { keyId } = JSON.parse((await keyfence('keys', 'create', 'packed', '--json')).stdout);
  expect((await keyfence('keys', 'disable', keyId)).stdout).toContain('complete');
  expect((await keyfence('doctor')).stdout).toContain('✓ rights');
});

test('npx finds the command in the project', () => {
  expect(npm(ROOT, 'exec', '--offline', '--no', '--', 'keyfence', '--version').trim()).toBe(version());
});
