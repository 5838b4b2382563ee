import type { FastifyRequest } from 'fastify';
import { isUnauthorized } from '../callers/root-keys.ts';
import type { Connections } from './connections.ts';
import type { RateLimits } from './rate-limits.ts';

/** The parts that tell callers with a root key from strangers. */
export interface Admission {
  readonly connections: Connections;
  readonly rates: RateLimits;
}

/**
 * Resolves with what identifies the caller, and notes that the connection is an admin's. If it rejects with
 * UNAUTHORIZED, the connection is a stranger's, and the failure counts for its address.
 */
export async function admitted<T>(
  { connections, rates }: Admission,
  request: FastifyRequest,
  identified: Promise<T>,
): Promise<T> {
  const { socket } = request.raw;
  try {
    const caller = await identified;
    connections.classify(socket, true);
    return caller;
  } catch (error) {
    if (isUnauthorized(error)) {
      connections.classify(socket, false);
      await rates.countFailure(request);
    }
    throw error;
  }
}
