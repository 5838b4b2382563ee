import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const CHECKSUM_LENGTH = 6;
const START_LENGTH = 4;
/** Random bytes that are drawn at once: a call for each key and id costs 5 µs. */
const DRAWN_AT_ONCE = 4096;
const KEY_PATTERN = /^(?:[A-Za-z0-9_]{1,16}_)?[0-9A-Za-z]{22,350}$/;

/**
 * A new key: `[prefix_]` + the random bytes in base62 + 6 characters of CRC-32 over all before them,
 * so that a mistyped or made-up key is refused by arithmetic (as GitHub's tokens are).
 * @param byteLength random bytes, 16 or more
 */
export function generateKey(byteLength: number, prefix?: string, random = drawBytes): string {
  const width = Math.ceil((byteLength * 8) / Math.log2(62));
  const body = (prefix === undefined ? '' : `${prefix}_`) + base62(random(byteLength), width);
  return body + checksum(body);
}

/** Tells whether `key` is of our format and its checksum holds, not whether it exists. */
export function isWellFormed(key: string): boolean {
  if (!KEY_PATTERN.test(key)) return false;
  const split = key.length - CHECKSUM_LENGTH;
  return checksum(key.slice(0, split)) === key.slice(split);
}

/** The part of a key that may be shown: its prefix and the first 4 random characters. */
export function startOf(key: string): string {
  return key.slice(0, key.lastIndexOf('_') + 1 + START_LENGTH);
}

/** The only form in which a secret is stored or compared: SHA-256, base64url (43 characters). */
export function hashSecret(secret: string): string {
  return hash('sha256', secret, 'base64url');
}

/**
 * The same SHA-256 as `hashSecret`, one character a byte: a quarter shorter in memory and quicker to make, but
 * not text. Only for looking up in memory.
 */
export function digestOf(secret: string): string {
  return hash('sha256', secret, 'binary');
}

/** `digestOf` from `hashSecret`. */
export function digestFrom(secretHash: string): string {
  return Buffer.from(secretHash, 'base64url').toString('latin1');
}

/** `hashSecret` from `digestOf`. */
export function secretHashFrom(digest: string): string {
  return Buffer.from(digest, 'latin1').toString('base64url');
}

/**
 * A new id: the kind's prefix, 8 base62 characters of Unix milliseconds and 12 random ones (71 bits),
 * so that ids sort by creation time in ASCII order.
 */
export function generateId(
  kind: 'key' | 'api' | 'root' | 'role' | 'permission' | 'verifier' | 'pool',
  nowMs: number,
  random = drawBytes,
): string {
  const time = base62(Buffer.from(nowMs.toString(16).padStart(12, '0'), 'hex'), 8);
  return `${kind}_${time}${base62(random(9), 13).slice(1)}`;
}

/** Returns the identity's id. It follows from the external id, so whoever has a key can look its identity up. */
export const identityIdOf = (externalId: string): string =>
  `${IDENTITY}${hash('sha256', externalId).slice(0, 40)}`;
/** Beginning of every identity's id, and of no other's. */
export const IDENTITY = 'identity_';

let randomBuffer = Buffer.alloc(0);

/** Random bytes that nobody else gets; none are kept once they are handed out. */
function drawBytes(length: number): Buffer {
  if (randomBuffer.length < length) randomBuffer = randomBytes(Math.max(length, DRAWN_AT_ONCE));
  const bytes = Buffer.from(randomBuffer.subarray(0, length));
  randomBuffer.fill(0, 0, length);
  randomBuffer = randomBuffer.subarray(length);
  return bytes;
}

function checksum(body: string): string {
  let rest = crc32(body);
  let text = '';
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    text = DIGITS[rest % 62] + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}

/** Big-endian base62, left-padded with zeros to `width`. */
function base62(bytes: Buffer, width: number): string {
  let rest = BigInt(`0x${bytes.toString('hex')}`);
  let text = '';
  while (rest > 0n) {
    text = DIGITS[Number(rest % 62n)] + text;
    rest /= 62n;
  }
  return text.padStart(width, '0');
}
