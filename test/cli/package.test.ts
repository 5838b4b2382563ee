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
});
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
  expect(sources.filter((file) => /(?<!\.d)\.ts$/.test(file))).toEqual([]);
  const keyfence = (...args: string[]) => {
    const command = [join(installed, '.bin', 'keyfence'), ...args];
    return promisify(execFile)(process.execPath, command, { cwd: tmpdir(), env: envOf(fleet) });
  };
  expect((await keyfence('--version')).stdout.trim()).toBe(version());
  const { keyId } = JSON.parse((await keyfence('keys', 'create', 'packed', '--json')).stdout);
  expect((await keyfence('keys', 'disable', keyId)).stdout).toContain('complete');
  expect((await keyfence('doctor')).stdout).toContain('✓ rights');
});

/** The samples of a page of documentation, in their order. */
function samplesOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return [...text.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, sample = '']) => sample);
}

test('an application type-checks against the package, with the declarations of all libraries, and runs', {
  timeout: 60_000,
}, async () => {
  const home = join(folder, 'home');
  for (const name of ['@types/node', 'undici-types']) {
    cpSync(join(ROOT, 'node_modules', name), join(home, 'node_modules', name), { recursive: true });
  }
  const compilerOptions = {
    target: 'es2024',
    module: 'nodenext',
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
    types: ['node'],
  };
  writeFileSync(join(home, 'package.json'), '{"private":true,"type":"module"}');
  writeFileSync(join(home, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  const [own = '', sidecar = '', ...others] = samplesOf('verifier/library/README.md');
  expect(others).toEqual([]);
  writeFileSync(join(home, 'own.ts'), own);
  writeFileSync(join(home, 'sidecar.ts'), sidecar);
  const differing = sidecar.split('\n').filter((line) => !own.includes(line));
  expect(differing.filter((line) => !line.startsWith('import '))).toHaveLength(1);
  execFileSync(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', home], {
    stdio: 'inherit',
  });

  const LISTEN_UNIX = join(fleet.directory, 'verifier.sock');
  await fleet.addVerifier({ LISTEN_UNIX, LOOKUP_WAIT_MS: '5000' });
  const env = { PATH, REDIS_URL: fleet.redisUrl, LISTEN_UNIX };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const say = async (file: string) => {
    // It ends by itself: nothing that was closed keeps the process alive.
    const { stdout } = await promisify(execFile)(process.execPath, [join(home, file), key], {
      cwd: home,
      env,
    });
    return stdout.trim();
  };
  for (const file of ['own.ts', 'sidecar.ts']) expect(await say(file)).toBe(`${keyId} may pass`);
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  for (const file of ['own.ts', 'sidecar.ts']) expect(await say(file)).toBe('refused: DISABLED');
});

test('the package exports what its documentation names, and nothing else', async () => {
  const exported = async (name: string) => {
    const code = `console.log(Object.keys(await import('${name}')).join())`;
    return promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], {
      cwd: join(folder, 'home'),
    })
      .then(({ stdout }) => stdout.trim())
      .catch(({ stderr }) => /ERR_\w+/.exec(stderr)?.[0]);
  };
  const names = ['keyfence/verifier', 'keyfence/client', 'keyfence', 'keyfence/build/verifier/main.js'];
  expect(await Promise.all(names.map(exported))).toEqual([
    'VerifierError,createVerifier',
    'VerifierError,createClient',
    'ERR_PACKAGE_PATH_NOT_EXPORTED',
    'ERR_PACKAGE_PATH_NOT_EXPORTED',
  ]);
  const installed = join(folder, 'home', 'node_modules', 'keyfence');
  for (const name of ['verifier', 'client']) {
    const map = JSON.parse(readFileSync(join(installed, `build/verifier/exports-${name}.js.map`), 'utf8'));
    expect(map.sources.join()).toContain(`verifier/library/${name}.ts`);
    expect(map.sourcesContent).toHaveLength(map.sources.length);
  }
});

test('npx finds the command in the project', () => {
  expect(npm(ROOT, 'exec', '--offline', '--no', '--', 'keyfence', '--version').trim()).toBe(version());
});
