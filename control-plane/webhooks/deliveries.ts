import { command, oneOf } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { webhookKeys } from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { fieldsOf, messageOf } from './stored-message.ts';

const queueAgain = command(
  new URL('./queue-again.lua', import.meta.url),
  ['stream', 'queue'],
  ['id', 'most'],
  oneOf('status', { OK: [], NOT_FOUND: [], FULL: [] }),
);

/** Number of the latest attempts that each endpoint keeps. */
export const ATTEMPTS_KEPT = 1000;
/** Number of the latest events given up that each endpoint keeps. */
export const DEAD_KEPT = 10_000;

/** One attempt to deliver an event. */
export interface Attempt {
  /** Unix milliseconds. */
  readonly time: number;
  readonly attempt: number;
  readonly result: 'delivered' | 'failed' | 'dead';
  readonly durationMs: number;
  /** Status of the response; absent = there was none. */
  readonly status?: number;
  /** The beginning of the response's body. */
  readonly response?: string;
  /** The reason why there was no response. */
  readonly error?: string;
  /** When the next attempt is due, Unix milliseconds. */
  readonly nextAt?: number;
}

/** An attempt as it is listed, with the event. */
export interface Delivery extends Attempt {
  /** Ids sort by the time of recording. */
  readonly deliveryId: string;
  readonly eventId: string;
  readonly type: string;
  /** The body of the request. */
  readonly event: object;
}

/** State of an endpoint's queue. */
export interface QueueState {
  /** Number of events that wait for delivery. */
  readonly waiting: number;
  /** When the oldest of them was queued, Unix milliseconds. */
  readonly oldestAt?: number;
  /** Number of consecutive failed attempts. */
  readonly failures: number;
  /** When the next attempt is due after many failures, Unix milliseconds; absent = the endpoint is not paused. */
  readonly pausedUntil?: number;
  /** Number of events lost because the queue was full. */
  readonly dropped: number;
  /** Number of events given up after three days. */
  readonly dead: number;
}

/** The deliveries that are listed: the latest attempts, or the events that were given up. */
export type DeliveryKind = 'attempts' | 'dead';
/** The beginning of a delivery's id, by its kind. */
const MARKS: Readonly<Record<DeliveryKind, string>> = { attempts: 'a', dead: 'd' };

/** Deliveries of webhook endpoints, as admins see them. */
export class Deliveries {
  readonly #nodes: RedisNodes;
  readonly #queueMax: number;

  constructor(nodes: RedisNodes, queueMax: number) {
    this.#nodes = nodes;
    this.#queueMax = queueMax;
  }

  async state(endpointId: string): Promise<QueueState> {
    const { queue, state } = webhookKeys(endpointId);
    const [waiting, oldest, values] = await this.#nodes.run(queue, (redis) =>
      Promise.all([
        redis.xlen(queue),
        redis.xrange(queue, '-', '+', 'COUNT', 1),
        redis.hmget(state, 'failures', 'pausedUntil', 'dropped', 'dead'),
      ]),
    );
    const [failures = 0, pausedUntil = 0, dropped = 0, dead = 0] = values.map(Number);
    const oldestAt = oldest[0]?.[0].split('-')[0];
    return {
      waiting,
      ...(oldestAt === undefined ? {} : { oldestAt: Number(oldestAt) }),
      failures,
      ...(pausedUntil > 0 ? { pausedUntil } : {}),
      dropped: Math.max(0, dropped),
      dead,
    };
  }

  /** One page of deliveries, the latest first, before the delivery `before`. */
  async list(
    endpointId: string,
    kind: DeliveryKind,
    limit: number,
    before?: string,
  ): Promise<{ readonly deliveries: Delivery[]; readonly next?: string }> {
    const stream = webhookKeys(endpointId)[kind];
    const newest = before === undefined ? '+' : `(${before.slice(1)}`;
    const rows = await this.#nodes.run(stream, (redis) =>
      redis.xrevrange(stream, newest, '-', 'COUNT', limit + 1),
    );
    const deliveries = rows.slice(0, limit).map(([id, fields]) => deliveryOf(`${MARKS[kind]}${id}`, fields));
    const next = rows.length > limit ? deliveries.at(-1)?.deliveryId : undefined;
    return { deliveries, ...(next === undefined ? {} : { next }) };
  }

  /** Queues the event of a delivery once more, with its id. */
  async repeat(endpointId: string, deliveryId: string): Promise<'OK' | 'NOT_FOUND' | 'FULL'> {
    const keys = webhookKeys(endpointId);
    const stream = deliveryId.startsWith(MARKS.dead) ? keys.dead : keys.attempts;
    const run = queueAgain({ stream, queue: keys.queue, id: deliveryId.slice(1), most: this.#queueMax });
    return (await this.#nodes.run(stream, (redis) => send(redis, run))).status;
  }
}

function deliveryOf(deliveryId: string, fields: readonly string[]): Delivery {
  const { id: eventId, type, body } = messageOf(fields);
  const attempt = JSON.parse(String(fieldsOf(fields)['a'])) as Attempt;
  return { deliveryId, eventId, type, ...attempt, event: JSON.parse(body) as object };
}
