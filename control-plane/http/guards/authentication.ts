import type { RootKeys } from '../../redis/callers/root-keys.ts';
import type { Sessions } from '../../redis/callers/sessions.ts';
import type { App } from '../server.ts';
import { callerOfSession, hasSession } from '../sign-in/session-routes.ts';
import { type Admission, admitted } from './admission.ts';

/**
 * Identifies the caller before anything else of a call is processed, and applies rate limits to callers and
 * strangers.
 */
export function authenticate(
  app: App,
  parts: Admission & { readonly rootKeys: RootKeys; readonly sessions: Sessions },
): void {
  const { rootKeys, sessions, rates } = parts;
  app.addHook('onRequest', async (request, reply) => {
    if (!request.call) return;
    // A call of a known root key is counted while the key is read, so that it waits for Redis once.
    let counting: Promise<void> | undefined;
    const count = (callerId: string) => {
      counting = rates.countCall(request, reply, callerId);
      counting.catch(() => undefined); // awaited below, unless the root key is refused
    };
    const caller = await admitted(
      parts,
      request,
      reply,
      hasSession(request)
        ? callerOfSession(request, sessions)
        : rootKeys.authenticate(request.headers.authorization, count),
    );
    request.call.caller = caller;
    await (counting ?? rates.countCall(request, reply, caller.id));
  });
}
