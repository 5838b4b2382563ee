import { apiKeys, metaKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script, type ScriptCall } from '#shared/redis/script.ts';
import type { LogEntry, Successor, WriteRefusal } from '../../core/change-log-port.ts';
import { CREATIONS_KEPT, digestOf } from './new-key-record.ts';

/** Makes a successor; `rerollCall` makes its arguments. */
export const rerollScript = new Script(new URL('../lua/keys/reroll-key.lua', import.meta.url));

/** Keys that share a pool of credits: where it is replaced, each of them is changed in one step. */
const SHARING_MAX = 100;

/**
 * The call of `rerollScript`.
 * @param write that of write-change.lua for the key that is rerolled
 */
export function rerollCall(apiId: string, write: ScriptCall, successor: Successor): ScriptCall {
  const { keyId, secretHash, start, bytes = '', latestMs, operationId } = successor;
  const content = digestOf([keyId, secretHash]);
  return {
    keys: [...write.keys, apiKeys(apiId).creations, recordKey(apiId, keyId), metaKey(apiId, keyId)],
    args: [
      // Without the operation, and from what only write-change.lua is told on.
      ...write.args.slice(1, 8),
      ...[keyId, secretHash, start, bytes, latestMs, CREATIONS_KEPT, SHARING_MAX, operationId, content],
    ],
  };
}

/** Reads what the script answered: why nothing was written, or what was, and what write-change.lua answers for it. */
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
