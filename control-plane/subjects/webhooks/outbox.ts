import type { Clock } from '#shared/process/clock.ts';
import { command, list, oneOf } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  auditStream,
  noticeStream,
  webhookEndpoints,
  webhookKeys,
  webhookSender,
} from '#shared/redis/redis-keys.ts';
import { type Run, send } from '#shared/redis/script.ts';
import { WEBHOOK_GROUP } from './endpoints.ts';

/** A message for endpoints. */
export interface Message {
  /** The `webhook-id`. */
  readonly id: string;
  readonly type: string;
  /** Messages with the same order are delivered one after the other. */
  readonly order: string;
  readonly body: string;
}

/** Returns the message in the fields of an entry. */
function messageOf(fields: readonly string[]): Message {
  const values = fieldsOf(fields);
  const text = (name: string) => String(values[name] ?? '');
  return { id: text('i'), type: text('t'), order: text('k'), body: text('e') };
}

/** Returns names and values that alternate in a reply of Redis. */
function fieldsOf(reply: unknown): Record<string, unknown> {
  const flat = reply as readonly unknown[];
  return Object.fromEntries(
    Array.from({ length: flat.length / 2 }, (_, i) => [String(flat[2 * i]), flat[2 * i + 1]]),
  );
}

const holdSender = command(
  new URL('./hold-sender.lua', import.meta.url),
  ['sender'],
  ['name', 'ms'],
  (reply) => reply === 1,
);
const passOverEvents = command(
  new URL('./pass-over-events.lua', import.meta.url),
  ['sender', 'log', 'notices', 'endpoints'],
  ['name', 'ms', 'group'],
  Number,
);
const queueEvents = command(
  new URL('./queue-events.lua', import.meta.url),
  ['sender', 'log', 'notices', 'endpoints'],
  ['name', 'ms', 'group', 'base', 'most', '...events'],
  list,
);
const recordAttempts = command(
  new URL('./record-attempts.lua', import.meta.url),
  ['sender', 'queue', 'retries', 'attempts', 'dead', 'state', 'endpoints'],
  ['name', 'ms', 'endpoint', 'attemptsKept', 'deadKept', 'failures', 'pausedUntil', '...deliveries'],
  (reply) => reply === 1,
);

/** Connection for reads that wait. */
const LANE = 'webhooks';
/** Longest time that a read waits for news, milliseconds. */
const BLOCK_MS_MAX = 500;
/** Time for which a control plane is the sender unless it says so again, milliseconds. */
export const SENDER_MS = 10_000;
/** The streams where events arise. */
const SOURCES = [auditStream('done'), noticeStream] as const;

/** Keys of the scripts that read these streams. */
const STREAMS = {
  sender: webhookSender,
  log: SOURCES[0],
  notices: SOURCES[1],
  endpoints: webhookEndpoints,
};

/** An entry of a stream where events arise. */
export interface SourceEntry {
  /** Place of the stream. */
  readonly source: 0 | 1;
  readonly id: string;
  /** Undefined = it was trimmed before it was read, so its content is lost. */
  readonly text: string | undefined;
}

/** An entry of a source with all its messages. */
export interface QueuedEntry {
  readonly source: 0 | 1;
  readonly id: string;
  readonly messages: readonly (Message & { readonly endpointIds: readonly string[] })[];
}

/** A message in an endpoint's queue. */
export interface WaitingMessage extends Message {
  readonly entryId: string;
  /** Unix milliseconds by the clock of Redis. */
  readonly queuedAtMs: number;
  readonly attempts: number;
  /** Unix milliseconds before which it is not tried again. */
  readonly nextAtMs: number;
}

/** The outcome of an attempt. */
export interface AttemptOutcome {
  readonly message: WaitingMessage;
  readonly result: 'delivered' | 'failed' | 'dead';
  /** Number of failed attempts so far. */
  readonly attempts: number;
  readonly nextAtMs: number;
  readonly record: object;
}

