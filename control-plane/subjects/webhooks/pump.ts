import { backoffMs, type Clock, pause, Waker } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { readEvent } from '../../core/schema/audit-event.ts';
import { letsPass, type OperationEvent } from '../../core/schema/event-types.ts';
import type { WebhookEndpoint } from './endpoints.ts';
import { eventsOf, type PendingEvent } from './events-of.ts';
import { noticesOf } from './notices.ts';
import type { Outbox, QueuedEntry, SourceEntry } from './outbox.ts';

const FIRST_MS = 20;
const MAX_MS = 2000;

/** Waits until changes are complete. */
export class Receipts {
  readonly #changeWriter: Pick<ChangeWriter, 'status'>;
  readonly #clock: Clock;

  constructor(changeWriter: Pick<ChangeWriter, 'status'>, clock: Clock) {
    this.#changeWriter = changeWriter;
    this.#clock = clock;
  }

  /** Resolves with the receipt of a change once it is complete; undefined if the signal aborts. */
  async of(
    data: PendingEvent['data'],
    { keyId, sequence }: NonNullable<PendingEvent['change']>,
    signal: AbortSignal,
  ): Promise<object | undefined> {
    const { apiId } = data;
    const isOfApi = keyId === '' || keyId.startsWith('key_');
    const log = isOfApi && typeof apiId === 'string' ? apiId : SHARED_LOG;
    for (let looks = 0; !signal.aborted; looks++) {
      const receipt = await this.#check(log, keyId, sequence);
      if (receipt) return receipt;
      await pause(this.#clock, backoffMs(looks, FIRST_MS, MAX_MS, Math.random), signal);
    }
    return undefined;
  }

  async #check(apiId: string, keyId: string, sequence: number): Promise<object | undefined> {
    try {
      const status = await this.#changeWriter.status(apiId, keyId, sequence);
      if (status?.state !== 'complete') return undefined;
      const { durable, verifiers } = status;
      return { state: 'complete', sequence, durable, verifiers };
    } catch (error) {
      // A failover lost the change, or the log does not reach back to it.
      if (error instanceof ApiError && error.code === 'CONFLICT') return { state: 'lost', sequence };
      return undefined;
    }
  }
}

/** Entries that wait until their changes are complete. */
const OPEN_MAX = 5000;
const READ_AT_ONCE = 200;
/** Messages that one run of the script queues. */
const QUEUED_AT_ONCE = 50;
const RETRY_MS = 500;
/** Pause while there is no endpoint, which delays the first event of the first one, milliseconds. */
const IDLE_MS = 500;

interface PumpOptions {
  readonly outbox: Outbox;
  readonly endpoints: () => Promise<readonly WebhookEndpoint[]>;
  readonly receipts: Receipts;
  readonly declared: (operation: string) => OperationEvent | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  /** Learns which endpoints have news. */
  readonly onQueued: (endpointIds: ReadonlySet<string>) => void;
  readonly onDropped: (events: number) => void;
}

/** Moves events from where they arise to the queues of endpoints, each key's in order and once complete. */
export class Pump {
  readonly #options: PumpOptions;
  #open = 0;
  /** Of each order, when its latest entry is queued. */
  readonly #orders = new Map<string, Promise<void>>();
  readonly #ready: QueuedEntry[] = [];
  readonly #room = new Waker();
  /** Of each source, the id after which what was read before is read again; undefined = news are read. */
  #after: [string, string] | undefined = ['0', '0'];
  #flushing: Promise<void> | undefined;
  /** False = there was no endpoint when events were read last. */
  #hasEndpoints = true;
  #failure: unknown;

  constructor(options: PumpOptions) {
    this.#options = options;
  }

  /** Number of events that wait until their changes are complete. */
  get open(): number {
    return this.#open;
  }

  /** Runs until the signal aborts. Rejects with NotSender if another control plane is the sender. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#open >= OPEN_MAX) {
        this.#room.reset();
        await this.#room.pause(clock, RETRY_MS);
        continue;
      }
      if (await this.#passesOver()) {
        await pause(clock, IDLE_MS, signal);
        continue;
      }
      const entries = await this.#read();
      if (entries.length > 0) await this.#take(entries, signal);
    }
  }

  /** Leaves unread what nobody wants; false = it must be read. */
  async #passesOver(): Promise<boolean> {
    if (this.#hasEndpoints || this.#after !== undefined) return false;
    await this.#flushing;
    return this.#open === 0 && (await this.#options.outbox.passOver());
  }

