import type { Registry } from 'prom-client';
import { metricMakers } from '#shared/process/process-metrics.ts';
import type { LaneCounts } from '../fast-lane/lane.ts';

/** Registers the metrics of the HTTP server, which are read at each scrape. */
export function watchServer(
  registry: Registry,
  server: { readonly requestsInFlight: number; readonly lane: Readonly<LaneCounts> },
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_fast_lane_requests_total', () => server.lane.answered).help(
    "Requests that the fast lane answered without Node's HTTP server, at half the cost. Compare with keyfence_verdicts_total: for common clients it is 99 % or more. If it is less, see keyfence_fast_lane_loans_total and keyfence_fast_lane_handovers_total.",
  );
  count('keyfence_fast_lane_loans_total', () => server.lane.delegated).help(
    "Delegated requests: Node's HTTP server answered them, and their connections stayed in the fast lane. They are requests for other paths, and those that are refused.",
  );
  count('keyfence_fast_lane_handovers_total', () => server.lane.handedOver).help(
    "Connections that the fast lane handed over to Node's HTTP server for good. If there are many, and few requests in the fast lane, clients send something uncommon (chunked bodies, Expect, a head over 4 KiB), use other paths only, or send so many partial requests that FAST_LANE_WAIT_BYTES_MAX is used up.",
  );
  gauge('keyfence_requests_in_flight', () => server.requestsInFlight).help(
    'Requests that are being received or looked up. At REQUESTS_IN_FLIGHT_MAX further ones get 503.',
  );
}
