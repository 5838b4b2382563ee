import { type ChildProcess, execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { envOf } from './keyfence.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;
let fleet: Fleet;
let folder: string;
const children: ChildProcess[] = [];

/** Builds and packs both packages, and installs each into an empty folder, without the network. */
beforeAll(async () => {
  fleet = await Fleet.start();
  folder = mkdtempSync(join(tmpdir(), 'keyfence-package-'));
  npm(ROOT, 'run', '--silent', 'build:packages', '--', join(folder, 'packages'));
  install('keyfence', 'home');
  install('keyfence-server', 'server');
});
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

const npm = (cwd: string, ...args: string[]) =>
  execFileSync('npm', args, { cwd, encoding: 'utf8', env: { ...process.env, PATH }, stdio: 'pipe' });
const version = () => JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version as string;

/** Installs a package into an application of its own. The packages that it needs are there already: nothing is fetched. */
function install(name: string, application: string): void {
  const home = join(folder, application);
  npm(join(folder, 'packages', name), 'pack', '--pack-destination', folder);
  mkdirSync(home);
  writeFileSync(join(home, 'package.json'), '{"private":true}');
  const { dependencies } = JSON.parse(
    readFileSync(join(folder, 'packages', name, 'package.json'), 'utf8'),
  ) as Manifest;
  const paths = installedPaths(Object.keys(dependencies ?? {}));
  const commands = readdirSync(join(ROOT, 'node_modules/.bin')).flatMap((command) => {
    const path = join('node_modules/.bin', command);
    const owner = /^\.\.\/((?:@[^/]+\/)?[^/]+)/.exec(readlinkSync(join(ROOT, path)))?.[1];
    return paths.has(`node_modules/${owner}`) ? [path] : [];
  });
  for (const path of [...paths, ...commands])
    cpSync(join(ROOT, path), join(home, path), { recursive: true, verbatimSymlinks: true });
  const offline = ['--offline', '--cache', join(folder, 'cache'), '--no-audit', '--no-fund'];
  npm(home, 'install', ...offline, join(folder, `${name}-${version()}.tgz`));
}

type Manifest = { dependencies?: Record<string, string> };

/** Folders of these packages and of all that they need, as package-lock.json has them. */
function installedPaths(names: readonly string[]): Set<string> {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, Manifest>;
  };
  const paths = new Set<string>();
  const take = (from: string, name: string) => {
    // The nearest one, as Node finds it.
    let path = `${from}/node_modules/${name}`.replace(/^\//, '');
    for (let at = from; packages[path] === undefined && at !== ''; ) {
      at = at.replace(/\/?node_modules\/(?:@[^/]+\/)?[^/]+$/, '');
      path = `${at}/node_modules/${name}`.replace(/^\//, '');
    }
    if (paths.has(path)) return;
    paths.add(path);
    for (const needed of Object.keys(packages[path]?.dependencies ?? {})) take(path, needed);
  };
  for (const name of names) take('', name);
  return paths;
}

/** Packages in a node_modules, by name. */
const packagesIn = (modules: string) =>
  readdirSync(modules).flatMap((name) =>
    name.startsWith('@')
      ? readdirSync(join(modules, name)).map((one) => `${name}/${one}`)
      : name.startsWith('.')
        ? []
        : [name],
  );

test('the library leaves the application its own Node, and brings no server, no command and few packages', () => {
  const modules = join(folder, 'home', 'node_modules');
  expect(existsSync(join(modules, '.bin', 'node'))).toBe(false);
  expect(existsSync(join(modules, '.bin', 'keyfence'))).toBe(false);
  const names = packagesIn(modules);
  expect(names).toContain('keyfence');
  expect(names.filter((name) => /^(?:node|fastify|commander)(?:-|$)|swagger|grpc/.test(name))).toEqual([]);
  expect(names.length).toBeLessThanOrEqual(PACKAGES_MAX);
  const files = readdirSync(modules, { recursive: true, withFileTypes: true }).filter((file) =>
    file.isFile(),
  );
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  expect(bytes).toBeLessThanOrEqual(BYTES_MAX);
  const own = readdirSync(join(modules, 'keyfence'), { recursive: true, encoding: 'utf8' });
  expect(own.filter((file) => /control-plane|dashboard|(?<!\.d)\.ts$/.test(file))).toEqual([]);
  const page = readFileSync(join(modules, 'keyfence', 'README.md'), 'utf8');
  const links = [...page.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, target]) => target ?? '');
  expect(links).toEqual(['middleware.md']);
  expect(own).toEqual(expect.arrayContaining(links));
});

