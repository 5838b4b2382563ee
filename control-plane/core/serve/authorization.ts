import { ApiError } from '#shared/rules/errors.ts';
import type { Caller } from '../callers/root-keys.ts';
import { API_ACTIONS, type ApiAction, ROOT_ACTIONS, type RootAction } from '../callers/root-permissions.ts';
import type { Call } from './call.ts';
import type { Operation } from './operation.ts';
import type { KeyIndex } from './ports.ts';

/** Returns the call with the API it acts on. Rejects unless the caller has the operation's permissions. */
export async function authorize<Request>(
  { permissions, knowsDeleted }: Pick<Operation, 'permissions' | 'knowsDeleted'>,
  call: Call<Request>,
  keys: KeyIndex,
): Promise<Call<Request>> {
  const { apiId, keyId } = call.request as { readonly apiId?: string; readonly keyId?: string };
  const ofKey = apiId === undefined && keyId !== undefined;
  let api = '';
  for (const permission of permissions) {
    const rootAction = ROOT_ACTIONS.find((action) => permission === `root.*.${action}`);
    if (rootAction !== undefined) {
      requireRoot(call.caller, rootAction);
      continue;
    }
    api ||= ofKey ? await apiOfKey(call, keyId, keys, knowsDeleted) : (apiId ?? '');
    const action = API_ACTIONS.find((action) => permission === `api.<apiId>.${action}`);
    if (!api || !action) throw new Error(`${permission} cannot be checked by the request`);
    requireApi(call.caller, api, action, ofKey ? `key ${keyId}` : undefined);
  }
  return { ...call, apiId: api };
}

/**
 * Throws NOT_FOUND if the caller has no permission on this API, INSUFFICIENT_PERMISSIONS if only this one is
 * missing.
 */
export function requireApi(caller: Caller, apiId: string, action: ApiAction, subject = `api ${apiId}`): void {
  if (!caller.permissions.touches(apiId))
    throw new MaskedNotFound(`${subject} not found`, 'INSUFFICIENT_PERMISSIONS');
  if (!caller.permissions.allows(apiId, action)) {
    throw lack(caller, `api.${apiId}.${action}`);
  }
}

function requireRoot(caller: Caller, action: RootAction): void {
  if (!caller.permissions.allowsRoot(action)) {
    throw lack(caller, `root.*.${action}`);
  }
}

/** The error for a permission that the caller lacks. */
export const lack = ({ person }: Caller, permission: string): ApiError =>
  new ApiError('INSUFFICIENT_PERMISSIONS', `${person ? 'the person' : 'the root key'} needs ${permission}`);

/** The API of a key. Throws NOT_FOUND if the id is unknown. */
async function apiOfKey(call: Call, keyId: string, keys: KeyIndex, knowsDeleted?: true): Promise<string> {
  const apiId = await (knowsDeleted ? keys.apiOfDeleted(keyId) : keys.apiOf(keyId));
  if (apiId === undefined) throw absence(call.caller, `key ${keyId}`);
  call.note({ apiId });
  return apiId;
}

/** The NOT_FOUND error for something that could be in an API that the caller may not see. */
export const absence = ({ permissions }: Caller, subject: string): ApiError =>
  permissions.touchesAll()
    ? new ApiError('NOT_FOUND', `${subject} not found`)
    : new MaskedNotFound(`${subject} not found`, 'NOT_FOUND');

/** The NOT_FOUND error for an API that the caller may know of. */
export const apiNotFound = (apiId: string): ApiError => new ApiError('NOT_FOUND', `api ${apiId} not found`);

/**
 * The NOT_FOUND error for a key whose id leads to an API without a record of it. A deletion also removes the
 * id; so, unless a deletion is under way, Redis has lost the record, and verifiers may still use the state in
 * their memory.
 */
export async function recordNotFound(keys: KeyIndex, apiId: string, keyId: string): Promise<ApiError> {
  const message = `key ${keyId} not found`;
  if ((await keys.apiOf(keyId)) === undefined || (await keys.isApiDeleted(apiId)))
    return new ApiError('NOT_FOUND', message);
  const lossMessage = `${message}: its id is known, but Redis has no record of it`;
  const reason = 'unless it is being deleted at this moment, the record was evicted or lost';
  const advice = 'verifiers that have the key in memory may still accept it; restart them to have it refused';
  return new ApiError(
    'NOT_FOUND',
    `${lossMessage}; ${reason}, and ${advice} (deploy/alerts.md: KeyfenceKeysEvicted)`,
  );
}

/**
 * NOT_FOUND for a caller who may not see every API: either there is no such thing, or a permission is
 * missing. Only the audit log says which. Both cases record an event; otherwise the response time would tell
 * them apart.
 */
export class MaskedNotFound extends ApiError {
  /** Outcome in the audit log. */
  readonly outcome: 'INSUFFICIENT_PERMISSIONS' | 'NOT_FOUND';

  constructor(message: string, outcome: MaskedNotFound['outcome']) {
    super('NOT_FOUND', message);
    this.outcome = outcome;
  }
}
