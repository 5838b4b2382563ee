import underPressure from '@fastify/under-pressure';
import { unavailable } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { SECURITY_HEADERS } from '../security-headers.ts';
import type { App } from '../server.ts';

const SAMPLE_MS = 500;

/** A route's `config` for routes that are answered even under load. */
export const neverShed = { pressureHandler: () => undefined };

/**
 * Adds security headers to every response. While the event loop lags, refuses new calls with 503 before they
 * cost anything.
 * @param options.delayMsMax mean delay of the event loop above which calls are refused; 0 = never
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
    // A single pause of the process shows in one sample and is then over; load shows in the next sample too.
    pressureHandler: async () => {
      const nowMs = clock.monotonicMs();
      if (nowMs - seenMs > 2 * SAMPLE_MS) sinceMs = nowMs;
      seenMs = nowMs;
      if (nowMs - sinceMs <= SAMPLE_MS) return;
      options.onShed();
      throw unavailable('the control plane is overloaded; try again');
    },
  });
}