/** Thrown when another control plane sends webhooks. */
export class NotSender extends Error {
  constructor() {
    super('another control plane sends webhooks');
  }
}

/** The sender's view of events and queues in Redis. Each method rejects with NotSender if another is the sender. */
export class Outbox {
  readonly #nodes: RedisNodes;
  readonly #name: string;
  readonly #queueMax: number;
  readonly #blockMs: number;

  /**
   * @param name a name that no other process has
   * @param commandMsMax time after which a command is cut off
   */
  constructor(nodes: RedisNodes, name: string, queueMax: number, commandMsMax: number) {
    this.#nodes = nodes;
    this.#name = name;
    this.#queueMax = queueMax;
    this.#blockMs = Math.max(1, Math.min(BLOCK_MS_MAX, Math.floor(commandMsMax / 4)));
  }

  /** Becomes or stays the sender; false = another is. */
  hold(): Promise<boolean> {
    return this.#run(holdSender({ sender: webhookSender, name: this.#name, ms: SENDER_MS }));
  }

  /** Lets another control plane be the sender. */
  async letGo(): Promise<void> {
    await this.#run(holdSender({ sender: webhookSender, name: this.#name, ms: 0 }));
  }

  /** Creates the group of each source, unless it exists. */
  async prepare(): Promise<void> {
    const count = await this.#nodes.run(webhookEndpoints, (redis) => redis.hlen(webhookEndpoints));
    for (const stream of SOURCES) {
      // If there are endpoints but no group, somebody removed it: better repeat events than miss some.
      const start = count > 0 ? '0' : '$';
      await this.#nodes
        .run(stream, (redis) => redis.xgroup('CREATE', stream, WEBHOOK_GROUP, start, 'MKSTREAM'))
        .catch((error: unknown) => {
          if (!String(error).includes('BUSYGROUP')) throw error;
        });
    }
  }

  /**
   * Passes over the events that no endpoint wants, because there is none; false = there may be something to read.
   */
  async passOver(): Promise<boolean> {
    const reply = await this.#run(
      passOverEvents({ ...STREAMS, name: this.#name, ms: SENDER_MS, group: WEBHOOK_GROUP }),
    );
    if (reply === -1) throw new NotSender();
    return reply === 1;
  }

  /**
   * Reads entries that nobody has acknowledged yet.
   * @param after of each source, the id after which to read what was read before; undefined = wait for news
   */
  async read(count: number, after: readonly [string, string] | undefined): Promise<SourceEntry[]> {
    const [done, notices] = after ?? ['>', '>'];
    const reply = (await this.#nodes.run(
      webhookSender,
      (redis) =>
        redis.xreadgroup(
          ...([
            'GROUP',
            WEBHOOK_GROUP,
            WEBHOOK_GROUP,
            'COUNT',
            count,
            'BLOCK',
            this.#blockMs,
            'STREAMS',
          ] as const),
          ...SOURCES,
          done,
          notices,
        ),
      LANE,
    )) as [stream: string, rows: [id: string, fields: string[] | null][]][] | null;
    return (reply ?? []).flatMap(([stream, rows]) =>
      rows.map(
        ([id, fields]): SourceEntry => ({
          source: stream === SOURCES[0] ? 0 : 1,
          id,
          text: fields?.[1],
        }),
      ),
    );
  }

