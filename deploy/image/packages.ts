/**
 * Writes the npm packages: `node deploy/image/packages.ts FOLDER`.
 *
 * `FOLDER/keyfence` is the library, which applications install: JavaScript with source maps and type
 * declarations. It contains no Node, no server and no command. `FOLDER/keyfence-server` contains both
 * processes and the command `keyfence`.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { build } from 'rolldown';
import { scriptArguments, wrongArguments } from '../dev/arguments.ts';
import { leanLibrary } from './lean.ts';

const USAGE = 'node deploy/image/packages.ts FOLDER: writes the npm packages into FOLDER';
const [folder] = scriptArguments(USAGE, { allowPositionals: true }).positionals;
if (!folder) wrongArguments('FOLDER is missing.', USAGE);
const [library, server] = [join(folder, 'keyfence'), join(folder, 'keyfence-server')];

const project = JSON.parse(readFileSync('package.json', 'utf8')) as {
  version: string;
  license: string;
  description: string;
  engines: Record<string, string>;
  dependencies: Record<string, string>;
};
const { version, license, description, engines, dependencies } = project;

/** Sources of the modules that applications import as `keyfence/<name>`. */
const ENTRIES = {
  verifier: 'verifier/library/create-verifier.ts',
  client: 'verifier/library/client.ts',
  fastify: 'verifier/middleware/fastify.ts',
  express: 'verifier/middleware/express.ts',
  hono: 'verifier/middleware/hono.ts',
};
/** Packages that the library installs from npm. Other, small packages are bundled. */
const LIBRARY_DEPENDENCIES = ['ioredis', 'undici'];
/** Frameworks that the application installs itself. */
const PEERS = { express: '^5.0.0', fastify: '^5.0.0', hono: '^4.0.0' };

execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', 'deploy/image/build.ts', server], {
  stdio: 'inherit',
});
writePackage(server, 'control-plane', {
  name: 'keyfence-server',
  bin: { keyfence: 'control-plane/cli/keyfence.js' },
  imports: { '#shared/*': './shared/*' },
  dependencies,
});

const external = [...LIBRARY_DEPENDENCIES, ...Object.keys(PEERS), ...builtinModules];
await build({
  input: Object.fromEntries(Object.entries(ENTRIES).map(([name, source]) => [`exports-${name}`, source])),
  platform: 'node',
  plugins: [leanLibrary()],
  external: (id) =>
    id.startsWith('node:') || external.some((name) => id === name || id.startsWith(`${name}/`)),
  // The output lies in the verifier's folder, like main.js, so that every chunk finds the files that it
  // reads.
  output: {
    dir: join(library, 'verifier'),
    entryFileNames: '[name].js',
    chunkFileNames: 'exports-part-[name].js',
    sourcemap: true,
  },
});
for (const script of globSync('{verifier,shared}/**/*.lua')) cpSync(script, join(library, script));
writeTypes(Object.values(ENTRIES), join(library, 'types'));
writePackage(library, 'verifier/library', {
  name: 'keyfence',
  exports: {
    ...Object.fromEntries(
      Object.entries(ENTRIES).map(([name, source]) => [
        `./${name}`,
        { types: `./types/${source.replace(/\.ts$/, '.d.ts')}`, default: `./verifier/exports-${name}.js` },
      ]),
    ),
    './package.json': './package.json',
  },
  dependencies: Object.fromEntries(LIBRARY_DEPENDENCIES.map((name) => [name, dependencies[name]])),
  peerDependencies: PEERS,
  peerDependenciesMeta: Object.fromEntries(Object.keys(PEERS).map((name) => [name, { optional: true }])),
});

/**
 * Writes `package.json`, the license and the pages of a folder of the project. Links that lead out of that
 * folder become plain text.
 */
function writePackage(target: string, pages: string, fields: Readonly<Record<string, unknown>>): void {
  const manifest = { version, description, license, type: 'module', engines, ...fields };
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  for (const page of globSync('*.md', { cwd: pages })) {
    const text = readFileSync(join(pages, page), 'utf8');
    const packageText = text.replace(/\[([^\]]+)\]\((?!https?:|#|[\w-]+\.md[)#])[^)]+\)/g, '$1');
    writeFileSync(join(target, page), packageText);
  }
  cpSync('LICENSE', join(target, 'LICENSE'));
}

/**
 * Writes the declarations of these sources and of everything that they reference, without type checks: `npm
 * run types` checks the project.
 */
function writeTypes(sources: readonly string[], target: string): void {
  const work = mkdtempSync(join(tmpdir(), 'keyfence-types-'));
  try {
    const compilerOptions = {
      declaration: true,
      emitDeclarationOnly: true,
      noEmit: false,
      noCheck: true,
      rootDir: resolve('.'),
      outDir: work,
      typeRoots: [resolve('node_modules/@types')],
    };
    const files = [...sources, ...globSync('{shared,verifier}/**/*.d.ts')].map((file) => resolve(file));
    const config = { extends: resolve('tsconfig.json'), compilerOptions, files, include: [] };
    writeFileSync(join(work, 'tsconfig.json'), JSON.stringify(config));
    execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', work], { stdio: 'inherit' });
    // The loop also visits what it adds to the set.
    const declarations = new Set(sources.map((source) => source.replace(/\.ts$/, '.d.ts')));
    for (const file of declarations) {
      const text = readFileSync(join(work, file), 'utf8');
      if (/['"]#/.test(text))
        throw new Error(`${file}: a type of an export is not one that applications can name`);
      for (const [, specifier = ''] of text.matchAll(/from '(\.[^']+)\.ts'/g))
        declarations.add(join(dirname(file), `${specifier}.d.ts`));
      cpSync(join(work, file), join(target, file));
      writeFileSync(join(target, file), text.replace(/(?<=from '\.[^']+\.)ts(?=')/g, 'js'));
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
