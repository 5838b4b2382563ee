/**
 * `node deploy/image/build.ts <folder>` writes the two processes as JavaScript into
 * `<folder>/{control-plane,verifier,shared,package.json}`, so that a container need not strip types at every
 * start.
 *
 * The control plane's files stay separate, and types become blanks, so that line numbers are those of the
 * source. Its command line becomes one file, which starts in a third of the time. A verifier is a sidecar, started often and in great numbers, so it becomes one file with the
 * libraries that it loads at its start, which shortens the start by a third. Libraries that only some
 * configurations need stay separate (lean.ts).
 */
import { cpSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';
import { scriptArguments, wrongArguments } from '../dev/arguments.ts';
import { atFirstUse, lean } from './lean.ts';

const USAGE = 'node deploy/image/build.ts FOLDER: writes both processes as JavaScript into FOLDER';
const [target] = scriptArguments(USAGE, { allowPositionals: true }).positionals;
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
const VERSION = `export const VERSION = ${JSON.stringify(version)};`;
if (!target) wrongArguments('FOLDER is missing.', USAGE);

// Copy only the served files of the dashboard, and of the verifier only files that are not modules.
const isPackaged = (path: string) =>
  !/\.(d\.ts|md)$|control-plane\/clients\/dashboard\/(?!assets)|^verifier\/.*\.ts$/.test(path);
for (const source of ['control-plane', 'verifier', 'shared', 'package.json']) {
  cpSync(source, join(target, source), { recursive: true, filter: isPackaged });
}
cpSync('deploy/image/healthcheck.ts', join(target, 'healthcheck.ts'));
for (const file of globSync('{*,{control-plane,shared}/**/*}.ts', { cwd: target })) {
  const path = join(target, file);
  const code = stripTypeScriptTypes(readFileSync(path, 'utf8'));
  // './x.ts', '../x.ts' and '#shared/x.ts', wherever they are quoted: imports, workers, URLs
  writeFileSync(
    path.replace(/ts$/, 'js'),
    code.replace(/(?<=['"](?:\.{1,2}\/|#)[^'"\n]*\.)ts(?=['"])/g, 'js'),
  );
  rmSync(path);
}
await build({
  input: 'verifier/main.ts',
  platform: 'node',
  plugins: [lean()],
  // These packages look for their own files beside them.
  external: /^@grpc\//,
  // Every chunk lies where its sources were, so that they find their files.
  output: {
    dir: join(target, 'verifier'),
    entryFileNames: 'main.js',
    chunkFileNames: '[name].js',
    comments: false,
  },
});
await build({
  input: 'control-plane/clients/cli/main.ts',
  platform: 'node',
  plugins: [
    atFirstUse(),
    { name: 'version', load: (id) => (id.endsWith('/shared/version.ts') ? VERSION : null) },
  ],
  // The doctor needs the control plane's files.
  external: /\/doctor\/examine\.ts$/,
  output: {
    file: join(target, 'control-plane/clients/cli/main.js'),
    paths: { [resolve('control-plane/clients/cli/doctor/examine.ts')]: './doctor/examine.js' },
    comments: false,
    minify: true,
  },
});
