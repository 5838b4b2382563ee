import { atMost, type Clock, holdProcess, pause, systemClock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { questionAbout } from '../core/question.ts';
import { Rechecker } from '../core/rechecker.ts';
import type { VerdictSource } from '../core/verdict.ts';
import {
  type KeyVerdict,
  VerifierError,
  type VerifierEvents,
  WatchError,
  type WatchOptions,
} from './key-verifier.ts';
import { type KeylessQuestion, mayBeKey, readQuestionOptions, wrongOptions } from './options.ts';

const READY_POLL_MS = 10;
const READY_TIMEOUT_MS = 10_000;
const READY_TIMEOUT_MS_MAX = 86_400_000;

/**
 * Resolves when nothing is missing any more. Rejects with VerifierError after `options.timeoutMs`, or when
 * `closing` aborts.
 * @param missing returns the reason why traffic has to wait; undefined = none
 */
export async function readyWithin(
  options: { readonly timeoutMs?: number } | undefined,
  closing: AbortSignal,
  missing: () => Promise<string | undefined>,
  clock: Clock = systemClock,
): Promise<void> {
  const timeoutMs = options?.timeoutMs ?? READY_TIMEOUT_MS;
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0 && timeoutMs <= READY_TIMEOUT_MS_MAX)) {
    throw wrongOptions([`timeoutMs: must be a number from 0 to ${READY_TIMEOUT_MS_MAX} ms`]);
  }
  const hold = holdProcess();
  const over = new AbortController();
  const timer = clock.after(timeoutMs, () => over.abort());
  const ends = AbortSignal.any([closing, over.signal]);
  try {
    for (let reason: string | undefined = 'no question was sent yet'; ; ) {
      if (!ends.aborted) reason = await untilAborted(missing(), ends, reason);
      if (closing.aborted) throw new VerifierError('CLOSED', 'the verifier was closed');
      if (reason === undefined) return;
      if (over.signal.aborted) {
        throw new VerifierError('SERVICE_UNAVAILABLE', `not ready within ${timeoutMs} ms: ${reason}`);
      }
      await pause(clock, READY_POLL_MS, ends);
    }
  } finally {
    timer.cancel();
    hold.cancel();
  }
}

