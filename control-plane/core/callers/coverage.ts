import { ApiError } from '#shared/rules/errors.ts';
import type { Caller } from './root-keys.ts';

/**
 * Throws unless the caller has all these permissions: callers can neither grant nor manage more than they
 * have.
 */
export function requireCovered({ permissions, person }: Caller, slugs: readonly string[]): void {
  if (!permissions.covers(slugs)) {
    const holder = person ? 'the person' : 'the root key';
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `${holder} itself lacks some of these permissions`);
  }
}
