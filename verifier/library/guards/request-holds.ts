import { constants } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Clock, pause, systemClock, type Timer } from '#shared/process/clock.ts';
import type { AskedRateLimit, Costs, KeyVerifier, QuestionOptions, ValidKey } from '../key-verifier.ts';
import { type AbortRule, CREDITS, costsAtEnd, type Ended } from '../options.ts';
import type { PassedKey } from './guard-options.ts';
import { checkedCosts } from './rules.ts';

/** The end of a response: Node's response, the socket of an upgrade, or `ResponseEnd`. */
export interface Ending {
  readonly destroyed?: boolean;
  /** The stream of a response of HTTP/2, which lacks `destroyed`. */
  readonly stream?: { readonly destroyed: boolean; readonly rstCode?: number | undefined } | undefined;
  /** True = all of the response was sent; undefined = it is no response of Node. */
  readonly writableFinished?: boolean;
  /** The same for HTTP/2, which finishes a stream also when it is cancelled. */
  readonly writableEnded?: boolean;
  readonly req?: { readonly socket: Pick<Socket, 'errored' | 'readableEnded'> };
  /** True = the client left before its end; undefined = Node's response tells. */
  readonly hasLeft?: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Returns true if the client left before the end of a response that is over. An application that breaks it off neither ends
 * the client's side of the connection, nor does the system report an error of it.
 */
function hasLeft({ hasLeft, stream, writableFinished, writableEnded, req }: Ending): boolean {
  if (hasLeft !== undefined) return hasLeft;
  if (stream) return writableEnded === false && stream.rstCode === constants.NGHTTP2_CANCEL;
  if (writableFinished !== false) return false;
  const { readableEnded, errored } = req?.socket ?? {};
  return readableEnded === true || 'syscall' in Object(errored);
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
  #hasLeft = false;

  constructor(request: Pick<Request, 'method' | 'signal'>, clock: Clock = systemClock) {
    this.#request = request;
    this.#clock = clock;
  }

  get destroyed(): boolean {
    return this.#isOver || this.#request.signal.aborted;
  }

  get hasLeft(): boolean {
    return this.#hasLeft || (!this.#isOver && this.#request.signal.aborted);
  }

  once(_event: 'close', listener: () => void): void {
    this.#listener = listener;
    this.#request.signal.addEventListener('abort', this.#leave, { once: true });
  }

  readonly #leave = (): void => {
    this.#hasLeft = true;
    this.end();
  };

  readonly end = (): void => {
    this.#isOver = true;
    this.#unread?.cancel();
    if (this.#listener === undefined) return;
    this.#request.signal.removeEventListener('abort', this.#leave);
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
    this.#unread = this.#clock.after(UNREAD_MS_MAX, this.#leave);
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
          this.#leave();
          return reader.cancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, response);
  }
}

/** The guarded requests of a verifier. */
class OpenRequests {
  /** Ends of those with open holds. */
  readonly ends = new Set<() => void>();
  /** Releases that are not answered yet. */
  readonly releases = new Set<Promise<void>>();
  /** Aborts when the last has ended. */
  readonly over = new AbortController();
}

const open = new WeakMap<KeyVerifier, OpenRequests>();

/**
 * Waits for the guarded requests of a verifier that closes, then ends their holds, and charges what was said last. Resolves
 * when their releases are answered.
 */
export async function endRequests(verifier: KeyVerifier, clock: Clock, waitMs: number): Promise<void> {
  const requests = open.get(verifier);
  if (requests === undefined) return;
  if (requests.ends.size > 0) await pause(clock, waitMs, requests.over.signal);
  for (const end of requests.ends) end();
  await Promise.all(requests.releases);
}

/** Amounts by name: `credits`, and rate limits. */
type Amounts = Map<string, number>;

/** The holds with which the guards of one request let it pass, until its response ends. */
export class RequestHolds {
  readonly #parts: { readonly verifier: KeyVerifier; readonly id: string; readonly reserved: Amounts }[] = [];
  /** Amounts that guards took without a hold. */
  readonly #spent: Amounts;
  readonly #ending: Ending;
  #onAbort: AbortRule = 'charge';
  #costs: Costs = {};
  /** The names that guards of the request have in `reserve`. */
  readonly #names = new Set<string>();
  #isOver = false;
  /** True = the response was over before a guard let the request pass, so that the application must not handle it. */
  readonly isUnsent: boolean;

