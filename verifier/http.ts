import { readFileSync } from 'node:fs';
import { type ConfigOf, flag, integer } from '#shared/config.ts';
import { ERROR_DOCS_PATH, errorDocsHtml } from '#shared/errors.ts';
import type { Logger } from '#shared/log.ts';
import { VERIFIER_ID_HEADER } from '#shared/verifier-status.ts';
import { answer, identify } from './answer.ts';
import { type AuthzSettings, authzRoutes } from './authz.ts';
import { FastLane, type LaneCounts } from './fast-lane.ts';
import { createListener, type Listener } from './listener.ts';
import { createRouter, type Routes } from './routes.ts';
import type { Certificate } from './tls.ts';
import { type Answers, verifyKeyRoute } from './verify-key.ts';

export const httpSettings = {
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536, 'Largest request body'),
  HEADER_BYTES_MAX: integer(
    4096,
    65_536,
    'bytes',
    16_384,
    'Largest request head, and largest head of a response that is passed on',
  ),
  FAST_LANE: flag(true, "Whether common requests are answered without Node's HTTP server, twice as fast"),
  FAST_LANE_WAIT_BYTES_MAX: integer(
    0,
    1_073_741_824,
    'bytes',
    16_777_216,
    "Memory for requests of which only a part has come, of all connections of a listener together, each at most BODY_BYTES_MAX and a head of 4 KiB; a connection that finds no room is given to Node's HTTP server",
  ),
  HEADERS_TIMEOUT_MS: integer(
    1000,
    300_000,
    'ms',
    10_000,
    'The longest that receiving a request head may take',
  ),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000, 'The longest that receiving a request may take'),
  KEEP_ALIVE_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    90_000,
    "How long an idle connection stays open; above the gateway's own",
  ),
  STALL_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    120_000,
    'How long a connection on which nothing moves stays open while a request is being answered; above any wait for the control plane',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000, 'Connections at once; more are closed at once'),
  REQUESTS_IN_FLIGHT_MAX: integer(
    1,
    1_000_000,
    'requests',
    10_000,
    'Requests being received or looked up at once; more are refused with 503',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;

/** The listener that verifyKey is asked at. */
export interface VerifierServer extends Listener {
  readonly lane: Readonly<LaneCounts>;
}

/**
 * The HTTP contract of the verifier.
 * @param options.id of this process, as the fleet's list names it; told with the OpenAPI document
 * @param options.authz undefined = gateways are not answered
 * @param options.routes more than verifyKey, the error page and what gateways ask
 * @param options.crowded called for each request refused because of REQUESTS_IN_FLIGHT_MAX
 * @param options.certificate with it the listener speaks HTTPS, and has no fast lane
 */
export function createVerifierServer(options: {
  id?: string;
  answers: Answers;
  limits: HttpLimits;
  log: Pick<Logger, 'error'>;
  authz?: AuthzSettings;
  routes?: Partial<Routes>;
  crowded?: () => void;
  certificate?: Certificate | undefined;
}): VerifierServer {
  const { answers, limits, log, authz, routes, crowded, certificate } = options;
  const route = createRouter({
    exact: {
      '/v1/keys.verifyKey': { POST: verifyKeyRoute(answers, limits.BODY_BYTES_MAX) },
      [ERROR_DOCS_PATH]: {
        GET: (_request, response) => answer(response, 200, 'text/html; charset=utf-8', errorDocsHtml()),
      },
      '/openapi.json': {
        GET(_request, response) {
          if (options.id !== undefined) response.setHeader(VERIFIER_ID_HEADER, options.id);
          answer(response, 200, 'application/json', OPENAPI);
        },
      },
      ...routes?.exact,
    },
    below: [...(authz ? authzRoutes(answers, authz) : []), ...(routes?.below ?? [])],
  });
  const lane = { answered: 0, lent: 0, handedOver: 0 };
  const listener = createListener({
    limits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    serve(request, response, requestId, hooks) {
      identify(response, requestId);
      return route(request, response, requestId, hooks);
    },
    ...(limits.FAST_LANE && certificate === undefined
      ? {
          lane: (server, tooSlow) =>
            new FastLane(server, { answers, limits, authz, tooSlow, log, counts: lane }),
        }
      : {}),
  });
  return Object.assign(listener, { lane });
}

/** Written by `npm run docs`. */
const OPENAPI = readFileSync(new URL('./openapi.json', import.meta.url), 'utf8');
