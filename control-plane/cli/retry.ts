import { scheduler } from 'node:timers/promises';
import { backoffMs } from '#shared/lang/clock.ts';
import type { Client } from './client.ts';
import { CliError } from './exit.ts';

const RETRY_FIRST_MS = 200;
const RETRY_MAX_MS = 5000;
/** About a minute and a half in total, and longer if the server asks for it. */
const RETRIES_MAX = 20;
/** About a second in total: short enough for a person at a terminal. */
export const RETRIES_FEW = 3;

/**
 * Calls an operation that may be repeated: while the server is unreachable, cannot decide or asks to retry
 * later, reports that and retries. Rejects with the last failure after `retriesMax` retries, or soon after
 * `stop`.
 */
export async function callPatiently<T>(
  client: Client,
  operation: string,
  input: object,
  stop: AbortSignal,
  say: (text: string) => void,
  retriesMax = RETRIES_MAX,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await client.call<T>(operation, input);
    } catch (error) {
      if (!(error instanceof CliError) || error.exit !== 'UNAVAILABLE') throw error;
      if (attempt === retriesMax || stop.aborted) throw error;
      const ownMs = backoffMs(attempt, RETRY_FIRST_MS, RETRY_MAX_MS, Math.random);
      say(`${error.message}; trying again`);
      // If `stop` aborts during the wait, the next attempt is the last.
      await scheduler.wait(Math.max(error.retryAfterMs ?? 0, ownMs), { signal: stop }).catch(() => undefined);
    }
  }
}
