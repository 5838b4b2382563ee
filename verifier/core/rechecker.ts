import type { Clock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { SlotList } from '#shared/process/slot-list.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import { Lease } from '#shared/protocol/follower/lease.ts';
import { toApiError } from '#shared/rules/errors.ts';
import type { Question } from './question.ts';
import type { VerdictSource } from './verdict.ts';

/** The response of a long request. */
interface LongResponse {
  /** Ends the request. */
  destroy(): void;
}

/** A request that is still running. */
interface LongRequest {
  readonly question: Question;
  readonly response: LongResponse;
  /** The lease under which the last verdict was given. The request may go on until the lease ends. */
  readonly lease: Lease;
  /** Number of half periods since the request began. */
  age: number;
  /** False = it has no verdict yet. */
  isAccepted: boolean;
  isCut: boolean;
}

/**
 * Rechecks the keys of long requests, such as WebSockets. Each key is rechecked once a period, the first time
 * before the request is one period old. If the key is no longer valid, the request is cut. Without a verdict
 * the request goes on until the lease of its last verdict ends, and is then cut: a change that is complete by
 * fence has waited only for that lease.
 */
export class Rechecker {
  readonly #requests = new SlotList<LongRequest>();
  readonly #verifier: VerdictSource;
  readonly #log: Pick<Logger, 'error'>;
  readonly #clock: Clock;
  readonly #periodMs: number;
  #timer: { cancel(): void } | undefined;

  constructor(verifier: VerdictSource, log: Pick<Logger, 'error'>, clock: Clock, periodMs: number) {
    this.#verifier = verifier;
    this.#log = log;
    this.#clock = clock;
    this.#periodMs = periodMs;
    this.#next();
  }

  /**
   * Starts rechecking a request. The caller passes the returned place to `end`.
   * @param accepted the key by the last verdict; undefined = the key has no verdict yet, and gets one now
   */
  begin(response: LongResponse, question: Question, accepted: Entry | undefined): number {
    const recheck = { ...question, isRecheck: true };
    const isAccepted = accepted !== undefined;
    const lease = new Lease(this.#clock);
    const request = { response, question: recheck, lease, age: 0, isAccepted, isCut: false };
    if (accepted === undefined) void this.#recheck(request);
    else request.lease.follow(accepted.epoch.lease, accepted.join?.lease);
    return this.#requests.add(request);
  }

  /** Stops rechecking a request. Returns true if it was cut. */
  end(place: number): boolean {
    return this.#requests.remove(place)?.isCut === true;
  }

  /** Stops rechecking. Requests go on as they are. */
  close(): void {
    this.#timer?.cancel();
  }

  /** Ends all requests, and stops rechecking. */
  cutAll(): void {
    this.close();
    for (const request of this.#requests) this.#cut(request);
  }

  #cut(request: LongRequest): void {
    request.isCut = true;
    request.response.destroy();
  }

  #next(): void {
    this.#timer = this.#clock.after(this.#periodMs / 2, () => {
      for (const request of this.#requests) {
        request.age++;
        const isDue = request.isAccepted && !request.lease.holds();
        if (isDue || request.age % 2 === 0) void this.#recheck(request);
      }
      this.#next();
    });
  }

  async #recheck(request: LongRequest): Promise<void> {
    const { question, lease } = request;
    try {
      let verdict = this.#verifier.decide(question);
      // A look-up may wait longer than the lease of the last verdict lasts.
      if (verdict === undefined && request.isAccepted && !lease.holds()) return this.#cut(request);
      verdict ??= await this.#verifier.lookUp(question);
      if (verdict.code !== 'VALID' || verdict.entry === undefined) this.#cut(request);
      else {
        lease.follow(verdict.entry.epoch.lease, verdict.entry.join?.lease);
        request.isAccepted = true;
      }
    } catch (err) {
      toApiError(err, this.#log);
      if (!lease.holds()) this.#cut(request);
    }
  }
}
