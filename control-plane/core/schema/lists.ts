import { hash } from 'node:crypto';
import { Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';

export const Cursor = Type.Optional(
  Type.String({ description: 'Cursor of the next page; absent on the last page.' }),
);

/** Number of items in a page, as a string in a query. */
export const Limit = (items: string) =>
  Type.String({
    pattern: '^([1-9][0-9]?|100)$',
    default: '100',
    description: `${items} per page, 1..100.`,
  });

export const PageCursor = (form: { pattern: string } | { minLength: number; maxLength: number }) =>
  Type.Optional(Type.String({ ...form, description: 'Cursor from the previous page.' }));

/** The text for which a listing is searched. */
export const Search = (where: string) =>
  Type.Optional(
    Type.String({ maxLength: 256, description: `Part of ${where}, in any case. \`''\` finds all.` }),
  );

/** A condition that a listing has only if it is given. */
export const Only = (items: string) =>
  Type.Optional(Type.Literal('true', { description: `true: only ${items}.` }));

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
  field = 'cursor',
): readonly string[] {
  const text = Buffer.from(cursor, 'base64url').toString();
  const match = place.exec(text.slice(SUM_LENGTH));
  if (!match || !text.startsWith(sumOf(listing, match[0])))
    throw new ApiError(
      'BAD_REQUEST',
      `${field}: must be one that ${listing[0]} returned for the same listing; begin without a cursor`,
    );
  return match.slice(1);
}

const sumOf = (listing: readonly unknown[], place: string) =>
  hash('sha256', JSON.stringify([listing, place]), 'base64url').slice(0, SUM_LENGTH);
