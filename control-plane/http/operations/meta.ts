import { ApiError } from '#shared/contract/errors.ts';

const BYTES_MAX = 8192;
/** Common JSON parsers accept this depth; verifiers hand metas to programs of every kind. */
const DEPTH_MAX = 32;

/** Throws BAD_REQUEST where a meta is too deep or too long, or has a number that JSON cannot hold. */
export function checkMeta(meta: object): void {
  // Depth first: JSON.stringify is recursive and fails on its own where the meta is too deep.
  if (isDeeper(meta, DEPTH_MAX)) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${DEPTH_MAX} levels deep`);
  }
  if (hasInfinity(meta)) throw new ApiError('BAD_REQUEST', 'meta: must have no number beyond 1.8e308');
  if (Buffer.byteLength(JSON.stringify(meta)) > BYTES_MAX) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${BYTES_MAX} bytes of JSON`);
  }
}

/** Tells whether objects and lists are nested deeper than `levels`. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeper(part, levels - 1));
}

/** Tells whether there is a number that was read as infinite, and would be written as null. */
const hasInfinity = (value: unknown): boolean =>
  typeof value === 'object' && value !== null
    ? Object.values(value).some(hasInfinity)
    : typeof value === 'number' && !Number.isFinite(value);
