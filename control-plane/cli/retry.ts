import { scheduler } from 'node:timers/promises';
import { backoffMs } from '#shared/lang/clock.ts';
import type { Client } from './client.ts';
import { CliError } from './exit.ts';

const RETRY_FIRST_MS = 200;
const RETRY_MAX_MS = 5000;
/** About a minute and a half in all, and longer where the server asks for it. */
const RETRIES_MAX = 20;
/** About a second in all: what somebody waits for at a terminal. */
export const RETRIES_FEW = 3;

/**
 * As `client.call`, for what may be sent again: while the server is out of reach, cannot decide or asks for patience,
 * says so and tries again. Rejects with the last failure after `retriesMax`, or soon after `stop`.
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
      // If asked to stop meanwhile, the next attempt is the last one.
      await scheduler.wait(Math.max(error.retryAfterMs ?? 0, ownMs), { signal: stop }).catch(() => undefined);
    }
  }
}
