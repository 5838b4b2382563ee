import { backoffMs, type Clock, Waker } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { SigningEndpoint } from './endpoints.ts';
import type { EventPoster, PostResult } from './event-poster.ts';
import { type Attempt, type AttemptOutcome, NotSender, type Outbox, type WaitingMessage } from './outbox.ts';

const [SECOND, MINUTE, HOUR] = [1000, 60_000, 3_600_000];

/** Waits after each failed attempt, milliseconds; the last one repeats. */
const WAITS = [
  5 * SECOND,
  30 * SECOND,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
];
/** Part of a wait by which it is at most longer or shorter, so that retries do not come together. */
const JITTER = 0.2;

/** Time for which the delivery of an event is tried. */
export const DELIVERY_MS_MAX = 72 * HOUR;
/** Number of consecutive failures after which an endpoint gets only one attempt at a time. */
export const FAILURES_TO_PAUSE = 5;
const PAUSE_MS_MAX = 5 * MINUTE;

/**
 * Returns the wait before the next attempt to deliver an event, milliseconds; undefined = it is given up.
 * @param attempts number of failed attempts, at least 1
 * @param ageMs time since the event was queued
 * @param chance random number from 0 to below 1
 */
export function retryDelayMs(attempts: number, ageMs: number, chance: number): number | undefined {
  const waitMs = jittered(WAITS[Math.min(attempts, WAITS.length) - 1] ?? 0, chance);
  return ageMs + waitMs > DELIVERY_MS_MAX ? undefined : waitMs;
}

/**
 * Returns how long an endpoint is left alone after consecutive failures, milliseconds; 0 = it is not paused.
 */
export function endpointPauseMs(failures: number, chance: number): number {
  if (failures < FAILURES_TO_PAUSE) return 0;
  const doublings = Math.min(failures - FAILURES_TO_PAUSE, 10);
  return jittered(Math.min(PAUSE_MS_MAX, 5 * SECOND * 2 ** doublings), chance);
}

const jittered = (ms: number, chance: number): number => ms * (1 - JITTER + 2 * JITTER * chance);

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
class MessageWindow {
  readonly #messages = new Map<string, OpenMessage>();
  /** Ids of the messages that failed and wait. */
  readonly #deferred = new Set<string>();

  get hasRoom(): boolean {
    const { size } = this.#deferred;
    return this.#messages.size - size < READY_MAX && size < DEFERRED_MAX;
  }

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

