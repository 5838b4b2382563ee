import type { HttpLimits } from '../http/limits.ts';

/**
 * State of a connection. `receiving`: a part of a request is here. `waiting`: for a look-up, for the API, or until the
 * client has read. `over`: whatever still comes is ignored. `given`: Node has it.
 */
export type ConnectionState = 'fresh' | 'reading' | 'receiving' | 'waiting' | 'over' | 'given';

/**
 * Tells what a connection has to be ended for; undefined = it stays.
 * @param quietMs since something moved; while a request is received, since that began
 * @param requestMs the longest that the request in part may take
 */
export function overdue(
  state: ConnectionState,
  quietMs: number,
  requestMs: number,
  { STALL_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS }: HttpLimits,
): 'stalled' | 'too slow' | 'idle' | undefined {
  if (state === 'waiting' || state === 'over') return quietMs > STALL_TIMEOUT_MS ? 'stalled' : undefined;
  if (state === 'fresh' || state === 'receiving') return quietMs > requestMs ? 'too slow' : undefined;
  return quietMs > KEEP_ALIVE_TIMEOUT_MS ? 'idle' : undefined;
}
