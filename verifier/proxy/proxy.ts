import type { IncomingMessage } from 'node:http';
import { FastLane } from '../fast-lane/fast-lane.ts';
import type { LaneCounts } from '../fast-lane/lane.ts';
import { createListener, type Listener } from '../http/server.ts';
import { FaultLog } from './fault-log.ts';
import { Forwarder, handler, laneHandler } from './handler.ts';
import type { ProxyOptions } from './proxy-options.ts';
import { Rechecker } from './recheck.ts';
import { writtenByTracer } from './tracer.ts';
import { UpstreamPool, type UpstreamStats } from './upstream.ts';

/** A listener in front of an API. */
export interface ProxyListener extends Listener {
  readonly stats: UpstreamStats;
  readonly lane: Readonly<LaneCounts>;
}

/**
 * A listener in front of the API at `url`: a request whose key is good is passed on without the key and with the
 * identity headers, any other is refused and never reaches the API.
 */
export async function createProxy(url: URL, options: ProxyOptions): Promise<ProxyListener> {
  const { config, limits, log, crowded, certificate } = options;
  const bounds = {
    connectionsMax: config.UPSTREAM_CONNECTIONS_MAX,
    timeoutMs: config.UPSTREAM_TIMEOUT_MS,
    headerBytesMax: limits.HEADER_BYTES_MAX,
  };
  const upstream = await UpstreamPool.to(
    url,
    bounds,
    new FaultLog('the API', options.clock, log),
    options.clock,
  );
  const rechecker = new Rechecker(options.verifier, log, options.clock, config.PROXY_RECHECK_MS);
  const forwarder = new Forwarder(upstream, rechecker, options);
  const lane = { answered: 0, delegated: 0, handedOver: 0 };
  // Which of several keys in a query counts is for the reference to say.
  const oneKey = !options.authz.sources.includes('query');
  // What passes Node's server by has no span there that the one of its way to the API could belong to.
  const hasTracer = writtenByTracer().size > 0;
  const hasLane = limits.FAST_LANE && certificate === undefined && oneKey && !hasTracer;
  const passOn = laneHandler(forwarder, options);
  // A long body may take long; STALL_TIMEOUT_MS bounds the time in which nothing of it comes.
  const ownLimits = { ...limits, REQUEST_TIMEOUT_MS: 0 };
  const listener = createListener({
    limits: ownLimits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    problems: true,
    // Clients that leave rarely say more than this, and the API may be at work for them.
    endIsAbort: true,
    mayUpgrade: isWebSocket,
    serve: handler(forwarder, options),
    ...(hasLane
      ? {
          lane: (server, tooSlow) =>
            new FastLane(server, { ...options, limits: ownLimits, tooSlow, passOn, counts: lane }),
        }
      : {}),
  });
  const { close } = listener;
  return Object.assign(listener, {
    stats: upstream,
    lane,
    async close(graceMs: number) {
      await close(graceMs);
      rechecker.close();
      await upstream.close();
    },
  });
}

function isWebSocket({ method, httpVersion, headers }: IncomingMessage): boolean {
  return (
    method === 'GET' &&
    httpVersion === '1.1' &&
    headers.upgrade?.toLowerCase() === 'websocket' &&
    headers['content-length'] === undefined &&
    headers['transfer-encoding'] === undefined
  );
}