  async #read(): Promise<SourceEntry[]> {
    const after = this.#after;
    const entries = await this.#options.outbox.read(READ_AT_ONCE, after);
    if (after === undefined) return entries;
    if (entries.length === 0) this.#after = undefined;
    else for (const { source, id } of entries) after[source] = id;
    return entries;
  }

  async #take(entries: readonly SourceEntry[], signal: AbortSignal): Promise<void> {
    // Read the endpoints after the events: whoever had created an endpoint before an event gets that event.
    const all = await this.#options.endpoints();
    this.#hasEndpoints = all.length > 0;
    const endpoints = all.filter(({ enabled, goneAt }) => enabled || goneAt !== undefined);
    for (const entry of entries) {
      this.#open++;
      if (entry.text === undefined) this.#options.onDropped(1);
      if (endpoints.length === 0) {
        // Nobody wants it, so it need not be parsed either.
        this.#add({ source: entry.source, id: entry.id, messages: [] });
        continue;
      }
      const { promise: added, resolve } = Promise.withResolvers<void>();
      void this.#queue(entry, endpoints, added, signal)
        .catch((err: unknown) => {
          // A damaged entry must stop neither the others nor the process.
          this.#options.log.error({ err, entry: entry.id }, 'an event is damaged, and was not sent');
          this.#options.onDropped(1);
          this.#add({ source: entry.source, id: entry.id, messages: [] });
        })
        .finally(resolve);
    }
  }

  /**
   * Queues one entry once those before it with the same order are queued, and its change is complete.
   * @param added settles when this entry is queued, for those after it
   */
  async #queue(
    entry: SourceEntry,
    endpoints: readonly WebhookEndpoint[],
    added: Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const { source, id } = entry;
    const messages = await Promise.all(
      this.#eventsIn(entry).flatMap((event, i) => {
        const endpointIds = endpoints
          .filter((endpoint) => isFor(endpoint, event))
          .map(({ enabled, endpointId }) => (enabled ? endpointId : `-${endpointId}`));
        if (endpointIds.length === 0) return [];
        const before = this.#follow(orderOf(event), added);
        const eventId = `event_${source === 0 ? '' : 'n'}${id}-${i}`;
        return this.#message(event, eventId, endpointIds, before, signal);
      }),
    );
    if (!signal.aborted) this.#add({ source, id, messages });
  }

  #add(entry: QueuedEntry): void {
    this.#ready.push(entry);
    this.#flushing ??= this.#flush();
  }

  #eventsIn(entry: SourceEntry): PendingEvent[] {
    if (entry.text === undefined) return [];
    return entry.source === 0
      ? eventsOf(readEvent(entry.id, entry.text), this.#options.declared)
      : noticesOf(entry.text);
  }

  /** Makes an entry the latest of an order; returns when the one before it is queued. */
  #follow(order: string, added: Promise<void>): Promise<void> | undefined {
    const before = this.#orders.get(order);
    if (before === added) return undefined; // an earlier event of the same entry
    this.#orders.set(order, added);
    void added.then(() => {
      if (this.#orders.get(order) === added) this.#orders.delete(order);
    });
    return before;
  }

  /** Returns the message of an event, once those before it are queued and its change is complete. */
  async #message(
    event: PendingEvent,
    id: string,
    endpointIds: readonly string[],
    before: Promise<void> | undefined,
    signal: AbortSignal,
  ) {
    const { type, time, change } = event;
    const [propagation] = await Promise.all([
      change ? this.#options.receipts.of(event.data, change, signal) : undefined,
      before,
    ]);
    const data = { ...event.data, ...(propagation ? { propagation } : {}) };
    const body = JSON.stringify({ type, timestamp: new Date(time).toISOString(), data });
    return { id, type, order: orderOf(event), body, endpointIds };
  }

  async #flush(): Promise<void> {
    const { outbox, log, onQueued, onDropped } = this.#options;
    try {
      while (this.#ready.length > 0) {
        const part = this.#nextPart();
        const lost = await outbox.queue(part);
        this.#ready.splice(0, part.length);
        this.#open -= part.length;
        onQueued(new Set(part.flatMap(({ messages }) => messages.flatMap((each) => each.endpointIds))));
        for (const [endpointId, events] of lost) {
          log.error(
            { endpointId, events },
            'the queue of a webhook endpoint is full: it lost its oldest events',
          );
          onDropped(events);
        }
        this.#room.wake();
      }
    } catch (error) {
      // The term of this sender ends, and the next one begins with what is not queued.
      this.#failure = error;
    } finally {
      this.#flushing = undefined;
    }
  }

  #nextPart(): QueuedEntry[] {
    let messages = 0;
    const end = this.#ready.findIndex((entry, i) => {
      messages += entry.messages.length;
      return i > 0 && (messages > QUEUED_AT_ONCE || i >= 4 * QUEUED_AT_ONCE);
    });
    return this.#ready.slice(0, end < 0 ? undefined : end);
  }
}

function isFor({ events, apiIds }: WebhookEndpoint, { type, data }: PendingEvent): boolean {
  if (!letsPass(events, type)) return false;
  return apiIds === undefined || apiIds.some((apiId) => apiId === data['apiId']);
}

/** Returns what an event is in order with: the key, or another thing that it is about. */
function orderOf({ type, data }: PendingEvent): string {
  const { keyId, identityId, roleId, rootKeyId, verifierId, apiId } = data;
  return String(keyId ?? identityId ?? roleId ?? rootKeyId ?? verifierId ?? apiId ?? type);
}