/** Settles as `work` does, or resolves with `instead` if the signal aborts first. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal, instead: T): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const stop = () => resolve(instead);
  work.then(resolve, reject);
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await promise;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

type Listener<E extends keyof VerifierEvents> = (event: VerifierEvents[E]) => void;

/** The listeners to a verifier's events. */
export class EventListeners {
  readonly #listeners: { [E in keyof VerifierEvents]: Set<Listener<E>> } = {
    live: new Set(),
    dropped: new Set(),
  };

  /** @returns a function that removes the listener */
  on<E extends keyof VerifierEvents>(event: E, listener: Listener<E>): () => void {
    const listeners: Set<Listener<E>> | undefined = Object.hasOwn(this.#listeners, event)
      ? this.#listeners[event]
      : undefined;
    if (!listeners) throw new TypeError(`event: must be ${Object.keys(this.#listeners).join(' or ')}`);
    if (typeof listener !== 'function') throw new TypeError('listener: must be a function');
    // A new function for each call, so that a listener added twice is called twice, and each can be removed
    // by itself.
    const own: Listener<E> = (detail) => listener(detail);
    listeners.add(own);
    return () => void listeners.delete(own);
  }

  /**
   * Calls the listeners asynchronously, in a microtask. An error in a listener is the application's fault and
   * stops nothing here.
   */
  emit<E extends keyof VerifierEvents>(event: E, detail: VerifierEvents[E]): void {
    for (const listener of this.#listeners[event]) queueMicrotask(() => listener(detail));
  }
}

/** Time between two checks of a watched key. */
const PERIOD_MS = 400;
/** A sidecar's last good verdict keeps a watched key for this time, counted from when the question was sent. */
const SIDECAR_TRUST_MS = 1000;

/** Checks the options of a watch and returns its question. Throws a TypeError that names the fault. */
export function readWatchOptions(key: unknown, options: WatchOptions): KeylessQuestion {
  const { signal, ...rest } = Object(options) as WatchOptions;
  if (!(signal instanceof AbortSignal)) throw new TypeError('signal: must be an AbortSignal');
  for (const name of Object.keys(rest))
    if (!WATCH_OPTIONS.has(name)) throw new TypeError(`${name}: unknown option`);
  return readQuestionOptions(key, rest);
}

const WATCH_OPTIONS: ReadonlySet<string> = new Set(['apiId', 'permissions', 'clientIp', 'origin']);

/** The watches of a verifier in this process. */
export class LocalWatches {
  readonly #verifier: VerdictSource;
  readonly #log: Pick<Logger, 'error'>;
  readonly #clock: Clock;
  /** undefined = nothing was watched yet, and no timer runs. */
  #rechecker: Rechecker | undefined;
  #isClosed = false;

  constructor(verifier: VerdictSource, log: Pick<Logger, 'error'>, clock: Clock) {
    this.#verifier = verifier;
    this.#log = log;
    this.#clock = clock;
  }

  watch(key: string, rest: KeylessQuestion, until: AbortSignal): AbortSignal {
    const over = new AbortController();
    if (until.aborted) return over.signal;
    const question = questionAbout(key, { ...rest, isRecheck: true });
    const codeNow = () => {
      if (this.#isClosed) return 'CLOSED';
      const verdict = mayBeKey(key) ? this.#verifier.decide(question) : { code: 'NOT_FOUND' as const };
      return verdict === undefined || verdict.code === 'VALID' ? 'SERVICE_UNAVAILABLE' : verdict.code;
    };
    const destroy = () => {
      if (!until.aborted && !over.signal.aborted) over.abort(new WatchError(codeNow()));
    };
    if (this.#isClosed || !mayBeKey(key)) {
      destroy();
      return over.signal;
    }
    const rechecker = this.#rechecker ?? new Rechecker(this.#verifier, this.#log, this.#clock, PERIOD_MS);
    this.#rechecker = rechecker;
    const place = rechecker.begin({ destroy }, question, undefined);
    const end = () => {
      rechecker.end(place);
      until.removeEventListener('abort', end);
      over.signal.removeEventListener('abort', end);
    };
    until.addEventListener('abort', end);
    if (over.signal.aborted) end();
    else over.signal.addEventListener('abort', end);
    return over.signal;
  }

  /** Ends all watches: no change of a key waits for this verifier any more. */
  close(): void {
    this.#isClosed = true;
    this.#rechecker?.cutAll();
  }
}

/**
 * Watches a key through a sidecar.
 * @param check asks the sidecar
 */
export function watchThrough(
  check: () => Promise<KeyVerdict>,
  until: AbortSignal,
  clock: Clock,
): AbortSignal {
  const over = new AbortController();
  void follow(check, until, clock).then((code) => {
    if (code !== undefined && !until.aborted) over.abort(new WatchError(code));
  });
  return over.signal;
}

/** Resolves with the reason why the key is no longer good; undefined = the watch ended first. */
async function follow(
  check: () => Promise<KeyVerdict>,
  until: AbortSignal,
  clock: Clock,
): Promise<WatchError['code'] | undefined> {
  let trustedUntilMs = clock.monotonicMs() + SIDECAR_TRUST_MS;
  while (!until.aborted) {
    const sentAtMs = clock.monotonicMs();
    const leftMs = trustedUntilMs - sentAtMs;
    if (leftMs <= 0) return 'SERVICE_UNAVAILABLE';
    try {
      const verdict = await atMost(clock, leftMs, check(), tooLate);
      if (verdict.code !== 'VALID') return verdict.code;
      trustedUntilMs = sentAtMs + SIDECAR_TRUST_MS;
    } catch (error) {
      if ((error as VerifierError).code === 'CLOSED') return 'CLOSED';
    }
    await pause(clock, Math.min(PERIOD_MS, Math.max(0, trustedUntilMs - clock.monotonicMs())), until);
  }
  return undefined;
}

const tooLate = () => new VerifierError('SERVICE_UNAVAILABLE', 'no answer from the sidecar in time');
