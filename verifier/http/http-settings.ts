import { type ConfigOf, flag, integer } from '#shared/process/load-config.ts';

export const httpSettings = {
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384).help(
    'Maximum size of the head of a request, and of the head of a response that the verifier passes on',
  ),
  FAST_LANE: flag(true).help(
    "If true, the verifier answers common requests without Node's HTTP server, at half the cost",
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 600_000, 'ms', 90_000).help(
    'Time after which the verifier closes an idle connection. Set it longer than the time after which the gateway closes its idle connections',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000).help(
    'Maximum number of connections at each port or socket. The verifier closes further connections immediately',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const httpLimits = {
  /** Largest request body. */
  BODY_BYTES_MAX: 65_536,
  /**
   * Memory for partial requests, of all connections of a listener together. Each takes at most BODY_BYTES_MAX
   * and a head of 4 KiB. A connection that finds no room is handed over to Node's HTTP server.
   */
  FAST_LANE_WAIT_BYTES_MAX: 16_777_216,
  /** Longest time for receiving a request head. */
  HEADERS_TIMEOUT_MS: 10_000,
  /** Maximum time to receive a whole request. */
  REQUEST_TIMEOUT_MS: 15_000,
  /**
   * Time without any byte after which the verifier cuts a connection whose request is not answered yet: longer than any
   * wait for the control plane.
   */
  STALL_TIMEOUT_MS: 120_000,
  /** Most requests that are being received or looked up at once; further ones get 503. */
  REQUESTS_IN_FLIGHT_MAX: 10_000,
};

/** The values of `httpSettings`, and the limits. */
export type HttpLimits = ConfigOf<typeof httpSettings> & typeof httpLimits;
