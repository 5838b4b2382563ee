import { ApiError } from '#shared/contract/errors.ts';
import type { RootKeys } from '../../redis/callers/root-keys.ts';
import type { Sessions } from '../../redis/callers/sessions.ts';
import type { App } from '../server.ts';
import { callerOfSession, hasSession } from '../session-routes.ts';
import type { Connections } from './connections.ts';
import type { RateLimits } from './rate-limits.ts';

/**
 * Identifies the caller before anything else of a call is processed, and applies rate limits to callers and
 * strangers.
 */
export function authenticate(
  app: App,
  parts: { rootKeys: RootKeys; sessions: Sessions; connections: Connections; rates: RateLimits },
): void {
  const { rootKeys, sessions, connections, rates } = parts;
  app.addHook('onRequest', async (request, reply) => {
    if (!request.call) return;
    try {
      request.call.caller = hasSession(request)
        ? await callerOfSession(request, sessions)
        : await rootKeys.authenticate(request.headers.authorization);
    } catch (error) {
      if (error instanceof ApiError && error.code === 'UNAUTHORIZED') {
        connections.classify(request.raw.socket, false);
        await rates.countFailure(request, reply);
      }
      throw error;
    }
    connections.classify(request.raw.socket, true);
    await rates.countCall(request, reply);
  });
}
