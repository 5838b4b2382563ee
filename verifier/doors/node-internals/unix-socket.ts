import { hash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { lstatSync, renameSync, statSync, unlinkSync } from 'node:fs';
import { connect, createServer, type ListenOptions, type Server } from 'node:net';
import { basename, dirname, join } from 'node:path';
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
  help: 'Path of a Unix socket for callers on the same machine. It is faster than TCP and has no TLS. Every local user with access to its directory can use it',
};

export const unixSettings = { LISTEN_UNIX: socketPath };

/**
 * Listens on a Unix socket. Every local user may connect, as on loopback; restrict access through the
 * socket's directory. Replaces a socket that a killed process left behind. Throws if the socket is in use.
 *
 * First listens on a socket with a temporary name, then renames it to `path`. So `path` never exists before a
 * process listens on it. When libuv finally unlinks the temporary name, it finds nothing, and cannot remove
 * another process's socket.
 * @returns a function that removes the socket file if it is still ours. Call it while `server` is still
 * listening: afterwards the inode number may belong to another file
 */
export async function listenUnix(server: Server, path: string): Promise<() => void> {
  const own = join(dirname(path), `.${randomBytes(6).toString('base64url')}`);
  await bind(server, { path: own, readableAll: true, writableAll: true });
  const { dev, ino } = lstatSync(own, { bigint: true });
  const lock = createServer();
  try {
    if (process.platform === 'linux') await bind(lock, { path: lockOf(path) });
    if (await isTaken(path)) throw Object.assign(new Error(`${path}: in use`), { code: 'EADDRINUSE' });
    renameSync(own, path);
  } catch (error) {
    await new Promise((resolve) => server.close(resolve));
    throw error;
  } finally {
    lock.close();
  }
  return () => {
    const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    if (stats?.ino === ino && stats.dev === dev) unlinkSync(path);
  };
}

/**
 * Returns the address of a socket without a file, which ends with its process, however that ends. Who listens on
 * it alone may take the place at `path`. Otherwise two processes could both find a dead socket there, and the
 * second would replace the first one's new socket. Only Linux has such sockets, one set in each network namespace.
 */
function lockOf(path: string): string {
  const { dev, ino } = statSync(dirname(path), { bigint: true });
  return `\0keyfence ${hash('sha256', `${dev} ${ino} ${basename(path)}`)}`;
}

async function bind(server: Server, options: ListenOptions): Promise<void> {
  server.listen(options);
  await once(server, 'listening');
}

/** Returns true if the file at `path` is no socket, or a process listens on it. */
async function isTaken(path: string): Promise<boolean> {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (!stats?.isSocket()) return stats !== undefined;
  const probe = connect(path);
  try {
    await once(probe, 'connect');
    return true;
  } catch (error) {
    // ENOENT: the file is gone.
    return !['ECONNREFUSED', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '');
  } finally {
    probe.destroy();
  }
}
