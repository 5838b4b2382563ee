import { backoffMs, type Clock, pause, Waker } from '#shared/process/clock.ts';
import { Gathering } from '#shared/process/gathering.ts';
import type { Logger } from '#shared/process/log.ts';
import { BATCH_LANE, type DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { command, list } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { auditKeyIndex, auditRetryKey, auditStream } from '#shared/redis/redis-keys.ts';
import { unavailable } from '#shared/rules/errors.ts';
import {
  type AuditEvent,
  type AuditFilter,
  type AuditKind,
  isBefore,
  type ListedEvent,
  matches,
  readEvent,
  timeOf,
} from '../../core/schema/audit-event.ts';

export const recordEvents = command(
  new URL('./record-events.lua', import.meta.url),
  ['stream', 'again'],
  ['most', 'index', '...events'],
  list,
);

/** The maximum number of events that one page examines. */
const EXAMINED_MAX = 1000;
const EXAMINED_AT_ONCE = 200;
/** The maximum number of events about one key that may have been recorded within one millisecond. */
const TIES_MAX = 50;
/** Events that one run of the script writes: more would block Redis for longer. */
const WRITTEN_AT_ONCE = 50;
const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5000;
/**
 * Longest time for which a call waits until Redis accepts its event. What the caller does next is recorded after
 * it then, at whichever control plane.
 */
const ORDER_MS_MAX = 2000;

/** Limits on the number of events kept. */
export interface AuditLimits {
  /** The minimum number of events that each stream keeps. */
  readonly eventsMax: Readonly<Record<AuditKind, number>>;
  /** The maximum number of events that wait in memory for Redis. */
  readonly waitingMax: number;
}

/** An event that is not in Redis yet, or not on all replicas. */
interface Unwritten {
  readonly event: AuditEvent;
  /** Id of the event at the primary; '' = not known to be there. */
  id: string;
}

/** An unwritten event that is tried again. */
interface Waiting extends Unwritten {
  /** Settles once Redis has the event. */
  readonly written: PromiseWithResolvers<void>;
}

/** A callback that learns what became of events. */
type OnCount = (kind: AuditKind, result: 'written' | 'late' | 'lost', events: number) => void;

interface AuditOptions {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly clock: Clock;
  readonly limits: AuditLimits;
  readonly onCount: OnCount;
  readonly log: Logger;
}

/** The audit log: two streams in Redis, each with the latest events, and the process's log. */
export class Audit {
  readonly #options: AuditOptions;
  /** The events of one turn of the event loop, by their kind. */
  readonly #gathering = new Gathering<AuditEvent, void>((kind, events) =>
    this.#recordInOrder(kind as AuditKind, events),
  );
  readonly #waiting: Waiting[] = [];
  /** The reason why events wait, as Redis was asked last. */
  #fault: unknown;
  readonly #stop = new AbortController();
  /** Ends the pause before the next attempt. */
  readonly #news = new Waker();
  #catchingUp: Promise<void> | undefined;

  constructor(options: AuditOptions) {
    this.#options = options;
  }

  /**
   * Records an event as durably as a change, and never rejects: the operation is done, whether or not its
   * event can be recorded. Every event also goes to the process's log. If Redis does not accept an event of a
   * completed operation, the event waits in memory and is written later; it may then be listed twice, if only
   * the reply of Redis was lost. Later events are written after it; the promise settles when it is written, or
   * after ORDER_MS_MAX. Events of refused operations do not wait, and neither do events beyond the
   * limit. The events of one turn of the event loop are written together.
   */
  record(kind: AuditKind, event: AuditEvent): Promise<void> {
    this.#say(kind, event);
    return this.#gathering.add(kind, event).result;
  }

  /** Records the events of one call in their order, as `record` does. */
  async recordAll(kind: AuditKind, events: readonly AuditEvent[]): Promise<void> {
    for (const event of events) this.#say(kind, event);
    await this.#record(kind, events, BATCH_LANE);
  }

  async #recordInOrder(kind: AuditKind, events: readonly AuditEvent[]): Promise<void> {
    const waiting = await this.#record(kind, events);
    if (waiting.length === 0) return;
    const written = new AbortController();
    void Promise.all(waiting.map((each) => each.written.promise)).then(() => written.abort());
    await pause(this.#options.clock, ORDER_MS_MAX, written.signal);
  }

  /** Records events; resolves with those that wait for Redis. */
  async #record(kind: AuditKind, events: readonly AuditEvent[], lane?: string): Promise<readonly Waiting[]> {
    const queue = events.map((event): Unwritten => ({ event, id: '' }));
    // They must not overtake those that wait.
    if (kind === 'done' && this.#waiting.length > 0) {
      this.#news.wake();
      return queue.flatMap((each) => this.#keep(kind, each, this.#fault) ?? []);
    }
    for (let at = 0; at < queue.length; at += WRITTEN_AT_ONCE) {
      const part = queue.slice(at, at + WRITTEN_AT_ONCE);
      try {
        await this.#write(kind, part, lane);
        this.#options.onCount(kind, 'written', part.length);
      } catch (error) {
        this.#fault = error;
        // Keep the events after it too: that preserves their order, and their writes would fail as well.
        return queue.slice(at).flatMap((each) => this.#keep(kind, each, error) ?? []);
      }
    }
    return [];
  }

  #say(kind: AuditKind, event: AuditEvent): void {
    this.#options.log.info({ audit: event }, `audit: ${kind}`);
  }

  /** Lets an event wait for Redis, or gives it up and returns undefined. */
  #keep(kind: AuditKind, unwritten: Unwritten, err: unknown): Waiting | undefined {
    const { limits, log, onCount } = this.#options;
    const waits = kind === 'done' && this.#waiting.length < limits.waitingMax && !this.#stop.signal.aborted;
    const { requestId, traceId } = unwritten.event;
    log.warn({ requestId, traceId, waits, err }, 'an audit event was not recorded');
    if (!waits) {
      onCount(kind, 'lost', 1);
      return undefined;
    }
    const waiting = { ...unwritten, written: Promise.withResolvers<void>() };
    this.#waiting.push(waiting);
    this.#catchingUp ??= this.#catchUp();
    return waiting;
  }

  /** Number of events that wait in memory for Redis. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Tries once more to record the waiting events; those that Redis does not accept remain only in the
   * process's log.
   */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#news.wake();
    await this.#catchingUp;
    if (this.#waiting.length === 0) return;
    this.#options.onCount('done', 'lost', this.#waiting.length);
    this.#options.log.error({ lost: this.#waiting.length }, 'audit events are lost, except in this log');
  }

  async #write(kind: AuditKind, part: readonly Unwritten[], lane?: string): Promise<void> {
    // Refused calls have no index: their stream is short, and a caller chooses the ids in them.
    const indexed = (event: AuditEvent) =>
      kind === 'done' ? (event.on.keyId ?? event.on.identityId ?? '') : '';
    const events = part.flatMap(({ event, id }) => [JSON.stringify(event), id, indexed(event)]);
    const run = recordEvents({
      ...{ stream: auditStream(kind), again: auditRetryKey, index: auditKeyIndex('') },
      ...{ most: this.#options.limits.eventsMax[kind], events },
    });
    const { reply, replicated } = await this.#options.writer.send(run, lane);
    for (const [i, id] of reply.entries()) if (part[i]) part[i].id = id;
    if (!replicated) throw unavailable('not all replicas confirmed the events');
  }

  async #catchUp(): Promise<void> {
    for (let attempt = 0; this.#waiting.length > 0; attempt++) {
      const last = this.#stop.signal.aborted;
      try {
        while (this.#waiting.length > 0) {
          const part = this.#waiting.slice(0, WRITTEN_AT_ONCE);
          await this.#write('done', part);
          for (const { written } of this.#waiting.splice(0, part.length)) written.resolve();
          this.#options.onCount('done', 'late', part.length);
        }
      } catch (error) {
        this.#fault = error;
        this.#options.log.debug(
          { waiting: this.#waiting.length, err: error },
          'audit events still wait for Redis',
        );
        if (last) return;
        const waitMs = backoffMs(attempt, RETRY_FIRST_MS, RETRY_MAX_MS, Math.random);
        await this.#news.pause(this.#options.clock, waitMs);
        this.#news.reset();
      }
    }
    this.#catchingUp = undefined;
  }

  /**
   * One page of events, the latest first. Examines at most EXAMINED_MAX events, so a page may be short and
   * still have a `next`.
   * @param before the id of the event before which the page begins
   * @param sinceMs Unix milliseconds; older events are left out
   * @param untilMs Unix milliseconds; newer events are left out
   */
  async list(
    kind: AuditKind,
    filter: AuditFilter,
    limit: number,
    before?: string,
    sinceMs?: number,
    untilMs?: number,
  ): Promise<{ events: ListedEvent[]; next?: string }> {
    const stream = auditStream(kind);
    const about = filter.keyId ?? filter.identityId;
    const read =
      kind === 'done' && about
        ? (next: string, count: number) => this.#readOfKey(stream, about, next, count)
        : (next: string, count: number) => this.#readBefore(stream, next, count, sinceMs, untilMs);
    const isTimely = (time: number) => time >= (sinceMs ?? 0) && time <= (untilMs ?? time);
    const events: ListedEvent[] = [];
    let next = before ?? '';
    for (let examined = 0; examined < EXAMINED_MAX; examined += EXAMINED_AT_ONCE) {
      const batch = await read(next, EXAMINED_AT_ONCE + 1);
      for (const [i, [id, fields]] of batch.slice(0, EXAMINED_AT_ONCE).entries()) {
        next = id;
        const event = fields && readEvent(id, fields[1]);
        if (event && isTimely(timeOf(id)) && matches(event, filter)) events.push(event);
        if (events.length === limit) return { events, ...(i + 1 < batch.length ? { next } : {}) };
      }
      if (batch.length <= EXAMINED_AT_ONCE) return { events };
    }
    return { events, next };
  }

  /** Reads events before the id `next`, the latest first. */
  #readBefore(
    stream: string,
    next: string,
    count: number,
    sinceMs?: number,
    untilMs?: number,
  ): Promise<Row[]> {
    const newest = next === '' ? (untilMs ?? '+') : `(${next}`;
    return this.#options.nodes.run(stream, (redis) =>
      redis.xrevrange(stream, newest, sinceMs ?? '-', 'COUNT', count),
    );
  }

  /** Reads events about a key before the id `next`, the latest first. */
  #readOfKey(stream: string, keyId: string, next: string, count: number): Promise<Row[]> {
    const [newest, extra] = next === '' ? ['+inf', 0] : [timeOf(next), TIES_MAX];
    return this.#options.nodes.run(stream, async (redis) => {
      const range = [auditKeyIndex(keyId), newest, '-inf', 'LIMIT', 0, count + extra] as const;
      const ids = (await redis.zrevrangebyscore(...range)).filter((id) => next === '' || isBefore(id, next));
      return Promise.all(
        ids
          .sort((a, b) => (isBefore(a, b) ? 1 : -1))
          .slice(0, count)
          .map(async (id): Promise<Row> => (await redis.xrange(stream, id, id))[0] ?? [id, undefined]),
      );
    });
  }
}

/** An event as Redis stores it: its id, and its fields; undefined = trimmed meanwhile. */
type Row = [id: string, fields: string[] | undefined];