  /** Returns the number of entries of the audit log that were trimmed before the sender read them, since the log began. */
  async missed(): Promise<number> {
    const [stream] = SOURCES;
    const [about, groups] = await this.#nodes.run(stream, (redis) =>
      Promise.all([redis.xinfo('STREAM', stream), redis.xinfo('GROUPS', stream)]),
    );
    const { length, 'entries-added': added } = fieldsOf(about);
    const group = (groups as unknown[]).map(fieldsOf).find(({ name }) => name === WEBHOOK_GROUP);
    const read = group?.['entries-read'];
    if (typeof read !== 'number') return 0;
    return Math.max(0, Number(added) - Number(length) - read);
  }

  /** Moves the messages of entries to the queues. Returns the number of messages that full queues lost, by endpoint. */
  async queue(entries: readonly QueuedEntry[]): Promise<Map<string, number>> {
    const events = entries.flatMap(({ source, id, messages }) => [
      source === 0 ? 'log' : 'notices',
      id,
      messages.length,
      ...messages.flatMap((message) => [
        ...[message.id, message.type, message.order, message.body, message.endpointIds.length],
        ...message.endpointIds,
      ]),
    ]);
    const base = webhookKeys('').queue.slice(0, -':queue'.length);
    const about = { name: this.#name, ms: SENDER_MS, group: WEBHOOK_GROUP, base, most: this.#queueMax };
    const reply = await this.#run(queueEvents({ ...STREAMS, ...about, events }));
    if (reply.length === 0) throw new NotSender();
    const dropped = new Map<string, number>();
    for (let i = 1; i < reply.length; i += 2) {
      const endpointId = reply[i] ?? '';
      dropped.set(endpointId, (dropped.get(endpointId) ?? 0) + Number(reply[i + 1]));
    }
    return dropped;
  }

  /** Reads messages of a queue in their order, after the entry `after`; '' = from the start. */
  async waiting(endpointId: string, after: string, count: number): Promise<WaitingMessage[]> {
    const { queue, retries } = webhookKeys(endpointId);
    const start = after === '' ? '-' : `(${after}`;
    const rows = await this.#nodes.run(queue, (redis) => redis.xrange(queue, start, '+', 'COUNT', count));
    if (rows.length === 0) return [];
    const ids = rows.map(([id]) => id);
    const states = await this.#nodes.run(retries, (redis) => redis.hmget(retries, ...ids));
    return rows.map(([entryId, fields], i) => {
      const [attempts = '0', nextAtMs = '0'] = states[i]?.split(' ') ?? [];
      return {
        ...messageOf(fields),
        ...{ entryId, queuedAtMs: Number(entryId.split('-')[0]) },
        ...{ attempts: Number(attempts), nextAtMs: Number(nextAtMs) },
      };
    });
  }

  /** Reads the body of a message; undefined if a full queue has dropped it. */
  async bodyOf(endpointId: string, entryId: string): Promise<string | undefined> {
    const { queue } = webhookKeys(endpointId);
    const [row] = await this.#nodes.run(queue, (redis) => redis.xrange(queue, entryId, entryId));
    return row && messageOf(row[1]).body;
  }

  /**
   * Reads how many attempts at an endpoint failed in a row, until when it is paused (0 = it is not), and when somebody
   * last wanted an attempt at once (0 = never).
   */
  async failuresOf(
    endpointId: string,
  ): Promise<{ failures: number; pausedUntilMs: number; hurriedAtMs: number }> {
    const { state } = webhookKeys(endpointId);
    const values = await this.#nodes.run(state, (redis) =>
      redis.hmget(state, 'failures', 'pausedUntil', 'hurriedAt'),
    );
    const [failures = 0, pausedUntilMs = 0, hurriedAtMs = 0] = values.map(Number);
    return { failures, pausedUntilMs, hurriedAtMs };
  }

  /** Records attempts of one endpoint and its state after them. */
  async record(
    endpointId: string,
    attempts: readonly AttemptOutcome[],
    state: { readonly failures: number; readonly pausedUntilMs: number },
  ): Promise<void> {
    const { queue, retries, attempts: latest, dead, state: stateKey } = webhookKeys(endpointId);
    const deliveries = attempts.flatMap(({ message, result, attempts: failures, nextAtMs, record }) => [
      ...[message.entryId, result, failures, Math.round(nextAtMs), JSON.stringify(record)],
      ...[message.id, message.type, message.order, message.body],
    ]);
    const isSender = await this.#run(
      recordAttempts({
        ...{ sender: webhookSender, queue, retries, attempts: latest, dead, state: stateKey },
        ...{ endpoints: webhookEndpoints, endpoint: endpointId, name: this.#name, ms: SENDER_MS },
        ...{ attemptsKept: ATTEMPTS_KEPT, deadKept: DEAD_KEPT, failures: state.failures, deliveries },
        pausedUntil: Math.round(state.pausedUntilMs),
      }),
    );
    if (!isSender) throw new NotSender();
  }

  #run<T>(run: Run<T>): Promise<T> {
    return this.#nodes.run(webhookSender, (redis) => send(redis, run));
  }
}