  /** Lets all that failed and waits be due. */
  hurry(nowMs: number): void {
    for (const entryId of this.#deferred) {
      const message = this.#messages.get(entryId);
      if (message) this.#messages.set(entryId, { ...message, nextAtMs: Math.min(message.nextAtMs, nowMs) });
    }
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

/** Attempts at one endpoint at the same time. */
const AT_ONCE = 8;
const READ_AT_ONCE = 100;
/** Attempts that may wait for Redis to record them. */
const OUTCOMES_MAX = 500;
/** Attempts that are recorded by one run of the script. */
const OUTCOMES_AT_ONCE = 50;
/** Longest pause between two looks at what is due. */
const LOOK_MS = 1000;
/** Longest time to finish what is under way, milliseconds. */
const STOP_MS = 3000;
const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5000;
/** "Gone", with which an endpoint says that it wants no more events (Standard Webhooks). */
const GONE = 410;

/** A callback that counts the results of attempts. */
export type OnAttempt = (result: 'delivered' | 'failed' | 'dead') => void;

interface EndpointSenderOptions {
  readonly outbox: Outbox;
  readonly poster: EventPoster;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onAttempt: OnAttempt;
  /** Tells whether this process is certainly still the sender. */
  readonly isSender: () => boolean;
  /** Disables the endpoint, because it answered that it is gone. */
  readonly onGone: (endpointId: string) => Promise<void>;
  /** Returns a random number from 0 to below 1. */
  readonly chance?: () => number;
}

/**
 * Delivers the queue of one endpoint: several messages at a time, but those of one order one after the other.
 * While attempts fail one after the other, one message at a time is tried, and ever less often.
 */
export class EndpointSender {
  readonly #options: EndpointSenderOptions;
  readonly #window = new MessageWindow();
  readonly #outcomes: AttemptOutcome[] = [];
  readonly #stop = new AbortController();
  readonly #waker = new Waker();
  #endpoint: SigningEndpoint;
  #lastId = '';
  #hasMore = true;
  #sending = 0;
  #failures = 0;
  #pausedUntilMs = 0;
  /** When somebody last wanted an attempt at once, as far as this sender has heeded it. */
  #hurriedAtMs = 0;
  #recording: Promise<void> | undefined;
  /** The reason why the latest attempts could not be recorded. */
  #failure: unknown;
  #isStopping = false;
  #hasTakenOver = false;

  constructor(endpoint: SigningEndpoint, options: EndpointSenderOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
  }

  /** True while so many attempts failed one after the other that attempts are rare. */
  get isPaused(): boolean {
    return this.#endpoint.enabled && this.#pausedUntilMs > 0;
  }

  /** Takes over the present state of the endpoint, and looks for messages that other control planes queued. */
  set endpoint(endpoint: SigningEndpoint) {
    // Somebody who changed the URL wants to see at once whether it helps.
    if (endpoint.url !== this.#endpoint.url) this.#pausedUntilMs = 0;
    this.#endpoint = endpoint;
    this.wake();
  }

  /** Says that the queue may have news. */
  wake(): void {
    this.#hasMore = true;
    this.#waker.wake();
  }

  /** Begins no more attempts; those under way have 3 s to end. */
  stop(): void {
    this.#isStopping = true;
    this.#options.clock.after(STOP_MS, () => this.#stop.abort());
    this.#waker.wake();
  }

  /** Delivers until `stop`. Rejects with NotSender if another control plane is the sender. */
  async run(): Promise<void> {
    const { clock, log } = this.#options;
    for (let failures = 0; !this.#isStopping; ) {
      this.#waker.reset();
      try {
        if (this.#failure !== undefined) throw this.#failure;
        await this.#takeOver();
        await this.#heed();
        await this.#fill();
        this.#begin();
        failures = 0;
        await this.#waker.pause(clock, this.#restMs());
      } catch (err) {
        if (err instanceof NotSender) throw err;
        this.#failure = undefined;
        log.debug({ err, endpointId: this.#endpoint.endpointId }, 'webhook events wait for Redis');
        await this.#waker.pause(clock, backoffMs(failures++, RETRY_FIRST_MS, RETRY_MAX_MS, Math.random));
        this.#record();
      }
    }
    while (this.#sending > 0) {
      this.#waker.reset();
      await this.#waker.pause(clock, LOOK_MS);
    }
    this.#record();
    await this.#recording; // if this fails, they are delivered again
  }

  /** Begins where the sender before left off: that Redis or a control plane was gone is no success of the endpoint. */
  async #takeOver(): Promise<void> {
    if (this.#hasTakenOver) return;
    const { outbox } = this.#options;
    const { failures, pausedUntilMs, hurriedAtMs } = await outbox.failuresOf(this.#endpoint.endpointId);
    this.#failures = failures;
    this.#pausedUntilMs = pausedUntilMs;
    this.#hurriedAtMs = hurriedAtMs;
    this.#hasTakenOver = true;
  }

  /** Tries again at once if somebody wants that: a good test or a wanted delivery ends the pause. */
  async #heed(): Promise<void> {
    const isBusy = this.#sending > 0 || this.#outcomes.length > 0 || this.#recording !== undefined;
    if (this.#failures === 0 || isBusy) return;
    const { outbox, clock } = this.#options;
    const { failures, pausedUntilMs, hurriedAtMs } = await outbox.failuresOf(this.#endpoint.endpointId);
    if (hurriedAtMs === this.#hurriedAtMs) return;
    this.#hurriedAtMs = hurriedAtMs;
    this.#failures = failures;
    this.#pausedUntilMs = pausedUntilMs;
    this.#window.hurry(clock.wallMs());
  }

  /** Reads more messages if there are any and there is room. */
  async #fill(): Promise<void> {
    while (this.#hasMore && this.#window.hasRoom) {
      this.#hasMore = false;
      const { endpointId } = this.#endpoint;
      const messages = await this.#options.outbox.waiting(endpointId, this.#lastId, READ_AT_ONCE);
      for (const message of messages) {
        this.#window.add(message);
        this.#lastId = message.entryId;
      }
      this.#hasMore ||= messages.length === READ_AT_ONCE;
    }
  }

  /** Begins the attempts that are due. */
  #begin(): void {
    const nowMs = this.#options.clock.wallMs();
    if (!this.#endpoint.enabled || nowMs < this.#pausedUntilMs || !this.#options.isSender()) return;
    if (this.#outcomes.length >= OUTCOMES_MAX) return;
    const first = this.#window.firsts(nowMs, AT_ONCE);
    if (this.#pausedUntilMs > 0) {
      // The pause is over: one message shows whether attempts succeed again. A message that never succeeds must not
      // be the only one that is tried.
      if (this.#sending > 0) return;
      const fewest = first.reduce<OpenMessage | undefined>(
        (best, each) => (best === undefined || each.attempts < best.attempts ? each : best),
        undefined,
      );
      if (fewest) this.#send(fewest);
      return;
    }
    for (const message of first) {
      if (this.#sending >= AT_ONCE) return;
      if (message.nextAtMs <= nowMs) this.#send(message);
    }
  }

  #send(message: OpenMessage): void {
    message.isBeingSent = true;
    this.#sending++;
    void this.#attempt(message)
      .catch((error: unknown) => {
        // Redis did not say what is in the message.
        message.isBeingSent = false;
        this.#failure = error;
      })
      .finally(() => {
        this.#sending--;
        this.#waker.wake();
      });
  }

  async #attempt(message: OpenMessage): Promise<void> {
    const { outbox, poster } = this.#options;
    const { endpointId } = this.#endpoint;
    const body = message.body ?? (await outbox.bodyOf(endpointId, message.entryId));
    const result =
      body === undefined ? undefined : await poster.post(this.#endpoint, message.id, body, this.#stop.signal);
    if (body === undefined || result === undefined) this.#window.drop(message);
    else this.#note({ ...message, body }, result);
  }

  /** Notes the outcome of an attempt. */
  #note(message: OpenMessage & { readonly body: string }, result: PostResult): void {
    const { clock, onAttempt, chance = Math.random } = this.#options;
    if (this.#stop.signal.aborted && !result.isDelivered) return;
    const nowMs = clock.wallMs();
    this.#failures = result.isDelivered ? 0 : this.#failures + 1;
    const pauseMs = endpointPauseMs(this.#failures, chance());
    this.#pausedUntilMs = pauseMs > 0 ? nowMs + pauseMs : 0;
    const attempts = message.attempts + (result.isDelivered ? 0 : 1);
    const delayMs = retryDelayMs(attempts, nowMs - message.queuedAtMs, chance());
    const outcome = result.isDelivered ? 'delivered' : delayMs === undefined ? 'dead' : 'failed';
    const nextAtMs = nowMs + (delayMs ?? 0);
    const record = recordOf(result, { time: nowMs, attempt: message.attempts + 1, result: outcome });
    const nextAt = outcome === 'failed' ? { nextAt: Math.max(nextAtMs, this.#pausedUntilMs) } : {};
    this.#outcomes.push({ message, result: outcome, attempts, nextAtMs, record: { ...record, ...nextAt } });
    this.#record();
    onAttempt(outcome);
    if (outcome === 'failed') this.#window.defer(message, attempts, nextAtMs);
    else this.#window.drop(message);
    if (result.status === GONE) {
      this.#endpoint = { ...this.#endpoint, enabled: false };
      void this.#options.onGone(this.#endpoint.endpointId).catch(() => undefined);
    }
  }

  /** Records what was attempted, in its order, while other attempts go on. */
  #record(): void {
    this.#recording ??= this.#recordAll()
      .catch((error: unknown) => {
        this.#failure = error;
        this.#waker.wake();
      })
      .finally(() => {
        this.#recording = undefined;
      });
  }

  async #recordAll(): Promise<void> {
    while (this.#outcomes.length > 0) {
      const part = this.#outcomes.slice(0, OUTCOMES_AT_ONCE);
      const state = { failures: this.#failures, pausedUntilMs: this.#pausedUntilMs };
      await this.#options.outbox.record(this.#endpoint.endpointId, part, state);
      this.#outcomes.splice(0, part.length);
    }
  }

  /** The time until there may be something to do, milliseconds. */
  #restMs(): number {
    const nowMs = this.#options.clock.wallMs();
    if (this.#pausedUntilMs > nowMs) return Math.min(LOOK_MS, this.#pausedUntilMs - nowMs);
    return Math.max(1, Math.min(LOOK_MS, this.#window.nextAtMs(nowMs) - nowMs));
  }
}

function recordOf(
  { isDelivered: _, ...result }: PostResult,
  attempt: Pick<Attempt, 'time' | 'attempt' | 'result'>,
): Attempt {
  return { ...attempt, ...result };
}
