import type { FastifyRequest } from 'fastify';
import { ApiError } from '#shared/errors.ts';
import type { Keys } from '../keys.ts';
import type { ApiAction, RootAction } from '../permissions.ts';
import type { Caller } from '../root-keys.ts';
import { note } from './trail.ts';

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

/** NOT_FOUND said in place of INSUFFICIENT_PERMISSIONS. Only the audit log is told. */
export class Hidden extends ApiError {}

/** Throws NOT_FOUND where the caller may do nothing on this API, INSUFFICIENT_PERMISSIONS where not this. */
export function requireApi(caller: Caller, apiId: string, action: ApiAction, what = `api ${apiId}`): void {
  if (!caller.permissions.touches(apiId)) throw new Hidden('NOT_FOUND', `${what} not found`);
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

export const keyNotFound = (keyId: string) => new ApiError('NOT_FOUND', `key ${keyId} not found`);

/** The API of a key on which the caller may do this; a key of an API that it has nothing to do with is not there. */
export async function requireKey(
  keys: Keys,
  request: FastifyRequest,
  keyId: string,
  action: ApiAction,
): Promise<string> {
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw keyNotFound(keyId);
  note(request, { apiId });
  requireApi(callerOf(request), apiId, action, `key ${keyId}`);
  return apiId;
}
