import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, unlinkSync } from 'node:fs';
import { link, lstat, unlink } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import type { Setting } from '#shared/process/load-config.ts';

/** The longest path that a Unix socket can have on Linux, bytes. */
const PATH_BYTES_MAX = 107;
/** Of the names that we need beside it: a dot, and 48 bits in base64. */
const OWN_NAME_BYTES = 9;
const DIRECTORY_BYTES_MAX = PATH_BYTES_MAX - OWN_NAME_BYTES - 1;

const socketPath: Setting<string> = {
  parse(path) {
    const isLong =
      Buffer.byteLength(path) > PATH_BYTES_MAX || Buffer.byteLength(dirname(path)) > DIRECTORY_BYTES_MAX;
    if (path !== '' && (!path.startsWith('/') || isLong)) throw new Error(`"${path}" is not allowed`);
    return path;
  },
  default: '',
  rule: `absolute path of at most ${PATH_BYTES_MAX} bytes, its directory of at most ${DIRECTORY_BYTES_MAX}`,
  help: 'Path of a Unix socket for callers on this machine, besides PORT; faster, and without TLS. Every local user who can reach its directory may use it',
};

export const unixSettings = { LISTEN_UNIX: socketPath };

/**
 * Listens on a Unix socket that every local user may connect to, as on loopback; who may reach it is decided by
 * its directory. A socket that a killed process left behind is replaced; one in use is an error.
 *
 * The socket is made under a name of our own and linked to `path`, which fails where something is there. So it is never
 * there before it is listened on, and libuv, which at the end unlinks the name that it was given, whosever file that has
 * become, finds nothing.
 * @returns takes the file away, if it is still ours; to be called while `server` still listens, as its inode may be
 *   another's afterwards
 */
export async function listenUnix(server: Server, path: string): Promise<() => void> {
  const own = join(dirname(path), `.${randomBytes(6).toString('base64url')}`);
  await bind(server, own);
  try {
    await place(own, path);
  } catch (error) {
    await new Promise((resolve) => server.close(resolve));
    throw error;
  }
  const { dev, ino } = await lstat(own, { bigint: true });
  await unlink(own);
  return () => {
    const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    if (stats?.ino === ino && stats.dev === dev) unlinkSync(path);
  };
}

function bind(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path, readableAll: true, writableAll: true }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Gives the socket `own` the name `path`, too, which a dead one may have. */
async function place(own: string, path: string): Promise<void> {
  while (!(await tryLink(own, path))) {
    if (await isTaken(own, path)) {
      throw Object.assign(new Error(`${path}: already in use`), { code: 'EADDRINUSE' });
    }
  }
}

/**
 * Tells whether the file at `path` is another's; a socket of a dead process is removed. That is up to whoever has the claim to
 * that very file, lest two find it dead and the second removes what the first has put there. A claim is a name of a live
 * socket, so that one whose process died is removed in the same way.
 */
async function isTaken(own: string, path: string): Promise<boolean> {
  const identity = await identityOf(path);
  if (identity === undefined) return false;
  if (identity === 'no socket' || (await isAnswered(path))) return true;
  const claim = claimOn(path, identity);
  if (!(await tryLink(own, claim))) return isTaken(own, claim);
  try {
    if ((await identityOf(path)) === identity) await unlink(path);
  } finally {
    await unlink(claim);
  }
  return false;
}

/** The name of the claim to a file. */
export function claimOn(path: string, identity: string): string {
  return join(dirname(path), `.${createHash('sha256').update(identity).digest('base64url').slice(0, 8)}`);
}

/** Identifies a file, also among those that have its inode later; undefined = there is none. */
export async function identityOf(path: string): Promise<string | undefined> {
  const stats = await lstat(path, { bigint: true }).catch(unless('ENOENT'));
  if (stats === undefined) return undefined;
  return stats.isSocket() ? `${stats.dev} ${stats.ino} ${stats.mtimeNs}` : 'no socket';
}

/** Gives a file a second name; false where there is a file of that name. */
async function tryLink(from: string, to: string): Promise<boolean> {
  return (await link(from, to).then(() => true, unless('EEXIST'))) === true;
}

/** Handles errors with one code; others are thrown on. */
function unless(expected: string): (error: NodeJS.ErrnoException) => undefined {
  return (error) => {
    if (error.code !== expected) throw error;
  };
}

/** Tells whether a process listens on the socket at `path`. */
function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    // ENOENT: the file is gone, and the caller looks again.
    probe.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'),
    );
  });
}
