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
 * Bytes of the request at the start of `bytes`, its body included, of which maybe not all is here: told from its head alone,
 * where that is whole and so plain that no parser sees the end elsewhere. 0 = it is not.
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

/** Methods that say nothing of the connection, and with a body only where there is a length; with a target's first byte. */
const STARTS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method) =>
  Buffer.from(`${method} /`),
);

const HEADERS = headersOf({ 'content-length': CONTENT_LENGTH });
