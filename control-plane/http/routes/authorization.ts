import type { FastifyRequest } from 'fastify';
import { ApiError } from '#shared/errors.ts';
import type { ApiAction, RootAction } from '../../core/permissions.ts';
import type { Keys } from '../../redis/keys.ts';
import type { Caller } from '../../redis/root-keys.ts';
import { note } from './audit-hooks.ts';
import { Hidden } from './hidden.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set before validation on every path under /v1; absent on all others. */
    caller: Caller | undefined;
  }
}

/** The caller that the authentication hook has put there. */
export function callerOf(request: { caller: Caller | undefined }): Caller {
  if (!request.caller) throw new Error('a route was not behind the authentication hook');
  return request.caller;
}

/** Throws NOT_FOUND where the caller may do nothing on this API, INSUFFICIENT_PERMISSIONS where not this. */
export function requireApi(caller: Caller, apiId: string, action: ApiAction, what = `api ${apiId}`): void {
  if (!caller.permissions.touches(apiId)) throw new Hidden(`${what} not found`, 'INSUFFICIENT_PERMISSIONS');
  if (!caller.permissions.allows(apiId, action)) {
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs api.${apiId}.${action}`);
  }
}

/** Throws INSUFFICIENT_PERMISSIONS unless the caller may do this. */
export function requireRoot(caller: Caller, action: RootAction): void {
  if (!caller.permissions.allowsRoot(action)) {
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs root.*.${action}`);
  }
}

const keyNotFound = (keyId: string) => new ApiError('NOT_FOUND', `key ${keyId} not found`);

/**
 * The NOT_FOUND of a key whose id leads to an API that has no record of it. Deleting takes the id away too, so that,
 * unless a delete is under way, Redis lost the record and verifiers may go on by what they have in memory.
 */
export async function recordNotFound(keys: Keys, apiId: string, keyId: string): Promise<ApiError> {
  if ((await keys.apiOf(keyId)) === undefined || (await keys.isApiDeleted(apiId))) return keyNotFound(keyId);
  const found = `key ${keyId} not found: its id is known, but Redis has no record of it`;
  const why = 'unless it is being deleted at this moment, the record was evicted or lost';
  const advice = 'verifiers that have the key in memory may still accept it; restart them to have it refused';
  return new ApiError(
    'NOT_FOUND',
    `${found}; ${why}, and ${advice} (deploy/alerts-control-plane.md: KeyfenceKeysEvicted)`,
  );
}

/** The API of a key on which the caller may do this; a key of an API that it has nothing to do with is not there. */
export async function requireKey(
  keys: Keys,
  request: FastifyRequest,
  keyId: string,
  action: ApiAction,
): Promise<string> {
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) {
    if (callerOf(request).permissions.touchesAll()) throw keyNotFound(keyId);
    throw new Hidden(`key ${keyId} not found`, 'NOT_FOUND');
  }
  note(request, { apiId });
  requireApi(callerOf(request), apiId, action, `key ${keyId}`);
  return apiId;
}

/** The same of the key with this secret, of which no message tells anything. */
export async function requireSecret(
  keys: Keys,
  request: FastifyRequest,
  secretHash: string,
  action: ApiAction,
): Promise<{ apiId: string; keyId: string }> {
  const found = await keys.find(secretHash);
  if (found === undefined) {
    if (callerOf(request).permissions.touchesAll()) throw new ApiError('NOT_FOUND', 'key not found');
    throw new Hidden('key not found', 'NOT_FOUND');
  }
  note(request, found);
  requireApi(callerOf(request), found.apiId, action, 'key');
  return found;
}
