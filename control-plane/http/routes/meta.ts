import { ApiError } from '#shared/errors.ts';

const BYTES_MAX = 8192;
/** Below what parsers of JSON bear that are in use; verifiers hand metas to programs of every kind. */
const DEPTH_MAX = 32;

/** Throws BAD_REQUEST where a meta is too deep or too long. */
export function checkMeta(meta: object): void {
  // First: writing it as text is recursive, and ends with an error of its own where it is deep.
  if (isDeeper(meta, DEPTH_MAX)) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${DEPTH_MAX} levels deep`);
  }
  if (Buffer.byteLength(JSON.stringify(meta)) > BYTES_MAX) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${BYTES_MAX} bytes of JSON`);
  }
}

/** Whether objects and lists lie within each other in more levels than `levels`. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeper(part, levels - 1));
}
