import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { importsOf } from '../../harness/imports.ts';

/**
 * Returns the tests that are to notice a mistake in this file, in the order in which they are run: those of its name, those
 * that import it, and those of its folder and of the folders around it, which have the same path below `test/`; the
 * searches of `test/proof/` last.
 */
export function testsOf(root: string, file: string, files: readonly string[]): string[] {
  const tests = files.filter((name) => /^test\/(?!deploy\/kubernetes\/|harness\/).*\.test\.ts$/.test(name));
  const imports = importsOf(new Map(tests.map((name) => [name, readFileSync(join(root, name), 'utf8')])));
  const named = tests.filter((test) => baseOf(test) === baseOf(file));
  const importing = tests.filter((test) => imports.get(test)?.includes(file));
  // Tables of settings are written from where they are declared.
  const isSetting = /\.help\('/.test(readFileSync(join(root, file), 'utf8'));
  const around = foldersOf(file).flatMap((folder) =>
    tests.filter((test) => dirname(test) === `test/${folder}`),
  );
  const proofs = SIMULATED.test(file)
    ? ['redis', 'simulation'].map((name) => `test/proof/simulation/${name}.test.ts`)
    : [];
  const all = new Set([
    ...named,
    ...importing,
    ...(isSetting ? ['test/documentation.test.ts'] : []),
    ...around,
    ...proofs,
  ]);
  const isProof = (test: string) => test.startsWith('test/proof/');
  return [...[...all].filter((test) => !isProof(test)), ...[...all].filter(isProof)];
}

/** What the simulation runs. */
const SIMULATED =
  /^(verifier\/(core|metering|tokens)|control-plane\/core\/keys|shared\/(protocol|metering|reports|redis))\/|\.lua$/;

/** The folders that a file lies in, the innermost first; in place of a process's own, that of what it serves. */
function foldersOf(file: string): string[] {
  const folder = dirname(file);
  return folder in ROOTS ? [folder, ROOTS[folder] ?? ''] : [folder, ...foldersOf(folder)];
}

const ROOTS: Readonly<Record<string, string>> = {
  'control-plane': 'control-plane/core/serve',
  verifier: 'verifier/doors/http',
  shared: 'control-plane/core/serve',
};

const baseOf = (file: string) => basename(file).replace(/(\.test)?\.\w+$/, '');
