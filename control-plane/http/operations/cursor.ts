import { ApiError } from '#shared/contract/errors.ts';

/**
 * Encodes a place in a listing, which clients send back unchanged. They can decode it, so it may contain only
 * what the same caller may know anyway.
 */
export function makeCursor(place: string): string {
  return Buffer.from(place).toString('base64url');
}

/**
 * Decodes a cursor and returns the matched groups of its place. Throws BAD_REQUEST if it belongs to another
 * listing.
 * @param listing the name of the operation that returns such cursors, as clients call it
 */
export function openCursor(cursor: string, place: RegExp, listing: string): readonly string[] {
  const match = place.exec(Buffer.from(cursor, 'base64url').toString());
  if (!match) throw new ApiError('BAD_REQUEST', `cursor: must be one that ${listing} returned`);
  return match.slice(1);
}
