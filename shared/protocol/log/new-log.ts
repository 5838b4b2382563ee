import { command } from '../../redis/command.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { apiKeys, apiList, SHARED_LOG } from '../../redis/redis-keys.ts';
import type { DurableWriter } from './durable-writer.ts';

/** Creates an API; followers may have members of the shared log before there is one. */
export const createApi = command(
  new URL('./create-api.lua', import.meta.url),
  ['head', '...members'],
  ['now', 'lease', '...fields'],
  (reply) => reply === 'OK',
);

/** Creates the shared log if it does not exist. Rejects with SERVICE_UNAVAILABLE. */
export async function createSharedLog(writer: DurableWriter, nowMs: number, leaseMs: number): Promise<void> {
  const { head, members } = apiKeys(SHARED_LOG);
  await writer.send(createApi({ head, members: [members], now: nowMs, lease: leaseMs, fields: [] }));
}

/**
 * Returns ids of APIs in order, including deleted APIs and APIs whose creation failed.
 * @param after the id after which the page begins; '' = from the start
 */
export function apiIds(nodes: Pick<RedisNodes, 'run'>, after: string, limit: number): Promise<string[]> {
  const from = `(${after}`; // no id is empty
  return nodes.run(apiList, (redis) => redis.zrangebylex(apiList, from, '+', 'LIMIT', 0, limit));
}
