import { ApiError } from '#shared/contract/errors.ts';
import { type TurnLimits, Turns } from '../../core/turns.ts';
import { isStop } from '../operations/operation.ts';
import type { App } from '../server.ts';

/**
 * Runs at most `atOnce` calls of one root key at the same time. A call counts until it is answered, or has
 * written and only waits for verifiers. Redis does one thing at a time, so more concurrent calls would speed
 * up no caller and slow down others. Calls that stop something have turns of their own, so that they wait for no others.
 * @param onRefusal is called for each call that finds the queue full and is answered RATE_LIMITED
 */
export function takeTurns(app: App, limits: TurnLimits, onRefusal: () => void): void {
  const turns = new Turns(limits);
  app.addHook('preHandler', async ({ call, routeOptions: { config } }) => {
    if (!call) return;
    const isUrgent = config.operation !== undefined && isStop(config.operation, call.request);
    const turn = turns.take(isUrgent ? `${call.caller.id} stops` : call.caller.id);
    if (turn === undefined) {
      onRefusal();
      throw new ApiError('RATE_LIMITED', `more than ${limits.waitingMax} calls of this root key are waiting`);
    }
    call.turn = await turn;
  });
  // `onResponse` would not fire for a client that has gone.
  app.addHook('onSend', ({ call }, _reply, payload, done) => {
    call?.giveTurnBack();
    done(null, payload);
  });
}
