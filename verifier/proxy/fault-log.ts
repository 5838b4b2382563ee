import { traceIdIn } from '#shared/contract/trace-id.ts';
import type { Clock } from '#shared/lang/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { UpstreamError, UpstreamFault } from './upstream-handler.ts';

/**
 * Shortest time between two log lines about the same fault, so that a server that is down does not fill the
 * log.
 */
const PERIOD_MS = 1000;

/** A log of the reasons why requests that were passed on got no response. */
export class FaultLog {
  readonly #to: string;
  readonly #clock: Clock;
  readonly #log: Pick<Logger, 'warn'>;
  readonly #last = new Map<UpstreamFault, { atMs: number; unsaid: number }>();

  /** @param to name of the server, in words */
  constructor(to: string, clock: Clock, log: Pick<Logger, 'warn'>) {
    this.#to = to;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Logs the fault, unless the same kind was logged less than PERIOD_MS ago. It then counts in `unsaid` of
   * the next line.
   */
  tell(
    error: UpstreamError,
    request: { readonly method: string; readonly requestId: string; readonly rawHeaders: readonly string[] },
  ): void {
    const { fault, cause } = error;
    const last = this.#last.get(fault);
    const nowMs = this.#clock.monotonicMs();
    if (last !== undefined && nowMs - last.atMs < PERIOD_MS) {
      last.unsaid++;
      return;
    }
    this.#last.set(fault, { atMs: nowMs, unsaid: 0 });
    const { method, requestId } = request;
    const traceId = traceIdIn(request.rawHeaders);
    const unsaid = last?.unsaid ?? 0;
    // Logs only the message: the rest of the error may contain data from the server.
    const reason = cause instanceof Error ? cause.message : undefined;
    this.#log.warn({ requestId, traceId, method, fault, reason, unsaid }, `no response from ${this.#to}`);
  }
}
