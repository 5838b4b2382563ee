import { createHmac, hash } from 'node:crypto';

/** The digests by which a key can be imported if its SHA-256 is not known, and their lengths in bytes. None has a salt. */
export const FOREIGN_DIGESTS = { sha512: 64, sha1: 20, hmacSha256: 32 } as const;
/** A digest of a secret other than SHA-256. */
export type ForeignDigest = keyof typeof FOREIGN_DIGESTS;
/** All of them, in the order in which verifiers look for them. */
export const foreignDigests = Object.keys(FOREIGN_DIGESTS) as ForeignDigest[];

/**
 * Returns what stands for the SHA-256 of a secret, wherever that is stored or compared, if only another digest is known. It
 * is no SHA-256 of any text that somebody could find: whoever knows the digest has no secret by it.
 */
export const nameOfDigest = (kind: ForeignDigest, digest: Buffer): Buffer =>
  hash('sha512', `${kind} ${digest.toString('hex')}`, 'buffer').subarray(0, 32);

/**
 * Returns a function that names a secret by each of its digests, in the form of `digestOf`.
 * @param pepper the key of the HMAC
 */
export function digestNames(
  kinds: readonly ForeignDigest[],
  pepper: string,
): (secret: string) => readonly string[] {
  const digestOf = (kind: ForeignDigest, secret: string) =>
    kind === 'hmacSha256'
      ? createHmac('sha256', pepper).update(secret).digest()
      : hash(kind, secret, 'buffer');
  return (secret) => kinds.map((kind) => nameOfDigest(kind, digestOf(kind, secret)).toString('latin1'));
}
