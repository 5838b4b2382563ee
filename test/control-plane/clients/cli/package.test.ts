import { type ChildProcess, execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { spawnBound } from '../../../../deploy/dev/redis-server.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { envOf } from './keyfence.ts';
import { buildPackages, install, npm, PATH, packageVersion } from './packed.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
let fleet: Fleet;
let folder: string;
const children: ChildProcess[] = [];

/** Builds and packs the packages, and installs each into an empty folder, without the network. */
beforeAll(async () => {
  fleet = await Fleet.start();
  folder = mkdtempSync(join(tmpdir(), 'keyfence-package-'));
  buildPackages(folder);
  install(folder, 'keyfence', 'home');
  install(folder, 'keyfence-server', 'server');
  install(folder, 'keyfence-revocation', 'kit');
});
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Packages in a node_modules, by name. */
const packagesIn = (modules: string) =>
  readdirSync(modules).flatMap((name) =>
    name.startsWith('@')
      ? readdirSync(join(modules, name)).map((one) => `${name}/${one}`)
      : name.startsWith('.')
        ? []
        : [name],
  );

test('the library brings few packages and no server', () => {
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
  expect(own.filter((file) => /dashboard|(?<!\.d)\.ts$/.test(file))).toEqual([]);
  const ofControlPlane = own.filter((file) => file.includes('control-plane'));
  expect(ofControlPlane.filter((file) => !file.startsWith('types/control-plane'))).toEqual([]);
  const page = readFileSync(join(modules, 'keyfence', 'README.md'), 'utf8');
  const links = [...page.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, target]) => target ?? '');
  expect([...new Set(links)].toSorted()).toEqual(['admin.md', 'middleware.md']);
  expect(own).toEqual(expect.arrayContaining(links));
  const guards = readFileSync(join(modules, 'keyfence', 'middleware.md'), 'utf8');
  for (const example of globSync('*.ts', { cwd: join(ROOT, 'deploy/examples') }))
    expect(guards).toContain(readFileSync(join(ROOT, 'deploy/examples', example), 'utf8'));
});

test('revocation is measured from the tarball alone', async () => {
  const { controlPlanes, verifiers } = fleet;
  await fleet.ok('apis.createApi', { apiId: 'my-api', name: 'my-api' });
  const installed = join(folder, 'kit', 'node_modules');
  expect(packagesIn(installed)).toEqual(['keyfence-revocation']);
  const target = join(installed, 'keyfence-revocation/targets/keyfence.json');
  const env = { ROOT_KEY, CONTROL_PLANE: controlPlanes[0]?.address, VERIFIER: verifiers[0]?.address };
  const { stdout } = await promisify(execFile)(
    join(installed, '.bin/keyfence-revocation'),
    ['--target', target, '--revocations', '3', '--quiet', '200'],
    { env: { ...process.env, PATH, ...env } },
  );
  expect(stdout).toMatch(/accepted although the call claimed +0 of 3/);
});

/** What an application has beside its own packages once it has installed the library. */
const PACKAGES_MAX = 12;
const BYTES_MAX = 8e6;

test('the server runs as JavaScript in plain node', async () => {
  const installed = join(folder, 'server', 'node_modules');
  expect(existsSync(join(installed, '.bin', 'node'))).toBe(false);
  const sources = readdirSync(join(installed, 'keyfence-server'), { recursive: true, encoding: 'utf8' });
  expect(sources.filter((file) => /(?<!\.d)\.ts$/.test(file))).toEqual([]);
  const pages = sources.filter((file) => /\.md$/.test(file) && !file.includes('node_modules'));
  const links = pages.flatMap((page) => {
    const text = readFileSync(join(installed, 'keyfence-server', page), 'utf8');
    return [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, target = '']) =>
      join(page, '..', target),
    );
  });
  expect(links).toContain('core/keys/README.md');
  expect(links.filter((target) => !pages.includes(target))).toEqual([]);
  const keyfence = (...args: string[]) => {
    const command = [join(installed, '.bin', 'keyfence'), ...args];
    return promisify(execFile)(process.execPath, command, {
      cwd: tmpdir(),
      env: { ...envOf(fleet, { HOME: folder }), NODE_COMPILE_CACHE: undefined },
    });
  };
  expect((await keyfence('--version')).stdout.trim()).toBe(packageVersion());
  // One file, which loads at its start only what is in every Node process already, and is compiled once.
  const command = readFileSync(join(installed, 'keyfence-server/control-plane/clients/cli/main.js'), 'utf8');
  const imports = [...command.matchAll(/(?:import|from)\s?["'`]([\w@.#/:-]+)["'`]/g)].map(([, name]) => name);
  expect(imports.toSorted()).toEqual([
    ...[
      'node:buffer',
      'node:events',
      'node:fs',
      'node:module',
      'node:os',
      'node:path',
      'node:process',
      'node:stream',
      'node:util',
    ],
  ]);
  const { keyId } = JSON.parse((await keyfence('keys', 'create', 'packed', '--json')).stdout);
  expect(readdirSync(join(folder, '.cache', 'keyfence'))).toHaveLength(1);
  expect((await keyfence('keys', 'disable', keyId)).stdout).toContain('complete');
  expect((await keyfence('export', '--kind', 'Api')).stdout).toContain('kind: Api\napiId: packed');
  // What the doctor finds wrong while a slow machine is busy, such as a verifier that lags, may pass.
  await fleet.until(async () => (await keyfence('doctor')).stdout.includes('✓ rights'));
});

test('both processes start from the package', async () => {
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

test('npx finds the command in the project', () => {
  expect(npm(ROOT, 'exec', '--offline', '--no', '--', 'keyfence', '--version').trim()).toBe(packageVersion());
});
