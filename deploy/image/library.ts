/**
 * Writes what the package exports to applications: `node deploy/image/library.ts <folder>`, after build.ts wrote the same
 * folder. Each entry is JavaScript with a source map beside the verifier's own files, which it reads; what it imports from
 * npm stays an import. Beside each are its type declarations, which name nothing that is not exported.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { build } from 'rolldown';
import { scriptArguments, wrongArguments } from '../dev/arguments.ts';

const USAGE = 'node deploy/image/library.ts FOLDER: writes what the package exports into FOLDER';
const [target] = scriptArguments(USAGE, { allowPositionals: true }).positionals;
if (!target) wrongArguments('FOLDER is missing.', USAGE);

const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  exports: Record<string, { types: string; default: string } | string>;
};
/** Sources of the entries by the names of what they become: `./build/verifier/exports/client.js` is `client`. */
const entries = Object.values(exports).flatMap((entry) => (typeof entry === 'string' ? [] : [entry.types]));
const sourceOf = (types: string) => types.replace('./build/types/', '').replace(/\.d\.ts$/, '.ts');
const nameOf = (types: string) =>
  `exports-${types
    .split('/')
    .at(-1)
    ?.replace(/\.d\.ts$/, '')}`;

const { dependencies, peerDependencies = {} } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  dependencies: Record<string, string>;
  peerDependencies?: Record<string, string>;
};
const installed = [...Object.keys({ ...dependencies, ...peerDependencies }), ...builtinModules, 'node:'];
await build({
  input: Object.fromEntries(entries.map((types) => [nameOf(types), sourceOf(types)])),
  platform: 'node',
  external: (id) =>
    installed.some(
      (name) => id === name || id.startsWith(`${name}/`) || (name === 'node:' && id.startsWith(name)),
    ),
  // In the verifier's own folder, as main.js is, so that every chunk finds what is read from disk.
  output: {
    dir: join(target, 'verifier'),
    entryFileNames: '[name].js',
    chunkFileNames: 'exports-part-[name].js',
    sourcemap: true,
  },
});

const folder = mkdtempSync(join(tmpdir(), 'keyfence-types-'));
try {
  // Of the exports alone, and unchecked: `npm run types` checks the project.
  const compilerOptions = {
    declaration: true,
    emitDeclarationOnly: true,
    noEmit: false,
    noCheck: true,
    rootDir: resolve('.'),
    outDir: folder,
    typeRoots: [resolve('node_modules/@types')],
  };
  const sources = [...entries.map(sourceOf), ...globSync('{shared,verifier}/**/*.d.ts')];
  const files = sources.map((source) => resolve(source));
  const config = { extends: resolve('tsconfig.json'), compilerOptions, files, include: [] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder], { stdio: 'inherit' });
  const wanted = new Set<string>();
  const take = (file: string) => {
    if (wanted.has(file)) return;
    wanted.add(file);
    const text = readFileSync(join(folder, file), 'utf8');
    for (const [, specifier = ''] of text.matchAll(/from '(\.[^']+)\.ts'/g))
      take(join(dirname(file), `${specifier}.d.ts`));
    if (/['"]#/.test(text))
      throw new Error(`${file}: a type of an export is not one that applications can name`);
  };
  for (const types of entries) take(sourceOf(types).replace(/\.ts$/, '.d.ts'));
  for (const file of wanted) {
    cpSync(join(folder, file), join(target, 'types', file));
    const text = readFileSync(join(folder, file), 'utf8');
    writeFileSync(join(target, 'types', file), text.replace(/(?<=from '\.[^']+\.)ts(?=')/g, 'js'));
  }
  if (globSync(join(target, 'types', '**/*.d.ts')).length !== wanted.size)
    throw new Error('types are missing');
} finally {
  rmSync(folder, { recursive: true, force: true });
}
