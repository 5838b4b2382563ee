import { command, row } from '../redis/command.ts';
import { apiKeys, poolKey, recordKey } from '../redis/redis-keys.ts';

const run = command(
  new URL('./end-debt.lua', import.meta.url),
  ['record', 'members', 'held'],
  ['pools'],
  row('isEnded', 'remaining'),
);
/** Ends what can be ended; an empty `remaining` means that the key has no counted credits. */
export function endDebt(apiId: string, keyId: string) {
  const { members, held } = apiKeys(apiId);
  return run({ record: recordKey(apiId, keyId), members, held, pools: poolKey(apiId, '') });
}
