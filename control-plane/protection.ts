import helmet from '@fastify/helmet';
import underPressure from '@fastify/under-pressure';
import { unavailable } from '#shared/errors.ts';
import type { App } from './server.ts';

const SAMPLE_MS = 500;

/** Of a route, as its `config`: it is answered under load too, because it may be what stops a stolen key. */
export const neverShed = { pressureHandler: () => undefined };

/**
 * Security headers on every answer, and 503 for new calls while the event loop lags, before anything is spent on them.
 * @param options.delayMsMax mean delay of the event loop from which on calls are refused; 0 = never
 */
export async function protect(app: App, options: { delayMsMax: number; shed: () => void }): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
    xFrameOptions: { action: 'deny' },
  });
  await app.register(underPressure, {
    maxEventLoopDelay: options.delayMsMax,
    sampleInterval: SAMPLE_MS,
    pressureHandler: async () => {
      options.shed();
      throw unavailable('too much to do; try again');
    },
  });
}
