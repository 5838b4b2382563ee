import { lstat, unlink } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import type { Setting } from '#shared/process/config.ts';

/** The longest path that a Unix socket can have on Linux, bytes. */
const PATH_BYTES_MAX = 107;

const socketPath: Setting<string> = {
  parse(path) {
    if (path !== '' && (!path.startsWith('/') || Buffer.byteLength(path) > PATH_BYTES_MAX)) {
      throw new Error(`"${path}" is not allowed`);
    }
    return path;
  },
  default: '',
  rule: `absolute path of at most ${PATH_BYTES_MAX} bytes`,
  help: 'A Unix socket that callers on this machine may use besides PORT, faster and without TLS. Every local user may; its directory decides who can reach it',
};

export const unixSettings = { LISTEN_UNIX: socketPath };

/**
 * Listens on a Unix socket that every local user may connect to, as on loopback; who may reach it is decided by
 * its directory. A socket that a killed process left behind is replaced; one in use is an error.
 */
export async function listenUnix(server: Server, path: string): Promise<string> {
  try {
    await bind(server, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || (await isAnswered(path))) throw error;
    await unlink(path);
    await bind(server, path);
  }
  return path;
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

/** Whether a process listens on the socket at `path`. A file of another kind counts as answered: it is not ours. */
async function isAnswered(path: string): Promise<boolean> {
  if (!(await lstat(path)).isSocket()) return true;
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code !== 'ECONNREFUSED'));
  });
}
