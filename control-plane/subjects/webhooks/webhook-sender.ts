import { randomUUID } from 'node:crypto';
import { type Clock, pause, Waker } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import type { OperationEvent } from '../../core/schema/event-types.ts';
import type { Audit } from '../audit/audit.ts';
import type { Duty } from '../duties/duty.ts';
import { EndpointSender, type OnAttempt } from './endpoint-sender.ts';
import type { SigningEndpoint, WebhookEndpoints } from './endpoints.ts';
import type { EventPoster } from './event-poster.ts';
import { DISABLE_ENDPOINT } from './events-of.ts';
import { NotSender, Outbox, SENDER_MS } from './outbox.ts';
import { Pump, Receipts } from './pump.ts';

/** Pause between two attempts to become the sender, and between two looks at the endpoints, milliseconds. */
const PERIOD_MS = 1000;
/** Longest time to finish what is under way when the process stops, milliseconds. */
const STOP_MS = 4000;
/** Time before the end of its term in which a sender begins nothing, milliseconds. */
const MARGIN_MS = 1000;

/** Counts for metrics. */
export interface WebhookEvents {
  readonly onAttempt: OnAttempt;
  /** Events were lost because a queue was full, or because the audit log was trimmed before they were read. */
  readonly onDropped: (events: number) => void;
}

interface SenderOptions {
  readonly nodes: RedisNodes;
  readonly endpoints: WebhookEndpoints;
  readonly audit: Pick<Audit, 'record'>;
  readonly poster: EventPoster;
  readonly changeWriter: Pick<ChangeWriter, 'status'>;
  readonly declared: (operation: string) => OperationEvent | undefined;
  readonly duties: readonly Duty[];
  readonly queueMax: number;
  /** Time after which a command to Redis is cut off, milliseconds. */
  readonly commandMsMax: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: WebhookEvents;
}

/**
 * Sends webhooks. Of all control planes one is the sender at a time; if it dies, another takes over within 10 s.
 * An event leaves a stream or a queue only by a script that also does what follows, so it is sent at least once.
 */
