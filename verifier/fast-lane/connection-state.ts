import type { HttpLimits } from '../http/http-settings.ts';

/**
 * State of a connection:
 * - `fresh`: nothing came yet; `reading`: a request is awaited; `receiving`: a part of one is here
 * - `looking up`: its verdict is awaited; `passed on`: the API answers it; `delegated`: Node answers it
 * - `answered`: its answer is written, and what is behind it is next once the client has read
 * - `over`: whatever still comes is ignored; `handed over`: the connection is Node's
 */
export type ConnectionState =
  | 'fresh'
  | 'reading'
  | 'receiving'
  | 'looking up'
  | 'passed on'
  | 'delegated'
  | 'answered'
  | 'over'
  | 'handed over';

/** Tells whether a request is being answered, so that what comes has to wait. */
export const isBusy = (state: ConnectionState): boolean =>
  state === 'looking up' || state === 'passed on' || state === 'delegated' || state === 'answered';

/** Tells whether nothing waits on the connection. */
export const isIdle = (state: ConnectionState): boolean => state === 'fresh' || state === 'reading';

/**
 * Tells what a connection has to be ended for; undefined = it stays.
 * @param quietMs since something moved; while a request is received, since that began
 * @param requestMs the longest that the request in part may take
 */
export function timeoutFault(
  state: ConnectionState,
  quietMs: number,
  requestMs: number,
  { STALL_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS }: HttpLimits,
): 'stalled' | 'too slow' | 'idle' | undefined {
  if (isBusy(state) || state === 'over') return quietMs > STALL_TIMEOUT_MS ? 'stalled' : undefined;
  if (state === 'fresh' || state === 'receiving') return quietMs > requestMs ? 'too slow' : undefined;
  return quietMs > KEEP_ALIVE_TIMEOUT_MS ? 'idle' : undefined;
}
