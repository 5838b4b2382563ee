import { ApiError } from '#shared/contract/errors.ts';
import { API_ACTIONS, type ApiAction, ROOT_ACTIONS, type RootAction } from '../../core/root-permissions.ts';
import type { Keys } from '../../redis/keys/keys.ts';
import type { Caller } from '../../redis/root-keys.ts';
import type { Call } from './call.ts';
import { MaskedNotFound } from './masked-not-found.ts';
import type { Operation } from './operation.ts';

/** Throws unless the caller has the permissions of the operation, and notes the API that the call is on. */
export async function authorize({ permissions }: Operation, call: Call, keys: Keys): Promise<void> {
  const { apiId, keyId } = call.request as { readonly apiId?: string; readonly keyId?: string };
  const ofKey = apiId === undefined && keyId !== undefined;
  for (const permission of permissions) {
    const rootAction = ROOT_ACTIONS.find((action) => permission === `root.*.${action}`);
    if (rootAction !== undefined) {
      requireRoot(call.caller, rootAction);
      continue;
    }
    call.apiId ||= ofKey ? await apiOfKey(call, keyId, keys) : (apiId ?? '');
    const action = API_ACTIONS.find((action) => permission === `api.<apiId>.${action}`);
    if (!call.apiId || !action) throw new Error(`${permission} cannot be checked by the request`);
    requireApi(call.caller, call.apiId, action, ofKey ? `key ${keyId}` : undefined);
  }
}

/** Throws NOT_FOUND where the caller may do nothing on this API, INSUFFICIENT_PERMISSIONS where not this. */
export function requireApi(caller: Caller, apiId: string, action: ApiAction, subject = `api ${apiId}`): void {
  if (!caller.permissions.touches(apiId))
    throw new MaskedNotFound(`${subject} not found`, 'INSUFFICIENT_PERMISSIONS');
  if (!caller.permissions.allows(apiId, action)) {
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs api.${apiId}.${action}`);
  }
}

function requireRoot(caller: Caller, action: RootAction): void {
  if (!caller.permissions.allowsRoot(action)) {
    throw new ApiError('INSUFFICIENT_PERMISSIONS', `the root key needs root.*.${action}`);
  }
}

/** The API of a key; a key of an API that the caller has nothing to do with is not there. */
async function apiOfKey(call: Call, keyId: string, keys: Keys): Promise<string> {
  const apiId = await keys.apiOf(keyId);
  if (apiId === undefined) throw absence(call.caller, `key ${keyId}`);
  call.note({ apiId });
  return apiId;
}

/** The NOT_FOUND of something that could be on an API that the caller does not see. */
export const absence = ({ permissions }: Caller, subject: string): ApiError =>
  permissions.touchesAll()
    ? new ApiError('NOT_FOUND', `${subject} not found`)
    : new MaskedNotFound(`${subject} not found`, 'NOT_FOUND');

/** The NOT_FOUND of an API that the caller may know of. */
export const apiNotFound = (apiId: string): ApiError => new ApiError('NOT_FOUND', `api ${apiId} not found`);

/**
 * The NOT_FOUND of a key whose id leads to an API that has no record of it. Deleting takes the id away too, so that,
 * unless a delete is under way, Redis lost the record and verifiers may go on by what they have in memory.
 */
export async function recordNotFound(keys: Keys, apiId: string, keyId: string): Promise<ApiError> {
  const message = `key ${keyId} not found`;
  if ((await keys.apiOf(keyId)) === undefined || (await keys.isApiDeleted(apiId)))
    return new ApiError('NOT_FOUND', message);
  const lossMessage = `${message}: its id is known, but Redis has no record of it`;
  const reason = 'unless it is being deleted at this moment, the record was evicted or lost';
  const advice = 'verifiers that have the key in memory may still accept it; restart them to have it refused';
  return new ApiError(
    'NOT_FOUND',
    `${lossMessage}; ${reason}, and ${advice} (deploy/alerts-control-plane.md: KeyfenceKeysEvicted)`,
  );
}
