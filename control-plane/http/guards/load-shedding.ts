import underPressure from '@fastify/under-pressure';
import { unavailable } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { SECURITY_HEADERS } from '../security-headers.ts';
import type { App } from '../server.ts';

const SAMPLE_MS = 500;

/** Of a route, as its `config`: it is answered under load too. */
export const neverShed = { pressureHandler: () => undefined };

/**
 * Security headers on every answer, and 503 for new calls while the event loop goes on lagging, before anything is
 * spent on them.
 * @param options.delayMsMax mean delay of the event loop from which on calls are refused; 0 = never
 */
export async function protect(
  app: App,
  options: { delayMsMax: number; clock: Clock; onShed: () => void },
): Promise<void> {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(SECURITY_HEADERS);
    done();
  });
  const { clock } = options;
  let sinceMs = 0;
  let seenMs = Number.NEGATIVE_INFINITY;
  await app.register(underPressure, {
    maxEventLoopDelay: options.delayMsMax,
    sampleInterval: SAMPLE_MS,
    // One pause of the process shows in one sample, and is over by then; load shows in the next one too.
    pressureHandler: async () => {
      const nowMs = clock.monotonicMs();
      if (nowMs - seenMs > 2 * SAMPLE_MS) sinceMs = nowMs;
      seenMs = nowMs;
      if (nowMs - sinceMs <= SAMPLE_MS) return;
      options.onShed();
      throw unavailable('too much to do; try again');
    },
  });
}
