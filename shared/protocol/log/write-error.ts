import { SHARED_LOG } from '../../redis/redis-keys.ts';
import { ApiError } from '../../rules/errors.ts';
import { sequenceOf } from '../records/key-record.ts';
import { lengthInWords } from '../records/limit.ts';
import type { TooOld, Write, WriteRefusal } from './change-log-port.ts';

/** Returns the error for a change that was refused. */
export function writeError(
  { apiId, keyId, ifSequence, ifManagedBy }: Pick<Write, 'apiId' | 'keyId' | 'ifSequence' | 'ifManagedBy'>,
  outcome: WriteRefusal,
): ApiError {
  if (outcome.status === 'TOO_OLD') return tooOldError(apiId, outcome);
  if (outcome.status === 'UNLIMITED')
    return new ApiError('BAD_REQUEST', 'remaining: there are no credits yet; give some with `set`');
  if (outcome.status === 'NAME_TAKEN') return nameTakenError(outcome.name);
  if (outcome.status === 'REROLLED') {
    const advice = `if nobody has the secret of that key, reroll it with expiration 0`;
    return new ApiError('CONFLICT', `key ${keyId} was rerolled into ${outcome.successor} already; ${advice}`);
  }
  if (outcome.status === 'ENDED')
    return new ApiError('CONFLICT', `key ${keyId} has ended; give it a later \`expires\`, then reroll it`);
  if (outcome.status === 'SHARED') {
    const advice = 'none of which was rerolled and has ended; delete some, then reroll it';
    return new ApiError('CONFLICT', `key ${keyId} shares its credits with ${outcome.keys} keys, ${advice}`);
  }
  if (outcome.status === 'TOO_LONG') {
    const advice = `for key ${outcome.source} with keys.updateKey, then reroll it`;
    return new ApiError('BAD_REQUEST', `${lifetimeError(apiId, outcome.longestMs).message} ${advice}`);
  }
  if (outcome.status === 'REUSED')
    return new ApiError(
      'CONFLICT',
      'operationId: was used for another change of this key; give each change its own',
    );
  if (outcome.status === 'EXISTS')
    return new ApiError('CONFLICT', 'externalId: an identity with it exists already');
  if (outcome.status === 'CONFLICT' && ifManagedBy !== undefined) return managedByOthers(ifManagedBy);
  if (outcome.status === 'CONFLICT')
    return ifSequence === undefined
      ? new ApiError('CONFLICT', 'another write came first')
      : cameLate(ifSequence, sequenceOf(outcome.version));
  return new ApiError('NOT_FOUND', keyId ? `key ${keyId} not found` : `api ${apiId} not found`);
}

/** Returns the error for a change on a condition that no longer holds, with the present sequence. */
export const cameLate = (ifSequence: number, sequence: number): ApiError =>
  new ApiError(
    'CONFLICT',
    `ifSequence: somebody changed it after ${ifSequence}, the present sequence is ${sequence}; read it again, then send the change with that`,
  );

/** Returns the error for a deletion by a set that does not declare the thing any more. */
export const managedByOthers = (ifManagedBy: string): ApiError =>
  new ApiError(
    'CONFLICT',
    `ifManagedBy: ${ifManagedBy} does not declare it now; read it again, and delete it if it is yours`,
  );

/** Returns the error for a name that both a rate limit and a concurrency limit would have. */
export const nameTakenError = (name: string): ApiError =>
  new ApiError(
    'BAD_REQUEST',
    `concurrency: must not have the name of a limit in ratelimits; give one of the two limits named ${name} another name`,
  );

/** Returns the error for a key that would live longer than its API allows. */
export const lifetimeError = (apiId: string, longestMs: number): ApiError =>
  new ApiError(
    'BAD_REQUEST',
    `expires: keys of api ${apiId} may live at most ${lengthInWords(longestMs)} from now (its maxLifetimeMs); set an expiry within that`,
  );

/** Returns the error for a write that needs a later protocol than some verifiers of the API speak. */
export function tooOldError(apiId: string, { needs, followers, names }: TooOld): ApiError {
  const log = apiId === SHARED_LOG ? 'the shared log' : `api ${apiId}`;
  const more = followers > names.length ? ` and ${followers - names.length} more` : '';
  return new ApiError(
    'VERIFIERS_TOO_OLD',
    `nothing was written: it needs verifiers of protocol ${needs}, and ${log} is followed by older ones, registered as ${names.join(', ')}${more}; fleet.listVerifiers says where they run`,
  );
}