export class WebhookSender {
  readonly #options: SenderOptions;
  readonly #outbox: Outbox;
  readonly #lines = new Map<string, EndpointSender>();
  readonly #stop = new AbortController();
  #pump: Pump | undefined;
  #running: Promise<void> | undefined;
  #missed: number | undefined;
  /** Wakes when there are events for an endpoint that has no line yet. */
  readonly #look = new Waker();
  #heldAtMs = 0;
  #gone = 0;
  /** The reason why nothing was sent, as it was logged last. */
  #reason = '';

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#outbox = new Outbox(options.nodes, randomUUID(), options.queueMax, options.commandMsMax);
  }

  /** True while this control plane is the sender. */
  get isSender(): boolean {
    return this.#pump !== undefined;
  }

  /** Number of events that wait until their changes are complete. */
  get open(): number {
    return this.#pump?.open ?? 0;
  }

  /** Number of endpoints whose latest attempts failed so often that they are paused. */
  get failing(): number {
    return [...this.#lines.values()].filter((line) => line.isPaused).length;
  }

  /** Number of endpoints that were disabled because they answered that they are gone, as of the last look. */
  get gone(): number {
    return this.#gone;
  }

  /** Sends whenever this process is the sender, until `stop`; never rejects. */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /** Finishes what is under way, for at most 4 s, and lets another control plane go on. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.race([this.#running, pause(this.#options.clock, STOP_MS)]);
    await this.#options.poster.close();
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      try {
        if (await this.#outbox.hold()) await this.#term();
      } catch (err) {
        if (err instanceof NotSender) log.warn('another control plane sends webhooks now');
        else this.#sayFailure(err);
      }
      await pause(clock, PERIOD_MS, this.#stop.signal);
    }
    await this.#outbox.letGo().catch(() => undefined);
  }

  /** Logs why nothing is sent, once for each reason. */
  #sayFailure(err: unknown): void {
    const reason = String(err);
    if (reason === this.#reason) return;
    this.#reason = reason;
    this.#options.log.warn({ err }, 'webhooks are not sent');
  }

  /** Sends until another control plane is the sender, Redis fails, or the process stops. */
  async #term(): Promise<void> {
    const { endpoints, changeWriter, declared, clock, log, duties, events } = this.#options;
    const end = new AbortController();
    const signal = AbortSignal.any([end.signal, this.#stop.signal]);
    await this.#outbox.prepare();
    const pump = new Pump({
      ...{ outbox: this.#outbox, declared, clock, log, onDropped: events.onDropped },
      endpoints: () => endpoints.signing(),
      receipts: new Receipts(changeWriter, clock),
      onQueued: (endpointIds) => {
        for (const endpointId of endpointIds) {
          const line = this.#lines.get(endpointId);
          if (line) line.wake();
          else this.#look.wake();
        }
      },
    });
    this.#pump = pump;
    this.#reason = '';
    log.info('this control plane sends webhooks');
    const lines: Promise<void>[] = [];
    let failure: unknown;
    const fail = (error: unknown) => {
      failure ??= error;
      end.abort();
    };
    const work = [pump.run(signal), this.#keepTerm(signal, (line) => lines.push(line.run().catch(fail)))].map(
      (each) => each.catch(fail),
    );
    work.push(...duties.map((duty) => duty.run(signal)));
    await Promise.race([...work.slice(0, 2), aborted(signal)]);
    end.abort();
    this.#look.wake();
    for (const line of this.#lines.values()) line.stop();
    this.#lines.clear();
    await Promise.all([...work, ...lines]);
    this.#pump = undefined;
    if (failure !== undefined) throw failure;
  }

  /** Stays the sender, and begins and ends lines as endpoints come and go. Rejects if another is the sender. */
  async #keepTerm(signal: AbortSignal, begin: (line: EndpointSender) => void): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      const heldAtMs = clock.monotonicMs();
      if (!(await this.#outbox.hold())) throw new NotSender();
      this.#heldAtMs = heldAtMs;
      this.#look.reset();
      await this.#followEndpoints(begin);
      await this.#countMissed();
      await this.#look.pause(clock, PERIOD_MS);
    }
  }

  async #followEndpoints(begin: (line: EndpointSender) => void): Promise<void> {
    const present = await this.#options.endpoints.signing();
    this.#gone = present.filter(({ goneAt }) => goneAt !== undefined).length;
    for (const endpoint of present) {
      const line = this.#lines.get(endpoint.endpointId);
      if (line) line.endpoint = endpoint;
      else begin(this.#addLine(endpoint));
    }
    const ids = new Set(present.map(({ endpointId }) => endpointId));
    for (const [endpointId, line] of this.#lines) {
      if (ids.has(endpointId)) continue;
      line.stop();
      this.#lines.delete(endpointId);
    }
  }

  #addLine(endpoint: SigningEndpoint): EndpointSender {
    const { endpoints, audit, poster, clock, log, events } = this.#options;
    const line = new EndpointSender(endpoint, {
      ...{ outbox: this.#outbox, poster, clock, log, onAttempt: events.onAttempt },
      isSender: () => clock.monotonicMs() - this.#heldAtMs < SENDER_MS - MARGIN_MS,
      async onGone(endpointId) {
        if (!(await endpoints.disableGone(endpointId))) return;
        log.warn({ endpointId }, 'a webhook endpoint answered 410 Gone, and is disabled');
        await audit.record('done', {
          ...{ time: clock.wallMs(), requestId: randomUUID(), operation: DISABLE_ENDPOINT, outcome: 'OK' },
          ...{ by: { address: 'keyfence' }, on: { endpointId } },
          ...{ before: { enabled: true }, after: { enabled: false, status: 410 } },
        });
      },
    });
    this.#lines.set(endpoint.endpointId, line);
    return line;
  }

  /** Counts events of the audit log that were trimmed before they were read. */
  async #countMissed(): Promise<void> {
    const missed = await this.#outbox.missed();
    const more = missed - (this.#missed ?? missed);
    this.#missed = missed;
    if (more <= 0) return;
    this.#options.log.error({ events: more }, 'the audit log lost events before webhooks had them');
    this.#options.events.onDropped(more);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
