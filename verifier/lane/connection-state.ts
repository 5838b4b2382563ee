import type { HttpLimits } from '../http/http-settings.ts';

/**
 * State of a connection:
 * - `fresh`: nothing has arrived yet; `reading`: waits for a request; `receiving`: has a part of a request
 * - `looking up`: waits for a verdict; `passed on`: the API answers the request; `delegated`: Node answers it
 * - `answered`: the answer is written; the next request follows once the client has read it
 * - `over`: ignores everything that still arrives; `handed over`: the connection belongs to Node
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

/** Returns true while a request is being answered. Bytes that arrive meanwhile have to wait. */
export const isBusy = (state: ConnectionState): boolean =>
  state === 'looking up' || state === 'passed on' || state === 'delegated' || state === 'answered';

/** Returns true if the connection has no open request. */
export const isIdle = (state: ConnectionState): boolean => state === 'fresh' || state === 'reading';

/**
 * Returns the reason to end a connection; undefined = it stays.
 * @param quietMs time since the last progress; while a request is received, since its beginning
 * @param requestMs longest time that a partial request may take
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
