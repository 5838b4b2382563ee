import type { Registry } from 'prom-client';
import { metricMakers } from '#shared/process/process-metrics.ts';
import type { LaneCounts } from '../lane/lane.ts';

/** Registers the metrics of the HTTP server, which are read at each scrape. */
export function watchServer(
  registry: Registry,
  server: { readonly requestsInFlight: number; readonly lane: Readonly<LaneCounts> },
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_fast_lane_requests_total', () => server.lane.answered).help(
    "Requests that the fast lane (the verifier's own HTTP parser) answered without Node's HTTP server, at half the cost. Compare with keyfence_verdicts_total: with common clients, this metric has 99 % of its value or more. If it has less, see keyfence_fast_lane_loans_total and keyfence_fast_lane_handovers_total.",
  );
  count('keyfence_fast_lane_loans_total', () => server.lane.delegated).help(
    "Requests that the fast lane delegated: Node's HTTP server answered the request, and the connection stayed in the fast lane. These are requests to paths that the fast lane does not serve, and requests that are refused as invalid.",
  );
  count('keyfence_fast_lane_handovers_total', () => server.lane.handedOver).help(
    "Connections that the fast lane handed over to Node's HTTP server for good. If there are many, and few fast-lane requests, there are three possible reasons. Clients send uncommon requests (chunked bodies, Expect, a head over 4 KiB). Clients use only paths that the fast lane does not serve. Or so many requests are received in parts that FAST_LANE_WAIT_BYTES_MAX is used up.",
  );
  gauge('keyfence_requests_in_flight', () => server.requestsInFlight).help(
    'Requests that are being received, or that wait for a look-up. At 10,000, further requests get 503.',
  );
}
