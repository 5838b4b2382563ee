import { createServer } from 'node:net';
import { listenUnix } from '../../../../verifier/doors/node-internals/unix-socket.ts';

/** A process that listens on a Unix socket as soon as it is told the path, and says its process id to whoever connects. */
const server = createServer((socket) => socket.end(String(process.pid)).on('error', () => undefined));
const say = (told: string) => process.send?.(told);

process.on('message', (path: string) => {
  listenUnix(server, path).then(
    () => say('up'),
    (error: NodeJS.ErrnoException) => say(error.code ?? error.message),
  );
});
say('ready');
