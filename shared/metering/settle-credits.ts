import { command, row } from '../redis/command.ts';
import { apiKeys, poolKey, recordKey } from '../redis/redis-keys.ts';

const settleCredits = command(
  new URL('./settle-credits.lua', import.meta.url),
  ['record', 'members', 'held'],
  ['pools'],
  row('isSettled', 'remaining'),
);
/** Ends what can be ended; an empty `remaining` means that the key has no counted credits. */
export function settleRun(apiId: string, keyId: string) {
  const { members, held } = apiKeys(apiId);
  return settleCredits({ record: recordKey(apiId, keyId), members, held, pools: poolKey(apiId, '') });
}
