/**
 * Writes the npm packages: `node deploy/image/packages.ts FOLDER`.
 *
 * `FOLDER/keyfence` is the library, which applications install: JavaScript with source maps and type
 * declarations, for `import` and for `require`. It contains no Node, no server and no command.
 * `FOLDER/keyfence-server` contains both processes and the command `keyfence`. `FOLDER/keyfence-revocation` measures
 * any system and needs nothing else.
 */
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
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
  repository?: object;
};
const { version, license, description, engines, dependencies, repository } = project;

/** Sources of the modules that applications import as `keyfence/<name>`. */
const ENTRIES = {
  verifier: 'verifier/library/create-verifier.ts',
  client: 'verifier/library/client.ts',
  admin: 'control-plane/clients/client/admin.ts',
  fastify: 'verifier/library/guards/fastify.ts',
  express: 'verifier/library/guards/express.ts',
  hono: 'verifier/library/guards/hono.ts',
  koa: 'verifier/library/guards/koa.ts',
  nestjs: 'verifier/library/guards/nestjs.ts',
  fetch: 'verifier/library/guards/fetch.ts',
  http: 'verifier/library/guards/node-http.ts',
  testing: 'verifier/library/test-verifier.ts',
};
/** Packages that the library installs from npm. Other, small packages are bundled. */
const LIBRARY_DEPENDENCIES = ['ioredis', 'undici'];
/** Frameworks that the application installs itself. */
const PEERS = {
  '@nestjs/common': '^10.0.0 || ^11.0.0 || ^12.0.0',
  express: '^4.17.0 || ^5.0.0',
  fastify: '^4.0.0 || ^5.0.0',
  hono: '^4.0.0',
  koa: '^2.0.0 || ^3.0.0',
};
/** The oldest Node on which undici, and so the library, runs. */
const LIBRARY_NODE = [22, 19] as const;

execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', 'deploy/image/build.ts', server], {
  stdio: 'inherit',
});
writePackage(server, 'control-plane', {
  name: 'keyfence-server',
  bin: { keyfence: 'control-plane/clients/cli/keyfence.js' },
  imports: { '#shared/*': './shared/*' },
  dependencies,
});

const external = [...LIBRARY_DEPENDENCIES, ...Object.keys(PEERS), ...builtinModules];
const { output } = await build({
  input: Object.fromEntries(Object.entries(ENTRIES).map(([name, source]) => [`exports-${name}`, source])),
  platform: 'node',
  plugins: [leanLibrary()],
  external: (id) =>
    id.startsWith('node:') || external.some((name) => id === name || id.startsWith(`${name}/`)),
  // The output lies in the verifier's folder, like main.js, so that every chunk finds the files that it
  // reads.
  output: {
    dir: join(library, 'verifier'),
    format: 'cjs',
    entryFileNames: '[name].cjs',
    chunkFileNames: 'exports-part-[name].cjs',
    sourcemap: true,
    banner: ({ isEntry }) => (isEntry ? "require('../node-version.cjs');" : ''),
  },
});
writeFileSync(join(library, 'node-version.cjs'), nodeVersionCheck());
for (const chunk of output)
  if (chunk.type === 'chunk' && chunk.isEntry) writeImportable(chunk.name, chunk.exports);
for (const script of globSync('{verifier,shared}/**/*.lua')) cpSync(script, join(library, script));
writeTypes(Object.values(ENTRIES), join(library, 'types'));
const declarations = (source: string, suffix: string) => `./types/${source.replace(/\.ts$/, suffix)}`;
writePackage(library, 'verifier/library', {
  name: 'keyfence',
  engines: { node: `>=${LIBRARY_NODE.join('.')}.0` },
  exports: {
    ...Object.fromEntries(
      Object.entries(ENTRIES).map(([name, source]) => [
        `./${name}`,
        {
          import: { types: declarations(source, '.d.ts'), default: `./verifier/exports-${name}.js` },
          require: { types: declarations(source, '.d.cts'), default: `./verifier/exports-${name}.cjs` },
        },
      ]),
    ),
    './package.json': './package.json',
  },
  // For compilers with moduleResolution node10, which read no `exports`.
  typesVersions: {
    '*': Object.fromEntries(
      Object.entries(ENTRIES).map(([name, source]) => [name, [declarations(source, '.d.cts')]]),
    ),
  },
  dependencies: Object.fromEntries(LIBRARY_DEPENDENCIES.map((name) => [name, dependencies[name]])),
  peerDependencies: PEERS,
  peerDependenciesMeta: Object.fromEntries(Object.keys(PEERS).map((name) => [name, { optional: true }])),
});
appendFileSync(join(library, 'middleware.md'), examples());

const kit = join(folder, 'keyfence-revocation');
await build({
  input: 'bench/revocation/revocation.ts',
  platform: 'node',
  external: (id) => id.startsWith('node:'),
  output: { dir: kit, entryFileNames: 'revocation.js', format: 'esm' },
});
cpSync('bench/revocation/targets', join(kit, 'targets'), { recursive: true });
writePackage(kit, 'bench/revocation', {
  name: 'keyfence-revocation',
  description: 'Measures how long a revoked key is accepted, and if the call that revokes it says so.',
  engines: { node: '>=20' },
  bin: { 'keyfence-revocation': 'revocation.js' },
});

/** Returns the files of the examples, as the end of a page. */
function examples(): string {
  const files = globSync('deploy/examples/*.ts').sort();
  return files
    .map((file) => `\n### ${basename(file)}\n\n\`\`\`ts\n${readFileSync(file, 'utf8')}\`\`\`\n`)
    .join('');
}

/**
 * Writes the module of an entry for `import`. It exports what the module for `require` exports: a process
 * that uses both has one library, not two.
 */
function writeImportable(module: string, names: readonly string[]): void {
  const text = `import library from './${module}.cjs';\nexport const { ${names.join(', ')} } = library;\n`;
  writeFileSync(join(library, 'verifier', `${module}.js`), text);
}

/** Returns the module that refuses an older Node, in words that any Node can parse. */
function nodeVersionCheck(): string {
  const [major, minor] = LIBRARY_NODE;
  return `var version = process.versions.node.split('.').map(Number);
if (version[0] < ${major} || (version[0] === ${major} && version[1] < ${minor}))
  throw new Error('keyfence needs Node ${major}.${minor} or newer, and this is Node ' + process.versions.node + '.');
`;
}

/**
 * Writes `package.json`, the license and the pages of a folder of the project. Links that lead out of that
 * folder become plain text.
 */
function writePackage(target: string, pages: string, fields: Readonly<Record<string, unknown>>): void {
  const manifest = { version, description, license, repository, type: 'module', engines, ...fields };
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  const files = globSync('{,*/,*/*/}*.md', { cwd: pages });
  for (const page of files) {
    const text = readFileSync(join(pages, page), 'utf8');
    const packageText = text.replace(/!?\[([^\]]+)\]\((?!https?:|#)([^)#]+)[^)]*\)/g, (link, words, file) =>
      files.includes(join(page, '..', file)) ? link : words,
    );
    mkdirSync(join(target, page, '..'), { recursive: true });
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
      const textWith = (suffix: string) => text.replace(/(?<=from '\.[^']+\.)ts(?=')/g, suffix);
      cpSync(join(work, file), join(target, file));
      writeFileSync(join(target, file), textWith('js'));
      writeFileSync(join(target, file.replace(/ts$/, 'cts')), textWith('cjs'));
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
