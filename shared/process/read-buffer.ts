import { Socket } from 'node:net';

/** The maximum number of bytes per read, the same as in Node itself. */
const READ_BYTES_MAX = 65_536;

/**
 * Called when `length` new bytes are at the start of `readBuffer`. The next read of any socket overwrites
 * them.
 */
type OnRead = (length: number) => boolean;

/** The memory into which the sockets of `readIntoBuffer` read. */
export const readBuffer = Buffer.allocUnsafeSlow(READ_BYTES_MAX);

/**
 * Makes a connected socket read into `readBuffer` from now on. The socket then calls `onRead` instead of
 * emitting `data`; `onRead` returns false to pause reading. Without this, Node allocates and frees a buffer
 * of 64 KiB for each read, which takes 3 µs. For a socket that the caller opens itself, this is the
 * documented option `onread` of `net.Socket`. A socket that a server accepted or a library opened has no such
 * option, so this function sets the same internal properties. It finds their names with a probe socket.
 * @returns false if this version of Node.js lacks these properties; the socket is then unchanged
 */
export function readIntoBuffer(socket: Socket, onRead: OnRead): boolean {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (!names || !takesBuffer(handle)) return false;
  Object.assign(socket, { [names.buffer]: readBuffer, [names.callback]: onRead });
  handle.useUserBuffer(readBuffer);
  return true;
}

/**
 * Makes a connected socket read into `readBuffer`, and passes copies of the data to the socket's readers.
 * Does nothing over TLS, where this is untested.
 */
export function readCopies(socket: Socket): void {
  if ('encrypted' in socket) return;
  readIntoBuffer(socket, (length) => socket.push(Buffer.from(readBuffer.subarray(0, length))));
}

/**
 * Returns `bytes` from `at` on. Returns a copy if `bytes` lies in the shared memory, which the next read
 * overwrites.
 */
export function restOf(bytes: Buffer, at: number): Buffer {
  if (bytes.buffer !== readBuffer.buffer) return bytes.subarray(at);
  const copy = Buffer.allocUnsafe(bytes.length - at);
  bytes.copy(copy, 0, at);
  return copy;
}

interface Handle {
  useUserBuffer(buffer: Buffer): void;
}

const takesBuffer = (handle: unknown): handle is Handle =>
  typeof handle === 'object' &&
  handle !== null &&
  'useUserBuffer' in handle &&
  typeof handle.useUserBuffer === 'function';

const names = ((): { buffer: symbol; callback: symbol } | undefined => {
  const callback: OnRead = () => true;
  const probe = new Socket({ onread: { buffer: readBuffer, callback } });
  const symbols = Object.getOwnPropertySymbols(probe);
  const nameOf = (value: unknown) => symbols.find((name) => Reflect.get(probe, name) === value);
  const [bufferName, callbackName] = [nameOf(readBuffer), nameOf(callback)];
  return bufferName && callbackName && { buffer: bufferName, callback: callbackName };
})();
