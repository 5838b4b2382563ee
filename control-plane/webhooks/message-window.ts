import type { WaitingMessage } from './outbox.ts';

/** Messages of a queue that are in memory and may be sent soon. */
const READY_MAX = 500;
/** Messages that failed and wait; only their ids are in memory. Beyond, those after them wait too. */
const DEFERRED_MAX = 20_000;

/** A message of a queue, in memory. */
export interface OpenMessage extends Omit<WaitingMessage, 'body'> {
  /** Undefined = it failed and waits, and is read again before the next attempt. */
  readonly body: string | undefined;
  isBeingSent: boolean;
}

/** The beginning of an endpoint's queue, in memory, in its order. */
export class MessageWindow {
  readonly #messages = new Map<string, OpenMessage>();
  /** Ids of the messages that failed and wait. */
  readonly #deferred = new Set<string>();

  get hasRoom(): boolean {
    const { size } = this.#deferred;
    return this.#messages.size - size < READY_MAX && size < DEFERRED_MAX;
  }

  /** Adds the next message of the queue. */
  add(message: WaitingMessage): void {
    const isDeferred = message.attempts > 0;
    if (isDeferred) this.#deferred.add(message.entryId);
    const body = isDeferred ? undefined : message.body;
    this.#messages.set(message.entryId, { ...message, body, isBeingSent: false });
  }

  /** Lets a message wait in its place for another attempt. */
  defer(message: OpenMessage, attempts: number, nextAtMs: number): void {
    this.#deferred.add(message.entryId);
    const body = undefined;
    this.#messages.set(message.entryId, { ...message, body, attempts, nextAtMs, isBeingSent: false });
  }

  /** Forgets a message that needs no further attempt. */
  drop({ entryId }: OpenMessage): void {
    this.#messages.delete(entryId);
    this.#deferred.delete(entryId);
  }

  /**
   * Returns the oldest message of each order, unless it is being sent.
   * @param dueMax number of messages that are due after which the others are left out
   */
  firsts(nowMs: number, dueMax: number): OpenMessage[] {
    const orders = new Set<string>();
    const firsts: OpenMessage[] = [];
    let due = 0;
    for (const message of this.#messages.values()) {
      if (!orders.has(message.order) && !message.isBeingSent) {
        firsts.push(message);
        if (message.nextAtMs <= nowMs) due++;
      }
      orders.add(message.order);
      if (due >= dueMax) break;
    }
    return firsts;
  }

  /** When the next attempt after now is due, Unix milliseconds; infinite = none is planned. */
  nextAtMs(nowMs: number): number {
    let nextMs = Number.POSITIVE_INFINITY;
    for (const entryId of this.#deferred) {
      const atMs = this.#messages.get(entryId)?.nextAtMs ?? nextMs;
      if (atMs > nowMs && atMs < nextMs) nextMs = atMs;
    }
    return nextMs;
  }
}
