import { readFileSync } from 'node:fs';
import { asset } from '#shared/assets.ts';
import { systemClock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { VERIFIER_ID_HEADER } from '#shared/protocol/records/verifier-status.ts';
import { ERROR_DOCS_PATH, errorDocsHtml } from '#shared/rules/errors.ts';
import type { HoldEnder } from './core/ports.ts';
import type { VerdictSource } from './core/verdict.ts';
import { type AuthzSettings, authzRoutes } from './doors/http/authz.ts';
import { getSelfRoute } from './doors/http/get-self.ts';
import { introspectRoute } from './doors/http/introspect.ts';
import { rateLimitRoutes } from './doors/http/rate-limit.ts';
import { answer, identify } from './doors/http/respond.ts';
import {
  createListener,
  createRouter,
  type Handler,
  type HttpLimits,
  type Listener,
  type Routes,
} from './doors/http/server.ts';
import type { Certificate } from './doors/http/tls.ts';
import { releaseRoute, V1, V2, verifyKeyRoute } from './doors/http/verify-key.ts';
import { FastLane, type LaneCounts } from './doors/lane/lane.ts';
import type { CallParts, Extra } from './extra.ts';
import type { RateLimiter } from './metering/rate-limits.ts';
import type { ANSWERED_HERE } from './proxy/control-plane-proxy.ts';

/** The listener that answers verifyKey. */
export interface VerifierServer extends Listener {
  readonly lane: Readonly<LaneCounts>;
}

/** The parts that answer the calls of a verifier. */
interface Called extends CallParts {
  readonly holds?: HoldEnder;
  readonly rateLimits?: RateLimiter;
  readonly extras?: readonly Extra[] | undefined;
}

type Call = `/v${1 | 2}/${(typeof ANSWERED_HERE)[number]}` | '/oauth2/introspect';

/** Returns the calls that a verifier answers, by their paths. Each asks `callers` first, but getSelf. */
export const callRoutes = (
  called: Called,
  bodyBytesMax: number,
): Readonly<Partial<Record<Call, { readonly POST: Handler }>>> => {
  const { verifier, holds, rateLimits, callers, extras = [] } = called;
  const nowMs = systemClock.wallMs;
  return {
    '/v1/keys.verifyKey': { POST: verifyKeyRoute(V1, verifier, bodyBytesMax, called) },
    '/v2/keys.verifyKey': { POST: verifyKeyRoute(V2, verifier, bodyBytesMax, called) },
    '/v1/keys.getSelf': { POST: getSelfRoute(verifier, nowMs) },
    ...Object.assign({}, ...extras.map(({ calls }) => calls?.(called, bodyBytesMax))),
    '/oauth2/introspect': { POST: introspectRoute(verifier, bodyBytesMax, called) },
    ...(holds ? { '/v1/keys.release': { POST: releaseRoute(holds, bodyBytesMax, called) } } : {}),
    ...(rateLimits ? rateLimitRoutes(rateLimits, bodyBytesMax, callers) : {}),
  };
};

/**
 * Creates the verifier's HTTP server, with verifyKey, the gateways' checks and the documents.
 * @param options.id id of this process in the fleet's list; sent with the OpenAPI document
 * @param options.holds undefined = nothing is held, and `keys.release` is not answered
 * @param options.rateLimits undefined = `ratelimit.limit` is not answered
 * @param options.callers undefined = anybody may ask about keys and rate limits
 * @param options.refusals undefined = nobody remembers refusals
 * @param options.extras add calls and documents
 * @param options.forGateways answers gateways; undefined = `verifier`
 * @param options.authz undefined = gateways get no answer
 * @param options.routes further routes besides verifyKey, the error page and the gateways' checks
 * @param options.crowded called for each request refused because of REQUESTS_IN_FLIGHT_MAX
 * @param options.certificate if present, the listener speaks HTTPS and has no fast lane
 */
export function createVerifierServer(
  options: Called & {
    id?: string;
    limits: HttpLimits;
    log: Pick<Logger, 'error'>;
    authz?: AuthzSettings;
    forGateways?: VerdictSource;
    routes?: Partial<Routes>;
    crowded?: () => void;
    certificate?: Certificate | undefined;
  },
): VerifierServer {
  const { verifier, forGateways = verifier, holds, callers, refusals, limits, log, authz } = options;
  const { routes, crowded, certificate, extras = [] } = options;
  const route = createRouter({
    exact: {
      ...callRoutes(options, limits.BODY_BYTES_MAX),
      [ERROR_DOCS_PATH]: {
        GET: (_request, response) => answer(response, 200, 'text/html; charset=utf-8', errorDocsHtml()),
      },
      '/openapi.json': {
        GET(_request, response) {
          if (options.id !== undefined) response.setHeader(VERIFIER_ID_HEADER, options.id);
          answer(response, 200, 'application/json', OPENAPI);
        },
      },
      ...Object.assign({}, ...extras.map(({ documents }) => documents)),
      ...routes?.exact,
    },
    below: [...(authz ? authzRoutes(forGateways, authz, refusals) : []), ...(routes?.below ?? [])],
  });
  const lane = { answered: 0, delegated: 0, handedOver: 0 };
  const listener = createListener({
    limits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    serve(request, response, requestId, events) {
      identify(response, requestId);
      return route(request, response, requestId, events);
    },
    ...(limits.FAST_LANE && certificate === undefined
      ? {
          lane: (server, tooSlow) =>
            new FastLane(server, {
              verifier,
              forGateways,
              holds,
              callers,
              refusals,
              limits,
              authz,
              tooSlow,
              log,
              counts: lane,
            }),
        }
      : {}),
  });
  return Object.assign(listener, { lane });
}

/** The document that `npm run docs` writes. */
const OPENAPI = readFileSync(asset('verifier/openapi.json'), 'utf8');
