import type { Writable } from 'node:stream';

/**
 * Has a stream write what it is given in one turn of the event loop in one go, at the end of the turn. A socket otherwise makes
 * a system call for each, 10 µs, and its reader may wake up for each.
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
