import type { Registry } from 'prom-client';
import { metricMakers } from '#shared/process/process-metrics.ts';
import type { VerifierServer } from './verifier-server.ts';

/** Metrics of the server that is asked over HTTP; they are read when somebody scrapes. */
export function watchServer(
  registry: Registry,
  server: Pick<VerifierServer, 'requestsInFlight' | 'lane'>,
): void {
  const { count, gauge } = metricMakers(registry);
  count('keyfence_fast_lane_requests_total', () => server.lane.answered).help(
    "Requests answered without Node's HTTP server, at half the cost; compare keyfence_verdicts_total. Every common client's are: where it is less than 99 %, see the two below.",
  );
  count('keyfence_fast_lane_loans_total', () => server.lane.delegated).help(
    "Requests answered by Node's HTTP server whose connections stayed in the fast lane: other paths, and what is refused.",
  );
  count('keyfence_fast_lane_handovers_total', () => server.lane.handedOver).help(
    "Connections handed over to Node's HTTP server; a connection never comes back to the fast lane. If there are many and few requests in the fast lane, clients send something uncommon (chunked bodies, Expect, a head over 4 KiB), or ask for other paths only, or so many requests come in parts that FAST_LANE_WAIT_BYTES_MAX is used up.",
  );
  gauge('keyfence_requests_in_flight', () => server.requestsInFlight).help(
    'Requests being received or looked up. At REQUESTS_IN_FLIGHT_MAX more are refused with 503.',
  );
}
