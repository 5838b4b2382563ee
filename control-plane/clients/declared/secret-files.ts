import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { canBeSecret } from '#shared/rules/key-format.ts';
import { fileError } from '../cli/commands/checkpoint.ts';
import { CliError } from '../cli/exit.ts';
import { makeSecret } from '../client/own-secret.ts';

/** The least length of a secret that people give: shorter ones can be guessed. */
const SECRET_MIN = 24;
/** The mode bits by which others than the owner may read or write a file. */
const OF_OTHERS = 0o077;
const SIGNING = /^whsec_\S+$/;

/** Returns the secret of a key in a file; undefined = there is no such file. Throws USAGE that names the file and the fix. */
export function secretIn(id: string, file: string): string | undefined {
  let text: string;
  try {
    const { mode } = statSync(file);
    text = readFileSync(file, 'utf8');
    if (process.platform !== 'win32' && (mode & OF_OTHERS) !== 0)
      throw fault(id, `others may read ${file}; run chmod 600 on it, and rotate the key if they have`);
  } catch (error) {
    if (error instanceof CliError) throw error;
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw fileError(file, error);
  }
  const secret = text.trim();
  if (!canBeSecret(secret)) throw fault(id, `${file} has no secret; delete it, and a new one is made`);
  if (secret.length < SECRET_MIN)
    throw fault(
      id,
      `the secret in ${file} must have at least ${SECRET_MIN} characters; delete it, and a new one is made`,
    );
  return secret;
}

const fault = (id: string, text: string) => new CliError('USAGE', `${id}: secret.file: ${text}`);

/** Returns the secret of a key in a file, which gets one if there is no such file. */
export function secretOrNew(id: string, file: string, prefix: string | undefined): string {
  const present = secretIn(id, file);
  if (present !== undefined) return present;
  const own = `${file}.${process.pid}`;
  try {
    write(own, `${makeSecret(prefix)}\n`);
    linkSync(own, file);
  } catch (error) {
    // Another run was faster, and its file counts.
    if (Object(error).code !== 'EEXIST') throw error instanceof CliError ? error : fileError(file, error);
  } finally {
    rmSync(own, { force: true });
  }
  const secret = secretIn(id, file);
  if (secret === undefined) throw fault(id, `${file} leads to a file that does not exist; delete that link`);
  return secret;
}

/**
 * The file for the signing secret of a webhook, which only the answer to one call has. Beside it lies a mark from before that call
 * until the secret is there and known to be the present one: as long as the mark is there, a run replaces the secret.
 */
export class SigningFile {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  get #mark(): string {
    return `${this.#file}.new`;
  }

  /** True if the answer with the secret was lost, or may have been. */
  get isLost(): boolean {
    return existsSync(this.#mark);
  }

  /** Marks that a secret will come. Throws USAGE if the file is of something else. */
  expect(id: string): void {
    try {
      if (existsSync(this.#file) && !SIGNING.test(readFileSync(this.#file, 'utf8').trim()))
        throw fault(id, `${this.#file} has something else than the secret of a webhook; name another file`);
      write(this.#mark, '');
    } catch (error) {
      throw error instanceof CliError ? error : fileError(this.#file, error);
    }
  }

  /** Keeps a secret, in place of an earlier one. The mark stays. */
  keep(secret: string): void {
    const own = `${this.#file}.${process.pid}`;
    try {
      write(this.#mark, '');
      write(own, `${secret}\n`);
      renameSync(own, this.#file);
    } catch (error) {
      throw error instanceof CliError ? error : fileError(this.#file, error);
    } finally {
      rmSync(own, { force: true });
    }
  }

  /** Takes the mark away: the secret is known to be the present one, or there is none to come. */
  unmark(): void {
    rmSync(this.#mark, { force: true });
  }
}

/** Writes a whole file that only its owner can read, and that Git ignores if its folder is new. */
function write(file: string, text: string): void {
  try {
    const newFolder = mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    if (newFolder !== undefined) writeFileSync(join(newFolder, '.gitignore'), '*\n');
    rmSync(file, { force: true });
    writeFileSync(file, text, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    rmSync(file, { force: true });
    throw fileError(file, error);
  }
}
