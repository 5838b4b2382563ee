import type { IncomingMessage } from 'node:http';
import { Rechecker } from '../core/rechecker.ts';
import { createListener, type Listener } from '../http/server.ts';
import { FastLane, type LaneCounts } from '../lane/lane.ts';
import { FaultLog } from './fault-log.ts';
import { Forwarder, handler, laneHandler } from './handler.ts';
import type { ProxyOptions } from './proxy-options.ts';
import { writtenByTracer } from './tracer.ts';
import { UpstreamPool, type UpstreamStats } from './upstream.ts';

/** A listener in front of an API. */
export interface ProxyListener extends Listener {
  readonly stats: UpstreamStats;
  readonly lane: Readonly<LaneCounts>;
}

/**
 * Creates a listener in front of the API at `url`. A request with a valid key is passed on without the key
 * and with the identity headers. Any other request is refused and never reaches the API.
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
  // If the query may contain several keys, the reference must decide which one counts.
  const oneKey = !options.authz.sources.includes('query');
  // A request in the lane bypasses Node's server, so a tracer has no span there as a parent for the request
  // to the API.
  const hasTracer = writtenByTracer().size > 0;
  const hasLane = limits.FAST_LANE && certificate === undefined && oneKey && !hasTracer;
  const passOn = laneHandler(forwarder, options);
  // A long body may take long. STALL_TIMEOUT_MS bounds the time without progress.
  const ownLimits = { ...limits, REQUEST_TIMEOUT_MS: 0 };
  const listener = createListener({
    limits: ownLimits,
    log,
    certificate,
    ...(crowded ? { crowded } : {}),
    problems: true,
    // Most clients that leave end only their side, and the API may still be working for them.
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
