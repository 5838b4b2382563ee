import { type ChildProcess, execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
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
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { Fleet } from '../harness/fleet.ts';
import { envOf } from './keyfence.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;
let fleet: Fleet;
let folder: string;
const children: ChildProcess[] = [];

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
  for (const child of children) child.kill('SIGKILL');
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
  // What the doctor finds wrong while a slow machine is busy, such as a verifier that lags, may pass.
  await fleet.until(async () => (await keyfence('doctor')).stdout.includes('✓ rights'));
});

/** The samples of a page of documentation, in their order. */
function samplesOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return [...text.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, sample = '']) => sample);
}

test('an application type-checks against the package, with the declarations of all libraries, and runs', async () => {
  const home = join(folder, 'home');
  // The frameworks and their declarations, beside what is there already.
  const [there, here] = [join(home, 'node_modules'), join(ROOT, 'node_modules')];
  for (const name of readdirSync(here)) {
    const scoped = name.startsWith('@')
      ? readdirSync(join(here, name)).map((one) => join(name, one))
      : [name];
    for (const one of scoped) {
      mkdirSync(dirname(join(there, one)), { recursive: true });
      if (!existsSync(join(there, one))) symlinkSync(join(here, one), join(there, one));
    }
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
  const [own = '', metrics = '', sidecar = '', ...others] = samplesOf('verifier/library/README.md');
  expect(others).toEqual([]);
  for (const name of FRAMEWORKS) cpSync(join(ROOT, `deploy/examples/${name}.ts`), join(home, `${name}.ts`));
  writeFileSync(join(home, 'own.ts'), own);
  writeFileSync(join(home, 'sidecar.ts'), sidecar);
  writeFileSync(join(home, 'metrics.ts'), metrics);
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
  // A slow machine may have no verdict in time, which a sample does not try again.
  for (const file of ['own.ts', 'sidecar.ts'])
    await fleet.until(async () => (await say(file)) === `${keyId} may pass`);
  await fleet.until(async () =>
    (await say('metrics.ts')).includes(
      'keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 1\n',
    ),
  );
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  for (const file of ['own.ts', 'sidecar.ts'])
    await fleet.until(async () => (await say(file)) === 'refused: DISABLED');
});

const FRAMEWORKS = ['fastify', 'express', 'hono'];

/** Starts an example as its first line says, in the folder in which it was type-checked. */
async function startExample(name: string, env: Record<string, string>): Promise<string> {
  const child = spawnBound(process.execPath, [join(folder, 'home', `${name}.ts`)], env);
  children.push(child);
  const [line] = await once(child.stdout ?? child, 'data');
  return (JSON.parse(String(line)) as { address: string }).address;
}

test('the examples run with the package, and let nobody in whose key was disabled', async () => {
  const env = { PATH, PORT: '0', REDIS_URL: fleet.redisUrl };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const addresses = await Promise.all(FRAMEWORKS.map((name) => startExample(name, env)));
  const headers = { authorization: `Bearer ${key}` };
  for (const address of addresses) {
    expect((await fleet.get(`${address}/health`)).body).toBe('ok');
    expect((await fleet.get(`${address}/orders`)).status).toBe(401);
    await fleet.until(async () => (await fleet.get(`${address}/orders`, headers)).status === 200);
    expect((await fleet.get(`${address}/orders`, headers)).body).toEqual({ orders: [], of: keyId });
  }
  let going = true;
  const load = addresses.map(async (address) => {
    while (going) await fleet.get(`${address}/orders`, headers);
  });
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'complete', by: 'acks' });
  for (const address of addresses) expect((await fleet.get(`${address}/orders`, headers)).status).toBe(401);
  going = false;
  await Promise.all(load);
  // They end by themselves, and leave the fence.
  const ended = children.map((child) => new Promise((resolve) => child.once('exit', resolve)));
  for (const child of children) child.kill('SIGTERM');
  expect(await Promise.all(ended)).toEqual([0, 0, 0]);
  const after = await fleet.ok('keys.updateKey', { keyId, enabled: true });
  expect(after.propagation).toMatchObject({ state: 'complete', by: 'acks' });
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
  const names = [
    'keyfence/verifier',
    'keyfence/client',
    ...FRAMEWORKS.map((name) => `keyfence/${name}`),
    'keyfence',
    'keyfence/build/verifier/main.js',
  ];
  expect(await Promise.all(names.map(exported))).toEqual([
    'VerifierError,createVerifier',
    'VerifierError,createClient',
    'keyfence',
    'keyfence',
    'keyfence',
    'ERR_PACKAGE_PATH_NOT_EXPORTED',
    'ERR_PACKAGE_PATH_NOT_EXPORTED',
  ]);
  const installed = join(folder, 'home', 'node_modules', 'keyfence');
  const maps = readdirSync(join(installed, 'build/verifier')).filter((file) =>
    /^exports-.*\.map$/.test(file),
  );
  const sources = maps.flatMap((file) => {
    const map = JSON.parse(readFileSync(join(installed, 'build/verifier', file), 'utf8'));
    expect(map.sourcesContent).toHaveLength(map.sources.length);
    return map.sources as string[];
  });
  for (const file of ['library/verifier.ts', 'library/client.ts', 'middleware/guard.ts'])
    expect(sources.join()).toContain(`verifier/${file}`);
});

test('npx finds the command in the project', () => {
  expect(npm(ROOT, 'exec', '--offline', '--no', '--', 'keyfence', '--version').trim()).toBe(version());
});
