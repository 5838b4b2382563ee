import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const CHECKSUM_LENGTH = 6;
const START_LENGTH = 4;
/** Number of random bytes that are drawn together, because a call for each key and id would cost 5 µs. */
const DRAWN_AT_ONCE = 4096;
const KEY_PATTERN = /^(?:[A-Za-z0-9_]{1,16}_)?[0-9A-Za-z]{22,350}$/;

/**
 * Creates a key: `[prefix_]`, the random bytes in base62, and 6 characters of CRC-32 over everything before
 * them. The checksum reveals a mistyped or made-up key without a look-up (as in GitHub's tokens).
 * @param byteLength number of random bytes, 16 or more
 */
export function generateKey(byteLength: number, prefix?: string, random = drawBytes): string {
  const width = Math.ceil((byteLength * 8) / Math.log2(62));
  const body = (prefix === undefined ? '' : `${prefix}_`) + base62(random(byteLength), width);
  return body + checksum(body);
}

/**
 * Returns true if `key` has Keyfence's format and a correct checksum. Does not check whether the key exists.
 */
export function isWellFormed(key: string): boolean {
  if (!KEY_PATTERN.test(key)) return false;
  const split = key.length - CHECKSUM_LENGTH;
  return checksum(key.slice(0, split)) === key.slice(split);
}

export const SECRET_LENGTH_MAX = 512;
const SECRET = new RegExp(`^[!-~]{1,${SECRET_LENGTH_MAX}}$`);

/**
 * Returns true if a text can be the secret of a key, whoever made it: 1 to SECRET_LENGTH_MAX printable characters of
 * ASCII without blanks. Any other text would not arrive in every header as it arrives in JSON.
 */
export const canBeSecret = (text: string): boolean => SECRET.test(text);

/** Returns the part of a key that may be shown: its prefix and the first 4 random characters. */
export function startOf(key: string): string {
  return key.slice(0, key.lastIndexOf('_') + 1 + START_LENGTH);
}

/** Returns the form in which a secret is stored and compared, unless it was imported by another digest: SHA-256, base64url (43 characters). */
export function hashSecret(secret: string): string {
  return hash('sha256', secret, 'base64url');
}

/**
 * Returns the same SHA-256 as `hashSecret`, with one character per byte. This form is a quarter shorter and faster
 * to create, but not printable; use it only for look-ups in memory.
 */
export function digestOf(secret: string): string {
  return hash('sha256', secret, 'binary');
}

/** Converts the result of `hashSecret` to that of `digestOf`. */
export function digestFrom(secretHash: string): string {
  return Buffer.from(secretHash, 'base64url').toString('latin1');
}

/** Converts the result of `digestOf` to that of `hashSecret`. */
export function secretHashFrom(digest: string): string {
  return Buffer.from(digest, 'latin1').toString('base64url');
}

/**
 * Creates an id: the kind's prefix, 8 base62 characters of Unix milliseconds and 12 random ones (71 bits). So
 * ids sort by creation time in ASCII order.
 */
export function generateId(
  kind:
    | 'key'
    | 'api'
    | 'root'
    | 'role'
    | 'permission'
    | 'verifier'
    | 'pool'
    | 'override'
    | 'endpoint'
    | 'session',
  nowMs: number,
  random = drawBytes,
): string {
  const time = base62(Buffer.from(nowMs.toString(16).padStart(12, '0'), 'hex'), 8);
  return `${kind}_${time}${base62(random(9), 13).slice(1)}`;
}

/**
 * Returns the identity's id. It is derived from the external id, so that a key is enough to find its
 * identity.
 */
export const identityIdOf = (externalId: string): string =>
  `${IDENTITY}${hash('sha256', externalId).slice(0, 40)}`;
/** The beginning of every identity's id, and of no other id. */
export const IDENTITY = 'identity_';

/** The beginning of every id of a namespace's record in the shared log, and of no other id. */
export const NAMESPACE = 'ratelimit_';

/**
 * Id of the record in the shared log that tells verifiers what holders of root keys may ask. One record for all of
 * them: a made-up root key then costs a verifier neither a look-up nor memory.
 */
export const ROOT_KEYS_ID = 'rootkeys';

let randomBuffer = Buffer.alloc(0);

/** Returns random bytes that no other caller gets. Keeps no copy of them. */
export function drawBytes(length: number): Buffer {
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

/** Returns big-endian base62, left-padded with zeros to `width`. */
function base62(bytes: Buffer, width: number): string {
  let rest = BigInt(`0x${bytes.toString('hex')}`);
  let text = '';
  while (rest > 0n) {
    text = DIGITS[Number(rest % 62n)] + text;
    rest /= 62n;
  }
  return text.padStart(width, '0');
}