/** What an application has beside its own packages once it has installed the library. */
const PACKAGES_MAX = 12;
const BYTES_MAX = 8e6;

test('the package of the server runs as JavaScript under a plain node, and brings none either', async () => {
  const installed = join(folder, 'server', 'node_modules');
  expect(existsSync(join(installed, '.bin', 'node'))).toBe(false);
  const sources = readdirSync(join(installed, 'keyfence-server'), { recursive: true, encoding: 'utf8' });
  expect(sources.filter((file) => /(?<!\.d)\.ts$/.test(file))).toEqual([]);
  const pages = sources.filter((file) => /^[\w-]+\.md$/.test(file));
  const links = pages.flatMap((page) => {
    const text = readFileSync(join(installed, 'keyfence-server', page), 'utf8');
    return [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, target]) => target);
  });
  expect(links).toContain('keys.md');
  expect(links.filter((target) => !pages.includes(target ?? ''))).toEqual([]);
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

test('both processes start from the package of the server', async () => {
  const installed = join(folder, 'server', 'node_modules', 'keyfence-server');
  const env = { PATH, REDIS_URL: fleet.redisUrl, ROOT_KEY, PORT: '0', ADMIN_PORT: '0' };
  for (const name of ['control-plane', 'verifier']) {
    const child = spawnBound(process.execPath, [join(installed, name, 'main.js')], env);
    let log = '';
    child.stdout?.on('data', (chunk) => {
      log += String(chunk);
    });
    const admin = () => /"adminAddress":"([^"]+)"/.exec(log)?.[1];
    // Once this is answered, the process also takes signals.
    await fleet.until(
      async () => admin() !== undefined && (await fleet.get(`${admin()}/livez`)).status === 200,
    );
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
  }
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

/** Sends the beginning of a request; the function sends the rest and resolves with the status of the answer. */
async function beginRequest(address: string): Promise<() => Promise<number>> {
  const { hostname, port } = new URL(address);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(`GET /health HTTP/1.1\r\nHost: ${hostname}\r\n`);
  return async () => {
    socket.write('Connection: close\r\n\r\n');
    const [answer] = await once(socket, 'data');
    return Number(/^HTTP\/1\.1 (\d+)/.exec(String(answer))?.[1]);
  };
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
  // They end by themselves, leave the fence, and answer what is on its way to them.
  const ended = children.map((child) => new Promise((resolve) => child.once('exit', resolve)));
  const begun = await Promise.all(addresses.map((address) => beginRequest(address)));
  for (const child of children) child.kill('SIGTERM');
  for (const address of addresses)
    await fleet.until(() =>
      fleet.get(address).then(
        () => false,
        () => true,
      ),
    );
  // Fastify refuses, in so many words, what arrives while it closes.
  expect(await Promise.all(begun.map((end) => end()))).toEqual([503, 200, 200]);
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
    'keyfence/verifier/exports-verifier.js',
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
  const maps = readdirSync(join(installed, 'verifier')).filter((file) => /^exports-.*\.map$/.test(file));
  const sources = maps.flatMap((file) => {
    const map = JSON.parse(readFileSync(join(installed, 'verifier', file), 'utf8'));
    expect(map.sourcesContent).toHaveLength(map.sources.length);
    return map.sources as string[];
  });
  for (const file of ['library/create-verifier.ts', 'library/client.ts', 'middleware/guard.ts'])
    expect(sources.join()).toContain(`verifier/${file}`);
});

test('npx finds the command in the project', () => {
  expect(npm(ROOT, 'exec', '--offline', '--no', '--', 'keyfence', '--version').trim()).toBe(version());
});
