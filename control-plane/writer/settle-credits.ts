import { command, row } from '#shared/redis/command.ts';
import { apiKeys, poolKey, recordKey } from '#shared/redis/redis-keys.ts';

const settleCredits = command(
  new URL('../keys/settle-credits.lua', import.meta.url),
  ['record', 'members', 'held'],
  ['pools'],
  row('isSettled', 'remaining'),
);
/** Ends what can be ended; an empty `remaining` means that the key has no counted credits. */
export function settleRun(apiId: string, keyId: string) {
  const { members, held } = apiKeys(apiId);
  return settleCredits({ record: recordKey(apiId, keyId), members, held, pools: poolKey(apiId, '') });
}
