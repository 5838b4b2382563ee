import type { Writable } from 'node:stream';

/**
 * Makes a stream send all writes of one turn of the event loop together, at the end of the turn. A socket
 * would otherwise make a system call for each write (10 µs), and might wake its reader for each.
 */
export function writeTogether(stream: Writable): void {
  const write = stream.write.bind(stream);
  let waits = false;
  const go = () => {
    waits = false;
    stream.uncork();
  };
  const together = (...args: Parameters<typeof write>) => {
    if (!waits) {
      waits = true;
      stream.cork();
      setImmediate(go);
    }
    return write(...args);
  };
  stream.write = together as typeof stream.write;
}