  constructor(ending: Ending, spent: Amounts) {
    this.#spent = spent;
    this.#ending = ending;
    const { destroyed, stream, writableEnded, writableFinished } = ending;
    this.#isOver = Boolean(destroyed || stream?.destroyed);
    this.isUnsent = this.#isOver && !(stream ? writableEnded : writableFinished);
    if (!this.#isOver) ending.once('close', () => this.#end());
  }

  /**
   * Adds what a guard took. Returns its verdict, behind a guard with `reserve` with `charge`, which is no part of the
   * verdict's data.
   * @param options.costs what it took or reserved, by name
   * @param options.held the rate limits in its hold
   * @param options.reserve the hold for which it would ask without the guards before, and its `onAbort`; undefined = it has
   * no `reserve`
   */
  add(
    verifier: KeyVerifier,
    verdict: ValidKey,
    options: {
      costs: Amounts;
      held: readonly AskedRateLimit[];
      reserve: (NonNullable<QuestionOptions['hold']> & { readonly onAbort: AbortRule }) | undefined;
    },
  ): PassedKey {
    const { hold } = verdict;
    const { costs, held, reserve } = options;
    const reserved: Amounts = new Map();
    for (const [name, cost] of costs) {
      if (hold && (name === CREDITS || held.some((limit) => limit.name === name))) reserved.set(name, cost);
      else this.#spent.set(name, (this.#spent.get(name) ?? 0) + cost);
    }
    if (hold) {
      this.#parts.push({ verifier, id: hold.id, reserved });
      const requests = open.get(verifier) ?? new OpenRequests();
      open.set(verifier, requests);
      requests.ends.add(this.#end);
    }
    this.#onAbort = reserve?.onAbort ?? this.#onAbort;
    if (this.#isOver) this.#end();
    for (const { name } of reserve?.ratelimits ?? []) this.#names.add(name);
    if (reserve?.credits !== undefined) this.#names.add(CREDITS);
    const charge = { value: Object.assign(this.#charge, { add: this.#addCosts }), configurable: true };
    return (this.#names.size > 0 ? Object.defineProperty(verdict, 'charge', charge) : verdict) as PassedKey;
  }

  readonly #charge = (cost: number | Costs): boolean => this.#say('charge', checkedCosts('charge', cost));

  readonly #addCosts = (cost: number | Costs): boolean => {
    const added = checkedCosts('charge.add', cost);
    const sums = Object.entries(added).map(([name, amount]) => [name, (this.#costs[name] ?? 0) + amount]);
    return this.#say(
      'charge.add',
      checkedCosts('charge.add', { ...this.#costs, ...Object.fromEntries(sums) }),
    );
  };

  #say(caller: string, costs: Costs): boolean {
    const stray = Object.keys(costs).find((name) => !this.#names.has(name));
    if (stray !== undefined)
      throw new TypeError(
        `${caller}: no guard of the request reserves ${stray}, but ${[...this.#names].join(', ')}; add it to reserve`,
      );
    this.#costs = costs;
    return !this.#isOver;
  }

  /** Ends the holds. The guards share a cost in their order, and the last that reserved of it takes the rest. */
  readonly #end = (): void => {
    this.#isOver = true;
    const rest: Amounts = new Map();
    for (const [name, cost] of Object.entries(this.#dueCosts()))
      rest.set(name, Math.max(0, cost - (this.#spent.get(name) ?? 0)));
    for (const [i, { verifier, id, reserved }] of this.#parts.entries()) {
      const shares: Amounts = new Map();
      for (const [name, amount] of reserved) {
        const unpaid = rest.get(name);
        if (unpaid === undefined) continue;
        const isLast = !this.#parts.slice(i + 1).some((part) => part.reserved.has(name));
        const share = isLast ? unpaid : Math.min(unpaid, amount);
        shares.set(name, share);
        rest.set(name, unpaid - share);
      }
      // Without an answer about a cost above the reservation, this charges the reservation. If that fails, the hold ends by
      // its time.
      const release: Promise<void> = verifier
        .release(id, Object.fromEntries(shares))
        .catch(() => verifier.release(id))
        .then(
          () => void requests?.releases.delete(release),
          () => void requests?.releases.delete(release),
        );
      const requests = open.get(verifier);
      requests?.releases.add(release);
      requests?.ends.delete(this.#end);
      if (requests?.ends.size === 0) requests.over.abort();
    }
    this.#parts.length = 0;
  };

  #dueCosts(): Costs {
    const ended: Ended = this.isUnsent ? 'unsent' : hasLeft(this.#ending) ? 'left' : 'whole';
    const amounts = new Map(this.#spent);
    for (const { reserved } of this.#parts)
      for (const [name, amount] of reserved) amounts.set(name, (amounts.get(name) ?? 0) + amount);
    return costsAtEnd(ended, this.#onAbort, this.#costs, amounts);
  }
}
