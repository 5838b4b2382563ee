import { ApiError } from '#shared/contract/errors.ts';

/**
 * A place in a listing, which clients hand back as it is. They can decode it: it may hold only what the same caller is told
 * anyway.
 */
export function makeCursor(place: string): string {
  return Buffer.from(place).toString('base64url');
}

/**
 * The matched parts of the place in a cursor. Throws BAD_REQUEST where it is of another listing.
 * @param listing the operation that gives such cursors, as clients call it
 */
export function openCursor(cursor: string, place: RegExp, listing: string): readonly string[] {
  const match = place.exec(Buffer.from(cursor, 'base64url').toString());
  if (!match) throw new ApiError('BAD_REQUEST', `cursor: must be one that ${listing} returned`);
  return match.slice(1);
}
