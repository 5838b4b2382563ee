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

/** The end of a response of the Fetch API. */
export class ResponseEnd implements Ending {
  destroyed = false;
  #listener: (() => void) | undefined;

  once(_event: 'close', listener: () => void): void {
    this.#listener = listener;
  }

  end(): void {
    this.destroyed = true;
    this.#listener?.();
    this.#listener = undefined;
  }

  /** Returns the response; if something waits for its end, with a body that tells it. */
  watch(response: Response): Response {
    if (this.#listener === undefined) return response;
    const reader = response.body?.getReader();
    if (reader === undefined) {
      this.end();
      return response;
    }
    const fail = (error: unknown) => {
      this.end();
      throw error;
    };
    const body = new ReadableStream(
      {
        pull: async (controller) => {
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
