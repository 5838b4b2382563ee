import { apiKeys, metaKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script, type ScriptCall } from '#shared/redis/script.ts';
import type { LogEntry, Successor, WriteRefusal } from '../writer/change-log-port.ts';
import { digestOf } from './new-key-record.ts';

/** Creates a successor; `rerollCall` makes its arguments. */
export const rerollScript = new Script(new URL('./reroll-key.lua', import.meta.url));

/**
 * The maximum number of keys that share a pool of credits: if the pool is replaced, all of them change in one
 * step.
 */
const SHARING_MAX = 100;

/**
 * The call of `rerollScript`.
 * @param write the call of write-change.lua for the key to be rerolled
 */
export function rerollCall(
  apiId: string,
  write: ScriptCall,
  successor: Successor,
  creationsKept: number,
): ScriptCall {
  const { keyId, secretHash, start, bytes = '', latestMs, operationId } = successor;
  const content = digestOf([keyId, secretHash]);
  return {
    keys: [...write.keys, apiKeys(apiId).creations, recordKey(apiId, keyId), metaKey(apiId, keyId)],
    args: [
      // Leave out the operation, and the arguments from 9 on, which only write-change.lua takes.
      ...write.args.slice(1, 8),
      ...[keyId, secretHash, start, bytes, latestMs, creationsKept, SHARING_MAX, operationId, content],
    ],
  };
}

/**
 * Parses the script's reply: either the refusal, or the outcome and the part that write-change.lua returns
 * for the change.
 */
export function rerolledOf(reply: unknown): {
  readonly refusal?: WriteRefusal;
  readonly rerolled?: Pick<LogEntry, 'rerolled'>;
  readonly change: unknown;
} {
  const [status, first = '', deleted, ...change] = reply as string[];
  const [keyId, secretHash] = (deleted ?? '').split(' ');
  if (status === 'REROLLED') return { refusal: { status, successor: first }, change };
  if (status === 'SHARED') return { refusal: { status, keys: Number(first) }, change };
  if (status === 'REUSED') return { refusal: { status }, change };
  if (status === 'ENDED') return { refusal: { status }, change };
  if (status !== 'OK') return { change: reply };
  return {
    rerolled: {
      rerolled: { expires: first, deleted: keyId && secretHash ? { keyId, secretHash } : undefined },
    },
    change: [status, ...change],
  };
}
