import type { Clock } from '../../process/clock.ts';
import { command } from '../../redis/command.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { apiKeys, apiList, SHARED_LOG } from '../../redis/redis-keys.ts';
import { ApiError, unavailable } from '../../rules/errors.ts';
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

/** The parts that make the shared log. */
interface LogMaker {
  readonly writer: DurableWriter;
  readonly clock: Pick<Clock, 'wallMs'>;
  readonly leaseMs: number;
}

/**
 * Attempts a change of the shared log, and once more after the log was made if the first attempt lacked it. Rejects with
 * SERVICE_UNAVAILABLE, or as the attempt does.
 */
export async function inSharedLog<Outcome>(
  { writer, clock, leaseMs }: LogMaker,
  attempt: () => Promise<Outcome>,
  lacksLog: (outcome: Outcome) => boolean,
): Promise<Outcome> {
  const outcome = await attempt();
  if (!lacksLog(outcome)) return outcome;
  await createSharedLog(writer, clock.wallMs(), leaseMs);
  return attempt();
}

/** Number of times that a change reads a record that others change, too. */
const ATTEMPTS_MAX = 20;

/**
 * Reads a record and changes it on the condition that it is still the same, and again while others are faster. Rejects with
 * SERVICE_UNAVAILABLE, or as `read` does.
 * @param read returns the change; undefined = there is nothing to change
 * @param apply rejects with CONFLICT if the record is another by now; undefined = it has gone
 */
export async function changeAsRead<Change, Outcome>(
  read: () => Promise<Change>,
  apply: (change: Exclude<Change, undefined>) => Promise<Outcome | undefined>,
  tooFast: string,
): Promise<Outcome | Extract<Change, undefined>> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const change = await read();
    if (change === undefined) return undefined as Extract<Change, undefined>;
    try {
      const outcome = await apply(change as Exclude<Change, undefined>);
      if (outcome !== undefined) return outcome;
    } catch (error) {
      if (!(error instanceof ApiError && error.code === 'CONFLICT')) throw error;
    }
  }
  throw unavailable(tooFast);
}

/**
 * Returns ids of APIs in order, including deleted APIs and APIs whose creation failed.
 * @param after the id after which the page begins; '' = from the start
 */
export function apiIds(nodes: Pick<RedisNodes, 'run'>, after: string, limit: number): Promise<string[]> {
  const from = `(${after}`; // no id is empty
  return nodes.run(apiList, (redis) => redis.zrangebylex(apiList, from, '+', 'LIMIT', 0, limit));
}
