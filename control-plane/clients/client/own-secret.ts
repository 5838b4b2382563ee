import {
  drawBytes,
  generateKey,
  hashSecret,
  isWellFormed,
  startOf,
} from '../../../shared/rules/key-format.ts';

const BYTES = 16;

/**
 * Makes a secret in Keyfence's format, for a client that stores it before the key exists. A creation whose answer was lost
 * can then be repeated: `keys.importKeys` of `digestOf(secret)` answers the same key each time.
 */
export const makeSecret = (prefix?: string, byteLength = BYTES, random = drawBytes): string =>
  generateKey(byteLength, prefix, random);

/** The fields of a key in `keys.importKeys` that tell of its secret, which itself is not sent. */
export function digestOf(secret: string): {
  readonly sha256: string;
  readonly start: string;
  readonly foreign: boolean;
} {
  const foreign = !isWellFormed(secret);
  return { sha256: hashSecret(secret), start: foreign ? secret.slice(0, 4) : startOf(secret), foreign };
}
