import {
  CONTENT_LENGTH,
  follows,
  type Head,
  HOST,
  headersOf,
  scanHead,
  TARGET,
  UPGRADE,
  VERSION,
} from './scan-head.ts';

/**
 * Returns the length of the request at the start of `bytes`, with its body, which may still be arriving. The
 * length is read from the head alone, if the head is complete and so plain that every parser agrees on the
 * request's end; otherwise 0.
 */
export function plainLength(bytes: Buffer, head: Head): number {
  const start = STARTS.find((text) => follows(bytes, 0, text));
  if (start === undefined) return 0;
  let i = start.length;
  while (TARGET[bytes[i] as number] === 1) i++;
  if (!follows(bytes, i, VERSION)) return 0;
  const body = scanHead(bytes, 0, i + VERSION.length, HEADERS, head);
  return body > 0 && (head.headerBits & HOST) !== 0 && (head.headerBits & UPGRADE) === 0
    ? body + head.length
    : 0;
}

/**
 * Methods that do not affect the connection, and that have a body only with a length. Each with the first
 * byte of the target.
 */
const STARTS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method) =>
  Buffer.from(`${method} /`),
);

const HEADERS = headersOf({ 'content-length': CONTENT_LENGTH });
