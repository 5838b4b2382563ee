import type { Duplex } from 'node:stream';
import { type Clock, systemClock, type Timer } from '#shared/process/clock.ts';
import type { KeyVerifier, Release, ValidKey } from '../key-verifier.ts';
import type { PassedKey } from './guard-options.ts';
import { checkedCredits } from './rules.ts';

/** The end of a response: Node's response, the socket of an upgrade, or `ResponseEnd`. */
export interface Ending {
  readonly destroyed?: boolean;
  /** The stream of a response of HTTP/2, which lacks `destroyed`. */
  readonly stream?: { readonly destroyed: boolean } | undefined;
  once(event: 'close', listener: () => void): unknown;
}

/** Time that an upgraded connection goes on after its client has ended it, if the application leaves it open. */
const SOCKET_END_MS = 3000;

/** Returns the end of an upgraded connection. */
export const endOfSocket = (socket: Duplex): Ending => ({
  get destroyed() {
    return socket.destroyed;
  },
  once(_event, listener) {
    socket.once('close', listener).once('end', () => systemClock.after(SOCKET_END_MS, listener));
  },
});

/** Time within which somebody must begin to read the body of a response, in milliseconds. */
const UNREAD_MS_MAX = 5000;

/** The end of a response of the Fetch API: that of its body, or of the request's signal. */
export class ResponseEnd implements Ending {
  readonly #request: Pick<Request, 'method' | 'signal'>;
  readonly #clock: Clock;
  #listener: (() => void) | undefined;
  #unread: Timer | undefined;
  #isOver = false;

  constructor(request: Pick<Request, 'method' | 'signal'>, clock: Clock = systemClock) {
    this.#request = request;
    this.#clock = clock;
  }

  get destroyed(): boolean {
    return this.#isOver || this.#request.signal.aborted;
  }

  once(_event: 'close', listener: () => void): void {
    this.#listener = listener;
    this.#request.signal.addEventListener('abort', this.end, { once: true });
  }

  readonly end = (): void => {
    this.#isOver = true;
    this.#unread?.cancel();
    if (this.#listener === undefined) return;
    this.#request.signal.removeEventListener('abort', this.end);
    this.#listener();
    this.#listener = undefined;
  };

  /**
   * Returns the response; if something waits for its end, with a body that tells it. No server reads the body of an
   * answer to HEAD. A body that nobody begins to read in time counts as ended.
   */
  watch(response: Response): Response {
    if (this.#listener === undefined) return response;
    const reader = this.#request.method === 'HEAD' ? undefined : response.body?.getReader();
    if (reader === undefined) {
      this.end();
      return response;
    }
    this.#unread = this.#clock.after(UNREAD_MS_MAX, this.end);
    const fail = (error: unknown) => {
      this.end();
      throw error;
    };
    const body = new ReadableStream(
      {
        pull: async (controller) => {
          this.#unread?.cancel();
          const { done, value } = await reader.read().catch(fail);
          if (!done) return controller.enqueue(value);
          controller.close();
          this.end();
        },
        cancel: (reason) => {
          this.end();
          return reader.cancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, response);
  }
}

/** The holds with which the guards of one request let it pass, until its response ends. */
export class RequestHolds {
  readonly #parts: { verifier: KeyVerifier; id: string; reserved: number }[] = [];
  /** Credits that a guard took without a hold. */
  #spent: number;
  #cost: number | undefined;
  /** True = a guard of the request has `reserve`. */
  #isChargeable = false;
  #isOver = false;

  constructor(ending: Ending, spent: number) {
    this.#spent = spent;
    if (ending.destroyed || ending.stream?.destroyed) this.#isOver = true;
    else ending.once('close', () => this.#end());
  }

  /**
   * Adds what a guard took. Returns its verdict, behind a guard with `reserve` with `charge`, which is no part of the
   * verdict's data.
   */
  add(verifier: KeyVerifier, verdict: ValidKey, credits: number, reserves: boolean): PassedKey {
    const { hold } = verdict;
    if (hold === undefined) this.#spent += credits;
    else this.#parts.push({ verifier, id: hold.id, reserved: credits });
    if (this.#isOver) this.#end();
    this.#isChargeable ||= reserves;
    const charge = { value: this.#charge, configurable: true };
    return (this.#isChargeable ? Object.defineProperty(verdict, 'charge', charge) : verdict) as PassedKey;
  }

  readonly #charge = (cost: number): boolean => {
    this.#cost = checkedCredits('charge', cost, 'takes');
    return !this.#isOver;
  };

  #end(): void {
    this.#isOver = true;
    let rest = this.#cost === undefined ? undefined : Math.max(0, this.#cost - this.#spent);
    for (const [i, { verifier, id, reserved }] of this.#parts.entries()) {
      const share = rest === undefined || i === this.#parts.length - 1 ? rest : Math.min(rest, reserved);
      if (rest !== undefined) rest -= share ?? 0;
      // Without an answer about a cost above the reservation, this charges the reservation.
      const release = (cost?: number): Promise<Release> => verifier.release(id, cost);
      void release(share)
        .catch(() => release())
        // It ends by its time, if it has not.
        .catch(() => undefined);
    }
    this.#parts.length = 0;
  }
}
