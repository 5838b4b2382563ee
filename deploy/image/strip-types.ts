/**
 * Writes the two processes as JavaScript, so that a container does not strip types at every start.
 * `node deploy/image/strip-types.ts <folder>` gives `<folder>/{control-plane,verifier,shared,package.json}`.
 * Types become blanks, so that line numbers stay what they are in the source.
 */
import { cpSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';

const [target] = process.argv.slice(2);
if (!target) throw new Error('usage: node deploy/image/strip-types.ts <folder>');

const wanted = (path: string) => !/\.(d\.ts|md)$/.test(path);
for (const source of ['control-plane', 'verifier', 'shared', 'package.json']) {
  cpSync(source, join(target, source), { recursive: true, filter: wanted });
}
cpSync('deploy/image/healthcheck.ts', join(target, 'healthcheck.ts'));
for (const file of globSync('{*,{control-plane,verifier,shared}/**/*}.ts', { cwd: target })) {
  const path = join(target, file);
  const code = stripTypeScriptTypes(readFileSync(path, 'utf8'));
  // './x.ts', '../x.ts' and '#shared/x.ts', wherever they are quoted: imports, workers, URLs
  writeFileSync(
    path.replace(/ts$/, 'js'),
    code.replace(/(?<=['"](?:\.{1,2}\/|#)[^'"\n]*\.)ts(?=['"])/g, 'js'),
  );
  rmSync(path);
}
