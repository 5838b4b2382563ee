import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './built.ts';

/** The last commit whose verifiers and control planes know nothing of a protocol number. */
const BEFORE_THE_GATE = 'ce8b364241bf69e9df0a8dcac3365ae990301ca5';
const CODE = ['control-plane', 'verifier', 'shared', 'package.json'];

/** True where the history reaches back to that commit; a shallow clone's does not. */
export const hasEarlier =
  spawnSync('git', ['-C', ROOT, 'cat-file', '-e', `${BEFORE_THE_GATE}^{commit}`]).status === 0;

/**
 * The code of both processes as it was then, over the packages of now.
 * @returns where it is, for a `Process`
 */
export function earlierCode(directory: string): string {
  const root = join(directory, 'earlier');
  mkdirSync(root);
  const archive = execFileSync('git', ['-C', ROOT, 'archive', BEFORE_THE_GATE, ...CODE], {
    maxBuffer: 256 * 1024 * 1024,
  });
  execFileSync('tar', ['-x', '-C', root], { input: archive });
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  // What it needs and we no longer have: a plugin that sets security headers, here one that sets none.
  const helmet = join(directory, 'node_modules', '@fastify', 'helmet');
  mkdirSync(helmet, { recursive: true });
  writeFileSync(join(helmet, 'package.json'), '{"type":"module","main":"index.js"}');
  writeFileSync(join(helmet, 'index.js'), 'export default async () => undefined;\n');
  return root;
}
