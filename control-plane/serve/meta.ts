import { ApiError } from '#shared/contract/errors.ts';

const BYTES_MAX = 8192;
/** Common JSON parsers accept this depth; verifiers pass metas on to programs of every kind. */
const DEPTH_MAX = 32;

/** Throws BAD_REQUEST if a meta is too deep or too long, or has a number that would be stored as another one. */
export function checkMeta(meta: object): void {
  // Check the depth first: JSON.stringify is recursive and would fail on a deep meta.
  if (isDeeper(meta, DEPTH_MAX)) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${DEPTH_MAX} levels deep`);
  }
  if (hasInfinity(meta))
    throw new ApiError(
      'BAD_REQUEST',
      'meta: must have no number that would change: beyond 1.8e308, or a whole number of more than 53 bits (9007199254740991); send such a number as a string',
    );
  if (Buffer.byteLength(JSON.stringify(meta)) > BYTES_MAX) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${BYTES_MAX} bytes of JSON`);
  }
}

/** Tells whether objects and lists are nested deeper than `levels`. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeper(part, levels - 1));
}

/** Tells whether there is a number that was parsed as infinite, also by `parseExactly`; it would be written as null. */
const hasInfinity = (value: unknown): boolean =>
  typeof value === 'object' && value !== null
    ? Object.values(value).some(hasInfinity)
    : typeof value === 'number' && !Number.isFinite(value);
