import { type Clock, holdProcess, pause, systemClock } from '#shared/lang/clock.ts';
import { VerifierError } from './key-verifier.ts';
import { wrongOptions } from './options.ts';

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
