import { type ConfigOf, flag, integer } from '#shared/process/config.ts';

export const httpSettings = {
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536).deprecated('Largest request body'),
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384).help(
    'Largest request head, and largest head of a response that is passed on',
  ),
  FAST_LANE: flag(true).help("Answers common requests without Node's HTTP server, twice as fast"),
  FAST_LANE_WAIT_BYTES_MAX: integer(0, 1_073_741_824, 'bytes', 16_777_216).deprecated(
    "Memory for requests that have come in part only, all connections of a listener together. Each takes at most BODY_BYTES_MAX and a head of 4 KiB. A connection that finds no room is handed over to Node's HTTP server",
  ),
  HEADERS_TIMEOUT_MS: integer(1000, 300_000, 'ms', 10_000).deprecated(
    'Longest time for receiving a request head',
  ),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000).deprecated(
    'Longest time for receiving a whole request',
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 600_000, 'ms', 90_000).help(
    "Time after which an idle connection is closed. Set it above the gateway's own",
  ),
  STALL_TIMEOUT_MS: integer(1000, 600_000, 'ms', 120_000).deprecated(
    'Time after which a connection is cut on which nothing moves while a request is being answered. Set it above any wait for the control plane',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000).help(
    'Most connections; more are closed at once',
  ),
  REQUESTS_IN_FLIGHT_MAX: integer(1, 1_000_000, 'requests', 10_000).deprecated(
    'Most requests being received or looked up at once; more are refused with 503',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;
