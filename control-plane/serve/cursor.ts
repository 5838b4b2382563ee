import { hash } from 'node:crypto';
import { ApiError } from '#shared/contract/errors.ts';

/** Number of characters that tell whether a cursor is whole and belongs to a listing. */
const SUM_LENGTH = 8;

/**
 * Encodes a place in a listing, which clients send back unchanged. They can decode it, so it may contain only
 * what the same caller may know anyway.
 * @param listing the name of the operation as clients call it, and everything that chooses what it lists
 */
export function makeCursor(listing: readonly [name: string, ...filter: unknown[]], place: string): string {
  return Buffer.from(sumOf(listing, place) + place).toString('base64url');
}

/**
 * Decodes a cursor and returns the matched groups of its place. Throws BAD_REQUEST if it is cut or belongs to another
 * listing.
 */
export function openCursor(
  listing: readonly [name: string, ...filter: unknown[]],
  cursor: string,
  place: RegExp,
): readonly string[] {
  const text = Buffer.from(cursor, 'base64url').toString();
  const match = place.exec(text.slice(SUM_LENGTH));
  if (!match || !text.startsWith(sumOf(listing, match[0])))
    throw new ApiError(
      'BAD_REQUEST',
      `cursor: must be one that ${listing[0]} returned for the same listing; begin without a cursor`,
    );
  return match.slice(1);
}

const sumOf = (listing: readonly unknown[], place: string) =>
  hash('sha256', JSON.stringify([listing, place]), 'base64url').slice(0, SUM_LENGTH);
