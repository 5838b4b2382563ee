import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
/** The path on which this Node comes first. */
export const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;

/** Runs npm in a folder. */
export const npm = (cwd: string, ...args: string[]) =>
  execFileSync('npm', args, { cwd, encoding: 'utf8', env: { ...process.env, PATH }, stdio: 'pipe' });
export const packageVersion = () =>
  JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version as string;

/** Builds both packages into `folder/packages`. */
export const buildPackages = (folder: string) =>
  npm(ROOT, 'run', '--silent', 'build:packages', '--', join(folder, 'packages'));

/** Packs a package, and installs it into an application of its own: `folder/application`. The packages that it needs are there already: nothing is fetched. */
export function install(folder: string, name: string, application: string): void {
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
  npm(home, 'install', ...offline, join(folder, `${name}-${packageVersion()}.tgz`));
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

/** Lays the packages of the project beside those of an application, as links, except for those that it has. */
export function layBeside(home: string, instead: Readonly<Record<string, string>> = {}): void {
  const [there, here] = [join(home, 'node_modules'), join(ROOT, 'node_modules')];
  mkdirSync(there, { recursive: true });
  for (const [name, source] of Object.entries(instead)) symlinkSync(join(here, source), join(there, name));
  for (const name of readdirSync(here)) {
    const scoped = name.startsWith('@')
      ? readdirSync(join(here, name)).map((one) => join(name, one))
      : [name];
    for (const one of scoped) {
      mkdirSync(dirname(join(there, one)), { recursive: true });
      if (!existsSync(join(there, one))) symlinkSync(join(here, one), join(there, one));
    }
  }
}
