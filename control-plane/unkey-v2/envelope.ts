import { type Static, type TSchema, Type } from 'typebox';
import { unavailable } from '#shared/contract/errors.ts';
import { makeCursor, openCursor } from '../http/operations/cursor.ts';
import type { Propagation, PropagationResponse } from '../http/operations/response-parts.ts';
import type { Face } from './face.ts';

/** Parts of every request and response of version 2 of the interface. */

const Meta = Type.Object({
  requestId: Type.String({ description: 'The id by which logs name the request.' }),
});
const Pagination = Type.Object({
  cursor: Type.Optional(Type.String({ description: 'For the next page.' })),
  hasMore: Type.Boolean({ description: 'true: there is a next page.' }),
});
/** Data of a response without content. */
export const EmptyData = Type.Object({});

/**
 * Returns an empty response to a complete change. Throws SERVICE_UNAVAILABLE while the change is not
 * complete, because the response has no room to say so: clients then repeat the call, which waits for the
 * change.
 */
export function nothingOnceComplete({ propagation }: Static<typeof PropagationResponse>) {
  onceComplete(propagation);
  return { data: {} };
}

/**
 * Returns an empty response to a complete deletion. A repeated call finds nothing, so the error says how the
 * deletion ends.
 */
export function nothingOnceDeleted({ propagation }: Static<typeof PropagationResponse>) {
  onceComplete(propagation, 'it becomes so by itself, and the call sent again answers 404');
  return { data: {} };
}

/** Throws SERVICE_UNAVAILABLE while a change is not complete. */
export function onceComplete(
  { state, sequence }: Static<typeof Propagation>,
  advice = 'send it again to wait for it',
): void {
  if (state !== 'complete')
    throw unavailable(`the change is written as ${sequence} and not complete yet; ${advice}`);
}

/** Schema of a response. */
export const envelope = ({ data, paged }: Pick<Face, 'data' | 'paged'>): TSchema =>
  Type.Object({ meta: Meta, data, ...(paged ? { pagination: Pagination } : {}) });

/** Number of items in a page. */
export const PageLimit = Type.Integer({
  ...{ minimum: 1, maximum: 100, default: 100 },
  description: 'Maximum number of items in the page.',
});
/** Schema of the text for which a listing is searched. */
export const Search = (where: string) =>
  Type.Optional(
    Type.String({ maxLength: 256, description: `Part of ${where}, in any case. \`''\` finds all.` }),
  );
export const PageCursor = Type.Optional(
  Type.String({ minLength: 1, maxLength: 512, description: '`pagination.cursor` of the previous page.' }),
);

/** Returns the pagination for a response. */
export const pagination = (cursor: string | undefined) =>
  cursor === undefined ? { hasMore: false } : { cursor, hasMore: true };

const PLACE = /^v2:([0-9]{1,6})$/;

/**
 * Returns one page of a list that is read whole. Throws BAD_REQUEST if the cursor belongs to another listing.
 * @param listing as for `makeCursor`
 */
export function pageOf<Item>(
  all: readonly Item[],
  { limit, cursor }: { readonly limit: number; readonly cursor?: string },
  listing: Parameters<typeof makeCursor>[0],
) {
  const [from = 0] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE).map(Number);
  const next = from + limit;
  return {
    items: all.slice(from, next),
    pagination: pagination(next < all.length ? makeCursor(listing, `v2:${next}`) : undefined),
  };
}
