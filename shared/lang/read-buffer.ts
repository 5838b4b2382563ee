import { Socket } from 'node:net';

/** Bytes that one read brings at most; what Node itself reads at once. */
const READ_BYTES_MAX = 65_536;

/** Told that `length` bytes are at the start of `readBuffer`, where the next read of any socket overwrites them. */
type OnRead = (length: number) => boolean;

/** The memory into which the sockets of `readIntoBuffer` read. */
export const readBuffer = Buffer.allocUnsafeSlow(READ_BYTES_MAX);

/**
 * Has a connected socket read into `readBuffer` from now on, and call `onRead` instead of emitting `data`; `onRead`
 * returns false to read no more for now. Node otherwise makes and frees a buffer of 64 KiB for each read, 3 µs. For
 * sockets that one opens oneself this is the documented option `onread` of `net.Socket`; those that a server accepted or
 * a library opened get the same by the names that the option is found to have been stored under.
 * @returns false where this Node.js has no such names; then nothing was done
 */
export function readIntoBuffer(socket: Socket, onRead: OnRead): boolean {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (!names || !takesBuffer(handle)) return false;
  Object.assign(socket, { [names.buffer]: readBuffer, [names.callback]: onRead });
  handle.useUserBuffer(readBuffer);
  return true;
}

/**
 * Has a connected socket read likewise, and its readers get copies of what comes. Does nothing over TLS, where it was
 * not tried.
 */
export function readCopies(socket: Socket): void {
  if ('encrypted' in socket) return;
  readIntoBuffer(socket, (length) => socket.push(Buffer.from(readBuffer.subarray(0, length))));
}

/** Returns `bytes` from `at` on, as a copy where they lie in the shared memory and must be kept. */
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