const queueAgain = command(
  new URL('./queue-again.lua', import.meta.url),
  ['stream', 'queue', 'state'],
  ['id', 'most', 'now'],
  oneOf('status', { OK: [], NOT_FOUND: [], FULL: [] }),
);

/** Number of the latest attempts that each endpoint keeps. */
const ATTEMPTS_KEPT = 1000;
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
  /** Events that it did not get because it was gone. */
  readonly passed: number;
}

/** The deliveries that are listed: the latest attempts, or the events that were given up. */
export type DeliveryKind = 'attempts' | 'dead';
/** The beginning of a delivery's id, by its kind. */
const MARKS: Readonly<Record<DeliveryKind, string>> = { attempts: 'a', dead: 'd' };

/** Deliveries of webhook endpoints, as admins see them. */
export class Deliveries {
  readonly #nodes: RedisNodes;
  readonly #queueMax: number;
  readonly #clock: Clock;

  constructor(nodes: RedisNodes, queueMax: number, clock: Clock) {
    this.#nodes = nodes;
    this.#queueMax = queueMax;
    this.#clock = clock;
  }

  async state(endpointId: string): Promise<QueueState> {
    const { queue, state } = webhookKeys(endpointId);
    const [waiting, oldest, values] = await this.#nodes.run(queue, (redis) =>
      Promise.all([
        redis.xlen(queue),
        redis.xrange(queue, '-', '+', 'COUNT', 1),
        redis.hmget(state, 'failures', 'pausedUntil', 'dropped', 'dead', 'passed'),
      ]),
    );
    const [failures = 0, pausedUntil = 0, dropped = 0, dead = 0, passed = 0] = values.map(Number);
    const oldestAt = oldest[0]?.[0].split('-')[0];
    return {
      waiting,
      ...(oldestAt === undefined ? {} : { oldestAt: Number(oldestAt) }),
      failures,
      ...(pausedUntil > 0 ? { pausedUntil } : {}),
      dropped: Math.max(0, dropped),
      dead,
      passed,
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

  /** Queues the event of a delivery once more, with its id, and lets the sender try at once. */
  async repeat(endpointId: string, deliveryId: string): Promise<'OK' | 'NOT_FOUND' | 'FULL'> {
    const { dead, attempts, queue, state } = webhookKeys(endpointId);
    const stream = deliveryId.startsWith(MARKS.dead) ? dead : attempts;
    const run = queueAgain({
      ...{ stream, queue, state, id: deliveryId.slice(1), most: this.#queueMax },
      now: Math.round(this.#clock.wallMs()),
    });
    return (await this.#nodes.run(stream, (redis) => send(redis, run))).status;
  }

  /** Ends the pause of an endpoint that was just seen to answer, so that what waits is sent at once. */
  async resume(endpointId: string): Promise<void> {
    const { state } = webhookKeys(endpointId);
    if ((await this.state(endpointId)).failures === 0) return;
    const fields = { failures: 0, pausedUntil: 0, hurriedAt: Math.round(this.#clock.wallMs()) };
    await this.#nodes.run(state, (redis) => redis.hset(state, fields));
  }
}

function deliveryOf(deliveryId: string, fields: readonly string[]): Delivery {
  const { id: eventId, type, body } = messageOf(fields);
  const attempt = JSON.parse(String(fieldsOf(fields)['a'])) as Attempt;
  return { deliveryId, eventId, type, ...attempt, event: JSON.parse(body) as object };
}
