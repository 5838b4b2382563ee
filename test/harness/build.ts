import { createHash } from 'node:crypto';
import { globSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, type Plugin } from 'rolldown';
import type { TestProject } from 'vitest/node';
import { lean, leanNode } from '../../deploy/image/lean.ts';
import { BUILT, MAINS, outputOf, ROOT } from './built.ts';
import { importsOf, reachedFrom } from './imports.ts';

const FOLDER = join(ROOT, 'node_modules', '.cache', 'started');
const KEPT_MS = 24 * 60 * 60 * 1000;

/** Builds them once before the tests, or takes those of an earlier run from the same sources. Where no test starts one, does nothing. */
export default async function setup(project: TestProject): Promise<void> {
  if (process.env[BUILT] !== undefined || !(await startsOne(project))) return;
  const folder = join(FOLDER, hashOfSources());
  if (!isThere(folder)) await buildInto(folder);
  utimesSync(folder, new Date(), new Date());
  for (const name of globSync('*', { cwd: FOLDER })) {
    const old = join(FOLDER, name);
    if (isThere(old) && statSync(old).mtimeMs < Date.now() - KEPT_MS) rmSync(old, { recursive: true });
  }
  process.env[BUILT] = folder;
}

/** Tells whether a test starts one; where the command names no file, some do. */
async function startsOne(project: TestProject): Promise<boolean> {
  const named = process.argv.slice(2).filter((each) => /^[^-].*\//.test(each));
  if (named.length === 0) return true;
  const { testFiles } = await project.globTestFiles(named);
  const files = globSync('{test,deploy,bench,shared,control-plane,verifier}/**/*.ts', { cwd: ROOT });
  const imports = importsOf(new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')])));
  return testFiles.some((file) => reachedFrom(imports, relative(ROOT, file)).has('test/harness/built.ts'));
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

function hashOfSources(): string {
  const files = globSync('{control-plane,verifier,shared}/**/*.{ts,json}', { cwd: ROOT });
  const builders = ['package-lock.json', 'deploy/image/lean.ts', 'test/harness/build.ts'];
  const hash = createHash('sha256').update(`${process.version} ${ROOT}`);
  for (const file of [...files.sort(), ...builders]) {
    hash.update(`\0${file}\0`).update(readFileSync(join(ROOT, file)));
  }
  return hash.digest('hex').slice(0, 20);
}

async function buildInto(folder: string): Promise<void> {
  const unfinished = `${folder}.${process.pid}`;
  await Promise.all(
    MAINS.map((main) =>
      build({
        input: { [outputOf(main).replace(/\.js$/, '')]: join(ROOT, main) },
        platform: 'node',
        plugins: [main === 'verifier/main.ts' ? lean() : leanNode(), beside()],
        // These packages look for their own files beside them.
        external: /^@grpc\//,
        output: { dir: unfinished, chunkFileNames: `${outputOf(main)}-[name].js` },
      }),
    ),
  );
  // Else Node would compile each file only to see that it is a module.
  writeFileSync(join(unfinished, 'package.json'), '{ "type": "module" }');
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    rmSync(unfinished, { recursive: true });
    if (!isThere(folder)) throw error; // another run was first, with the same
  }
}

/** Lets every source find its scripts and settings where it lies, and the reference's library its page. */
function beside(): Plugin {
  return {
    name: 'beside',
    transform(code, id) {
      if (id.includes('/@fastify/swagger')) return code.replaceAll('__dirname', JSON.stringify(dirname(id)));
      if (!id.startsWith(ROOT) || id.includes('node_modules')) return null;
      return code
        .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(id).href))
        .replaceAll('import.meta.dirname', JSON.stringify(dirname(id)));
    },
  };
}
