import { monitorEventLoopDelay } from 'node:perf_hooks';
import { unavailable } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { SECURITY_HEADERS } from '../security-headers.ts';
import type { App } from '../server.ts';

const SAMPLE_MS = 500;
const RESOLUTION_MS = 10;

/**
 * Adds security headers to every response. While the event loop lags, refuses new calls with 503 before they
 * cost anything, except those of operations that are never shed.
 * @param options.delayMsMax mean delay of the event loop above which calls are refused; 0 = never
 */
export function protect(app: App, options: { delayMsMax: number; clock: Clock; onShed: () => void }): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(SECURITY_HEADERS);
    done();
  });
  const { delayMsMax, clock } = options;
  if (delayMsMax === 0) return;
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delays.enable();
  let isSlow = false;
  const timer = setInterval(() => {
    // NaN if the event loop stood still for the whole sample.
    isSlow = !(delays.mean / 1e6 - RESOLUTION_MS <= delayMsMax);
    delays.reset();
  }, SAMPLE_MS).unref();
  app.addHook('onClose', async () => {
    clearInterval(timer);
    delays.disable();
  });
  let sinceMs = 0;
  let seenMs = Number.NEGATIVE_INFINITY;
  app.addHook('onRequest', ({ routeOptions }, _reply, done) => {
    if (!isSlow || routeOptions.config.operation?.neverShed) return done();
    // A single pause of the process shows in one sample and is then over; load shows in the next sample too.
    const nowMs = clock.monotonicMs();
    if (nowMs - seenMs > 2 * SAMPLE_MS) sinceMs = nowMs;
    seenMs = nowMs;
    if (nowMs - sinceMs <= SAMPLE_MS) return done();
    options.onShed();
    done(unavailable('the control plane is overloaded; try again'));
  });
}
