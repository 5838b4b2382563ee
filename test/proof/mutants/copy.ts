import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Mutant, plant } from './plant.ts';

/** A copy of the project under the folder for temporary files, in which mutants are planted. The project stays as it is. */
export class Copy {
  readonly root: string;
  /** Files that had a mutant, as they were: the project may change meanwhile. */
  readonly #texts = new Map<string, string>();

  constructor(from: string) {
    this.root = mkdtempSync(join(tmpdir(), 'keyfence-mutants-'));
    process.once('exit', this.remove);
    for (const file of filesOf(from)) {
      mkdirSync(join(this.root, dirname(file)), { recursive: true });
      // Links stay what they are: `recursive` is for those that lead to a folder.
      cpSync(join(from, file), join(this.root, file), { recursive: true, verbatimSymlinks: true });
    }
    // Some tests ask Git which files there are. The link to modules is not one of them.
    for (const args of [
      ['init', '-q'],
      ['add', '-A'],
    ])
      execFileSync('git', args, { cwd: this.root, stdio: 'ignore' });
    writeFileSync(join(this.root, '.git/info/exclude'), 'node_modules\n');
    const modules = join(from, 'node_modules');
    if (existsSync(modules)) symlinkSync(modules, join(this.root, 'node_modules'));
  }

  plant(mutant: Mutant): void {
    const path = join(this.root, mutant.file);
    const text = this.#texts.get(path) ?? readFileSync(path, 'utf8');
    this.#texts.set(path, text);
    writeFileSync(path, plant(text, mutant));
  }

  /** Puts a file back as it was. */
  mend({ file }: Mutant): void {
    const path = join(this.root, file);
    writeFileSync(path, this.#texts.get(path) ?? '');
  }

  /** An arrow, because the end of the process calls it too. */
  readonly remove = (): void => {
    process.off('exit', this.remove);
    rmSync(this.root, { recursive: true, force: true });
  };
}

/** Every file of a project that is not ignored, new ones too. */
export function filesOf(root: string): string[] {
  const options = { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 } as const;
  return execFileSync('git', ['ls-files', '-co', '--exclude-standard'], options)
    .split('\n')
    .filter((file) => file !== '' && existsSync(join(root, file)));
}
