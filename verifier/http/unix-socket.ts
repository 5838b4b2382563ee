import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, unlinkSync } from 'node:fs';
import { link, lstat, unlink } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import type { Setting } from '#shared/process/load-config.ts';

/** The longest path of a Unix socket on Linux, in bytes. */
const PATH_BYTES_MAX = 107;
/** Length of the temporary names beside the socket: a dot, and 48 bits in base64. */
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
  rule: `absolute path of at most ${PATH_BYTES_MAX} bytes; its directory part: at most ${DIRECTORY_BYTES_MAX}`,
  help: 'Path of a Unix socket for callers on the same machine. The verifier then listens at this socket as well as at PORT. The socket is faster than TCP and has no TLS. Every local user with access to its directory can use it',
};

export const unixSettings = { LISTEN_UNIX: socketPath };

/**
 * Listens on a Unix socket. Every local user may connect, as on loopback; restrict access through the
 * socket's directory. Replaces a socket that a killed process left behind. Throws if the socket is in use.
 *
 * First listens on a socket with a temporary name, then links it to `path`; the link fails if `path` exists.
 * So `path` never exists before a process listens on it. When libuv finally unlinks the temporary name, it
 * finds nothing, and cannot remove another process's socket.
 * @returns a function that removes the socket file if it is still ours. Call it while `server` is still
 * listening: afterwards the inode number may belong to another file
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

/** Links the socket `own` to `path`, after removing a dead socket there. */
async function place(own: string, path: string): Promise<void> {
  while (!(await tryLink(own, path))) {
    if (await isTaken(own, path)) {
      throw Object.assign(new Error(`${path}: already in use`), { code: 'EADDRINUSE' });
    }
  }
}

/**
 * Returns true if the file at `path` belongs to a live process or is no socket; removes the socket of a dead
 * process. Only the process with the claim to this very file may remove it. Otherwise two processes could
 * both find the socket dead, and the second would remove the first one's new socket. A claim is a link to a
 * live socket, so a claim of a dead process is removed in the same way.
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

/** Returns the file name of the claim to a file. */
export function claimOn(path: string, identity: string): string {
  return join(dirname(path), `.${createHash('sha256').update(identity).digest('base64url').slice(0, 8)}`);
}

/** Identifies a file, even compared with a later file at the same inode; undefined = no file. */
export async function identityOf(path: string): Promise<string | undefined> {
  const stats = await lstat(path, { bigint: true }).catch(unless('ENOENT'));
  if (stats === undefined) return undefined;
  return stats.isSocket() ? `${stats.dev} ${stats.ino} ${stats.mtimeNs}` : 'no socket';
}

/** Links a second name to a file. Returns false if that name exists. */
async function tryLink(from: string, to: string): Promise<boolean> {
  return (await link(from, to).then(() => true, unless('EEXIST'))) === true;
}

/** Returns an error handler that ignores errors with the code `expected` and throws all others. */
function unless(expected: string): (error: NodeJS.ErrnoException) => undefined {
  return (error) => {
    if (error.code !== expected) throw error;
  };
}

/** Returns true if a process listens on the socket at `path`. */
function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    // ENOENT: the file is gone, and the caller tries again.
    probe.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'),
    );
  });
}
